"""An answer that is none, as a user meets it: told before the load, or taken where it is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Gpusize
from tests.servers.scripted import Script, ScriptedServer, Send, answer


def test_a_stream_of_nothing_is_no_success_unless_anything_is(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    sent = answer(b"data: [DONE]\n\n", headers=["Content-Type: text/event-stream"])
    server = scripted_server(lambda request: [Send(sent)] if request.body else [Send(answer(status="404 Not Found"))])
    command = ["run", "--url", f"http://127.0.0.1:{server.port}/v1", "--model", "m", "--prompt", "hello"]
    command += ["--concurrencies", "2", "--count", "6", "--no-plots", "--out", str(tmp_path / "out")]
    refused = gpusize(*command)
    assert refused.code == 3
    assert "success_if): content" in refused.complaint
    assert "--success any" in refused.complaint
    assert not (tmp_path / "out").exists()
    assert gpusize(*command, "--success", "any").code == 0
    assert sum(bool(request.body) for request in server.requests) == 1 + 1 + 6
