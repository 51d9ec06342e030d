"""A daemon that takes its time to make and start a container, one that takes too long, and one that dies meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline import Pipeline, RunOptions, Service, clean, run_pipeline
from gpusize.containers.pipeline.daemon import Daemon
from tests.containers.conftest import SOURCE, Leftovers
from tests.containers.engine import IMAGE
from tests.containers.test_run import Told, pipeline, shell
from tests.containers.wire import Wire

MAKE, START = b"/containers/create", b"/start HTTP"
Wired = Callable[[Mapping[bytes, float]], Wire]


@pytest.fixture
def wired(docker_host: str, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wired]:
    """Puts a slow wire between us and the daemon."""
    made: list[Wire] = []

    def put(delay_s: Mapping[bytes, float]) -> Wire:
        made.append(Wire(docker_host, tmp_path, delay_s))
        monkeypatch.setenv("DOCKER_HOST", made[-1].address)
        return made[-1]

    yield put
    for each in made:
        each.cut()


@pytest.mark.parametrize("slow", [MAKE, START])
def test_a_container_has_all_the_time_to_start_that_it_was_given(
    wired: Wired, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers, slow: bytes
) -> None:
    """Longer than any other answer may take."""
    monkeypatch.setattr("gpusize.containers.pipeline.daemon.ANSWER_S", 8)
    wired({slow: 9.0})
    result = run_pipeline(pipeline(shell("a", "echo here")))
    [execution] = result.operators[0].executions
    assert (execution.outcome, execution.error, execution.log_tail) == ("completed", None, "here")
    assert leftovers() == []


@pytest.mark.parametrize("slow", [MAKE, START])
def test_a_start_that_takes_too_long_is_told_and_nothing_is_left(
    wired: Wired, leftovers: Leftovers, slow: bytes
) -> None:
    wired({slow: 2.0})
    result = run_pipeline(pipeline(shell("a", "sleep 100")), options=RunOptions(start_timeout_s=0.5))
    [execution] = result.operators[0].executions
    assert (execution.outcome, execution.error) == ("timed_out", "it did not start within 0.5 s")
    assert result.exit_code == 1
    assert leftovers() == []


def test_the_user_may_end_it_while_it_is_made(wired: Wired, leftovers: Leftovers) -> None:
    wire, stop = wired({MAKE: 2.0}), StopSwitch()

    def ask() -> None:
        wire.held.wait(60)
        stop.ask()

    threading.Thread(target=ask, daemon=True).start()
    told = Told()
    result = run_pipeline(pipeline(shell("a", "sleep 100")), events=told, stop=stop)
    assert [each.outcome for each in result.operators] == ["interrupted"]
    assert (result.interrupted, told.began_with) == (True, [])
    assert leftovers() == []


@pytest.mark.parametrize("late", [False, True])
def test_a_server_may_be_ended_while_it_is_started(wired: Wired, leftovers: Leftovers, *, late: bool) -> None:
    wire, stop = wired({START: 1.0}), StopSwitch()

    def ask() -> None:
        wire.held.wait(60)
        stop.ask()

    if not late:
        threading.Thread(target=ask, daemon=True).start()
    web = Service("web", IMAGE, ("sleep", "86400"), {}, (("WEB_URI", 8080),))
    needing = Pipeline("p", (shell("a", "true", services=(web,)),), "own")
    result = run_pipeline(needing, options=RunOptions(start_timeout_s=0.5 if late else 60), stop=stop)
    [server] = result.servers
    assert (result.interrupted, server.execution.outcome) == (not late, "completed")
    if late:
        error = result.operators[0].executions[0].error
        assert error is not None
        assert error.startswith("the server web")
    assert leftovers() == []


@pytest.mark.parametrize("slow", [MAKE, START])
def test_a_daemon_that_dies_meanwhile_is_noticed(
    wired: Wired, daemon: Daemon, work: Path, tmp_path: Path, leftovers: Leftovers, slow: bytes
) -> None:
    # Until it is cut, so that the daemon never hears of it.
    wire = wired({slow: 3600.0})
    file = tmp_path / "p.yaml"
    file.write_text(f'pipeline: p\noperators: {{a: {{image: "{IMAGE}", command: ["true"]}}}}\n', "utf-8")
    # No limit of time ends it.
    words = ["pipeline", "run", str(file), "--metrics-dir", "m", "--no-plots", "--start-timeout", "1h"]
    with subprocess.Popen(
        [sys.executable, "-m", "gpusize", *words],
        cwd=tmp_path,
        env={**SOURCE, "TMPDIR": str(work), "DOCKER_HOST": wire.address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert wire.held.wait(60), process.communicate()
            wire.cut()
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 3, (out, err)
    [document] = [json.loads(each.read_text()) for each in (tmp_path / "m").glob("*/pipeline.json")]
    assert [each["outcome"] for each in document["operators"]] == ["lost"]
    assert "there is no Docker daemon" in document["operators"][0]["executions"][0]["error"]
    assert clean(daemon).left == []
    assert leftovers() == []
