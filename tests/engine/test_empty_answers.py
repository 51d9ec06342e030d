"""An answer that lacks what its API always has is no success; one that is merely short is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.options.inputs import target_from_options
from gpusize.targets.apis import ApiOptions, create_api
from tests.servers.drive import drive
from tests.servers.scripted import Script, ScriptedServer, Send, answer

Start = Callable[[Script], ScriptedServer]

TENSOR = b"\x00\x01" * 8
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [4], "parameters": {"binary_data_size": len(TENSOR)}}


def whole(body: object, status: str = "200 OK", kind: str = "application/json") -> bytes:
    return answer(json.dumps(body).encode(), status=status, headers=[f"Content-Type: {kind}"])


def events(*bodies: object) -> bytes:
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    body = "".join(f"data: {text}\n\n" for text in texts)
    return answer(body.encode(), headers=["Content-Type: text/event-stream"])


def binary(head: object, tensors: bytes = TENSOR) -> bytes:
    text = json.dumps(head).encode()
    headers = ["Content-Type: application/octet-stream", f"Inference-Header-Content-Length: {len(text)}"]
    return answer(text + tensors, headers=headers)


def delta(**said: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": None}], "usage": None}


def choice(**said: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, **said}]}


NOTHING: dict[str, bytes] = {
    "{}": whole({}),
    "null": whole(None),
    "another service's": whole({"hello": "world"}),
    "204": answer(b"", status="204 No Content"),
    "205": answer(b"", status="205 Reset Content"),
}
APIS = ("openai-chat", "openai-completions", "openai-responses", "openai-embeddings", "kserve", "kserve-json", "nat")
LACKING = [
    *((api, name, body) for api in APIS for name, body in NOTHING.items()),
    ("openai-chat", "only [DONE]", events("[DONE]")),
    ("openai-chat", "no choices", whole({"choices": []})),
    ("openai-chat", "a choice of nothing", whole(choice(message=None))),
    ("openai-chat", "empty events", events({"choices": []}, delta(content=""), "[DONE]")),
    ("openai-completions", "only [DONE]", events("[DONE]")),
    ("openai-completions", "no choices", whole({"choices": [], "usage": None})),
    ("openai-responses", "an end of nothing", events({"type": "response.completed", "response": {}})),
    ("openai-responses", "queued", whole({"status": "queued", "output": []})),
    ("openai-embeddings", "no vector", whole({"data": [], "usage": {"prompt_tokens": 3}})),
    ("openai-embeddings", "an empty vector", whole({"data": [{"embedding": []}]})),
    ("kserve", "no tensor", binary({"model_name": "m", "outputs": []}, b"")),
    ("kserve", "tensors of nothing", binary({"model_name": "m"})),
    ("kserve-json", "no tensor", whole({"outputs": []})),
    ("nat-chat", "no choices", whole({"choices": []})),
]


@pytest.mark.parametrize("api,name,sent", LACKING, ids=[f"{api}-{name}" for api, name, _ in LACKING])
def test_an_answer_that_is_none_is_an_api_error(scripted_server: Start, api: str, name: str, sent: bytes) -> None:
    server = scripted_server(lambda request: [Send(sent)])
    visit = drive(server.port, response=create_api(api, ApiOptions(model="m")).response())
    assert visit.outcomes == ["api_error"], name
    assert "success_if" in visit.outcome["errors"][0]["message"]
    anything = create_api(api, ApiOptions(model="m", response={"success_if": None})).response()
    assert drive(server.port, response=anything).outcomes == ["ok"]


USAGE = {"usage": {"prompt_tokens": 4, "completion_tokens": 0}}
CALL = {"index": 0, "id": "c", "function": {"name": "now", "arguments": ""}}
SHORT = [
    ("openai-chat", "a tool call alone", events(delta(tool_calls=[CALL]), "[DONE]")),
    ("openai-chat", "reasoning alone", events(delta(reasoning_content="hm"), "[DONE]")),
    ("openai-chat", "a role alone", events(delta(role="assistant", content=""), "[DONE]")),
    ("openai-chat", "usage alone", events({"choices": [], **USAGE}, "[DONE]")),
    ("openai-chat", "a reason alone", whole(choice(message=None, finish_reason="content_filter"))),
    ("openai-chat", "a tool call, whole", whole(choice(message={"content": None, "tool_calls": [CALL]}))),
    ("openai-chat", "filtered", events({"choices": [], "prompt_filter_results": []}, delta(content="a"), "[DONE]")),
    ("openai-completions", "no text", whole(choice(text="", finish_reason="stop"))),
    ("openai-completions", "text alone", events(choice(text="a"), "[DONE]")),
    ("openai-responses", "incomplete", events({"type": "response.incomplete", "response": {"status": "incomplete"}})),
    ("openai-responses", "a call", whole({"output": [{"type": "function_call", "arguments": "{}"}]})),
    ("openai-embeddings", "numbers", whole({"data": [{"embedding": [0.5]}]})),
    ("openai-embeddings", "base64", whole({"data": [{"embedding": "AACAPw=="}]})),
    ("kserve", "tensors", binary({"model_name": "m", "outputs": [OUTPUT]})),
    ("kserve", "tensors in JSON", whole({"outputs": [{"name": "y", "data": [1.5]}]})),
    ("kserve-json", "tensors", whole({"outputs": [{"name": "y", "data": []}]})),
    ("nat", "an empty text", whole({"value": ""})),
    ("nat-chat", "a role", whole(choice(message={"role": "assistant"}))),
    *(("generic", name, body) for name, body in NOTHING.items()),
]


@pytest.mark.parametrize("api,name,sent", SHORT, ids=[f"{api}-{name}" for api, name, _ in SHORT])
def test_a_short_answer_is_one(scripted_server: Start, api: str, name: str, sent: bytes) -> None:
    server = scripted_server(lambda request: [Send(sent, 7 if request.number % 2 else None)])
    visit = drive(server.port, count=2, response=create_api(api, ApiOptions(model="m")).response())
    assert visit.outcomes == ["ok", "ok"], (name, visit.outcome["errors"])


@pytest.mark.parametrize(
    "given", [{"success": "all"}, {"success": "any", "response": ["success_if=/status:ok"]}, {"success": "200-204"}]
)
def test_rules_of_success_that_cannot_be_meant(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="success"):
        target_from_options({"url": "http://h/v1", **given})


@pytest.mark.parametrize("tail", ["data: [DONE]", "data: [DONE]\n", "data: [DONE]\r\n", "data:[DONE]\n\n"])
def test_the_end_of_a_stream_needs_no_empty_line_after_it(scripted_server: Start, tail: str) -> None:
    body = f"data: {json.dumps(delta(content='a'))}\n\n{tail}".encode()
    sent = answer(body, headers=["Content-Type: text/event-stream"])
    server = scripted_server(lambda request: [Send(sent, 5 if request.number % 2 else None)])
    visit = drive(server.port, count=2, response=create_api("openai-chat").response())
    assert visit.outcomes == ["ok", "ok"], visit.outcome["errors"]
    assert visit.column("events") == [1, 1]


def test_another_event_without_its_empty_line_is_none(scripted_server: Start) -> None:
    last = json.dumps(delta(content="b"))
    body = f"data: {json.dumps(delta(content='a'))}\n\ndata: {last}".encode()
    server = scripted_server(lambda request: [Send(answer(body, headers=["Content-Type: text/event-stream"]))])
    visit = drive(server.port, response=create_api("openai-chat").response())
    assert (visit.outcomes, visit.column("events")) == (["truncated"], [1])
