"""Addresses that leave the path or the API open: what is measured is what answers, and what was tried is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import TargetError
from gpusize.measure.locate import other_ways
from gpusize.targets.server import Target
from tests.servers.fixtures import scripted_server
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, answer

__all__ = ["scripted_server"]

Scripted = Callable[[Script], ScriptedServer]
CHAT = {"choices": [{"message": {"content": "hi"}}], "usage": {"completion_tokens": 7}}
ONCE = gpusize.Load(concurrencies=[1], passes=1)


def serving(routes: dict[str, Callable[[dict], object]]) -> Script:
    """Answers the routes that it has; what a route raises is a 422, as FastAPI says it."""

    def script(request: Request) -> Sequence[Step]:
        route = routes.get(request.start_line.split()[1])
        headers = ["Content-Type: application/json"]
        if route is None:
            return [Send(answer(b'{"detail":"Not Found"}', status="404 Not Found", headers=headers))]
        try:
            said = route(json.loads(request.body))
        except KeyError as problem:
            body = json.dumps({"detail": f"field required: {problem}"}).encode()
            return [Send(answer(body, status="422 Unprocessable Entity", headers=headers))]
        return [Send(answer(json.dumps(said).encode(), headers=headers))]

    return script


def paths(server: ScriptedServer) -> list[str]:
    return [request.start_line.split()[1] for request in server.requests]


def measure(url: str, out: Path, api: str | None = None) -> gpusize.Result:
    return gpusize.run(
        Target(url, api=api, stream=False), gpusize.Dataset.from_prompt("x"), ONCE, out=out, metrics_url="none"
    )


@pytest.mark.parametrize("api", [None, "openai-chat"])
def test_a_gateways_base_address_is_measured_where_it_answers(scripted_server: Scripted, tmp_path: Path, api) -> None:
    server = scripted_server(serving({"/v1beta/openai/chat/completions": lambda _: CHAT}))
    base = f"http://127.0.0.1:{server.port}/v1beta/openai"
    result = measure(base, tmp_path, api)
    assert paths(server) == ["/v1beta/openai", *["/v1beta/openai/chat/completions"] * 3]
    [target] = result.meta["targets"]
    assert (target["url"], target["api"]) == (f"{base}/chat/completions", "openai-chat")
    # The run again asks where the answers were, at once.
    assert result.meta["options"]["url"] == target["url"]


def test_what_was_tried_is_said_where_nothing_answers(scripted_server: Scripted, tmp_path: Path) -> None:
    server = scripted_server(serving({}))
    base = f"http://127.0.0.1:{server.port}/gateway"
    with pytest.raises(TargetError) as caught:
        measure(base, tmp_path)
    for path in ("", "/chat/completions", "/v1/chat/completions"):
        assert f"{base}{path} as " in str(caught.value)
    assert str(caught.value).count("(404)") == 3
    assert "--api" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_generate_of_an_inference_server_is_not_taken_for_a_workflow(scripted_server: Scripted, tmp_path: Path) -> None:
    server = scripted_server(serving({"/generate": lambda body: {"text": [body["prompt"] + " hi"]}}))
    url = f"http://127.0.0.1:{server.port}/generate"
    result = measure(url, tmp_path)
    assert [json.loads(request.body) for request in server.requests] == [
        {"input_message": "x"},
        *[{"prompt": "x"}] * 3,
    ]
    assert result.meta["targets"][0]["api"] == "generic"


def test_generate_of_a_workflow_is_still_one(scripted_server: Scripted, tmp_path: Path) -> None:
    server = scripted_server(serving({"/generate": lambda body: {"value": body["input_message"]}}))
    result = measure(f"http://127.0.0.1:{server.port}/generate", tmp_path)
    assert result.meta["targets"][0]["api"] == "nat"


def test_generate_of_neither_kind_says_that_the_api_was_guessed(scripted_server: Scripted, tmp_path: Path) -> None:
    server = scripted_server(serving({"/generate": lambda body: {"generated_text": body["inputs"]}}))
    url = f"http://127.0.0.1:{server.port}/generate"
    with pytest.raises(TargetError) as caught:
        measure(url, tmp_path)
    assert "--body-template" in str(caught.value)
    assert f"Tried {url} as nat (422), {url} as generic (422)" in str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        Target("http://h/v1"),
        Target("http://h/a/chat/completions"),
        Target("http://h/x", api="generic"),
        Target("http://h/x", body_template='{"q": "${prompt}"}'),
        Target("http://h/x", method="GET"),
        Target("http://h/generate", api="nat"),
        Target("http://h/generate/full"),
        Target("http://h/x?deployment=a"),
    ],
)
def test_what_the_user_said_outright_is_not_tried_otherwise(target: Target) -> None:
    assert other_ways(target) == []
