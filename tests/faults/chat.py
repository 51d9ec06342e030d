"""Faults of what an answer says: event streams and JSON of the chat API, as servers, proxies and gateways send them."""

from __future__ import annotations

import json
from typing import Any

from gpusize.targets.apis import ApiOptions, create_api
from tests.faults.matrix import Fault
from tests.servers.scripted import Close, Send, answer, chunked

__all__ = ["FAULTS"]

TARGET: dict[str, Any] = {"response": create_api("openai-chat", ApiOptions()).response()}
STREAM = "Content-Type: text/event-stream"
JSON = "Content-Type: application/json"


def event(**members: Any) -> bytes:
    return b"data: " + json.dumps(members).encode() + b"\n\n"


def delta(text: str | None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}])


DONE = b"data: [DONE]\n\n"
HELLO = delta("hello")
FINISHED = event(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])
GOOD = answer(chunked([HELLO, DONE]), headers=[STREAM, "Transfer-Encoding: chunked"], length=False)


def stream(*events: bytes, header: str = STREAM) -> bytes:
    return answer(
        chunked([each for each in events if each]), headers=[header, "Transfer-Encoding: chunked"], length=False
    )


def fault(does: str, response: bytes, outcome: str, says: str = "", *, closes: bool = False) -> Fault:
    return Fault(does, [Send(response), *([Close()] if closes else [])], outcome, says, good=GOOD, target=TARGET)


def body(does: str, text: bytes, outcome: str, says: str = "", header: str = JSON, status: str = "200 OK") -> Fault:
    return fault(does, answer(text, headers=[header], status=status), outcome, says)


STREAMS = [
    fault("streams without [DONE]", stream(HELLO), "truncated"),
    fault("streams without [DONE], but says why it ends", stream(HELLO, FINISHED), "ok"),
    fault("streams without [DONE], with an empty reason", stream(event(choices=[{"finish_reason": ""}])), "truncated"),
    fault(
        "says why it ends and breaks off",
        answer(chunked([HELLO, FINISHED])[:-5], headers=[STREAM, "Transfer-Encoding: chunked"], length=False),
        "truncated",
        closes=True,
    ),
    fault("streams nothing", stream(), "truncated"),
    fault("streams [DONE] alone", stream(DONE), "api_error"),
    fault("streams comments alone, then [DONE]", stream(b": ping\n\n" * 3, DONE), "api_error"),
    fault("streams empty choices, then [DONE]", stream(event(choices=[]), DONE), "api_error"),
    fault("streams objects of another kind, then [DONE]", stream(event(hello="world"), DONE), "api_error"),
    fault("streams an error and [DONE]", stream(event(error={"message": "no room"}), DONE), "api_error", "no room"),
    fault(
        "streams an error after content",
        stream(HELLO, event(error={"message": "no room"}), DONE),
        "api_error",
        "no room",
    ),
    fault("streams an error as text", stream(HELLO, event(error="no room"), DONE), "api_error", "no room"),
    fault("streams an error and breaks off", stream(HELLO, event(error="no room")), "api_error", "no room"),
    fault("streams text that is not JSON", stream(HELLO, b"data: hello\n\n", DONE), "protocol_error"),
    fault("streams half a JSON document", stream(b'data: {"choices": [{"delta"\n\n', DONE), "protocol_error"),
    fault(
        "streams bytes that are not UTF-8",
        stream(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n', DONE),
        "protocol_error",
    ),
    fault(
        "streams a lone surrogate", stream(b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n', DONE), "ok"
    ),
    fault(
        "streams 10,000 nested lists",
        stream(b"data: " + b"[" * 10_000 + b"]" * 10_000 + b"\n\n", DONE),
        "protocol_error",
    ),
    fault("streams NaN", stream(b'data: {"choices": [{"delta": {"content": NaN}}]}\n\n', DONE), "protocol_error"),
    fault("streams after [DONE]", stream(HELLO, DONE, HELLO), "ok"),
    fault("streams [DONE] twice", stream(HELLO, DONE, DONE), "ok"),
    fault("ends with [DONE] without a blank line", stream(HELLO, b"data: [DONE]"), "ok"),
    fault("ends with [DONE] and one line end", stream(HELLO, b"data: [DONE]\n"), "ok"),
    fault("uses CRLF", stream(HELLO.replace(b"\n", b"\r\n"), DONE.replace(b"\n", b"\r\n")), "ok"),
    fault("uses CR", stream(HELLO.replace(b"\n", b"\r"), DONE.replace(b"\n", b"\r")), "ok"),
    fault("begins with a byte order mark", stream(b"\xef\xbb\xbf" + HELLO, DONE), "ok"),
    fault(
        "has no blank after data:", stream(HELLO.replace(b"data: ", b"data:"), DONE.replace(b"data: ", b"data:")), "ok"
    ),
    fault("has ids, names and retries", stream(b"id: 1\nevent: message\nretry: 9\n" + HELLO, DONE), "ok"),
    fault(
        "spreads an event over lines",
        stream(b'data: {"choices":\ndata: [{"delta": {"content": "a"}}]}\n\n', DONE),
        "ok",
    ),
    fault(
        "names the role alone, then usage",
        stream(
            event(choices=[{"delta": {"role": "assistant"}}]),
            event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 0}),
            DONE,
        ),
        "ok",
    ),
    fault(
        "streams a tool call alone",
        stream(
            event(choices=[{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}}]),
            DONE,
        ),
        "ok",
    ),
    fault("streams reasoning alone", stream(event(choices=[{"delta": {"reasoning_content": "hm"}}]), DONE), "ok"),
    fault("streams 2,000 events", stream(*[HELLO] * 2000, DONE), "ok"),
    fault("streams an event of 2 MiB", stream(delta("x" * (1 << 21)), DONE), "ok"),
    fault(
        "has no content type",
        answer(chunked([HELLO, DONE]), headers=["Transfer-Encoding: chunked"], length=False),
        "protocol_error",
    ),
    fault("streams into a length", answer(HELLO + DONE, headers=[STREAM]), "ok"),
    fault(
        "streams until the end",
        answer(HELLO + DONE, headers=[STREAM, "Connection: close"], length=False),
        "ok",
        closes=True,
    ),
    fault(
        "breaks off a stream until the end",
        answer(HELLO, headers=[STREAM, "Connection: close"], length=False),
        "truncated",
        closes=True,
    ),
    fault(
        "breaks off inside an event",
        answer(HELLO + HELLO[:20], headers=[STREAM, "Connection: close"], length=False),
        "truncated",
        closes=True,
    ),
]

MESSAGE = b'{"choices": [{"message": {"content": "hello"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'

BODIES = [
    body("answers an empty body", b"", "protocol_error"),
    body("answers {}", b"{}", "api_error"),
    body("answers null", b"null", "api_error"),
    body("answers true", b"true", "api_error"),
    body("answers a number", b"7", "api_error"),
    body("answers a text", b'"hello"', "api_error"),
    body("answers a list", b"[]", "api_error"),
    body("answers no choices", b'{"choices": []}', "api_error"),
    body("answers choices that are null", b'{"choices": null}', "api_error"),
    body("answers an object of another kind", b'{"hello": "world"}', "api_error"),
    body("answers an error as 200", b'{"error": {"message": "no room", "code": 500}}', "api_error", "no room"),
    body("answers an error beside choices", b'{"error": "no room", "choices": []}', "api_error", "no room"),
    body("answers half a document", MESSAGE[:40], "protocol_error"),
    body("answers two documents", MESSAGE + MESSAGE, "ok"),
    body("answers text after the document", MESSAGE + b"bye", "ok"),
    body("answers bytes that are no UTF-8", b'{"choices": [{"message": {"content": "\xff"}}]}', "protocol_error"),
    body(
        "answers a proxy's page as 200",
        b"<html>504 Gateway Time-out</html>",
        "protocol_error",
        header="Content-Type: text/html",
    ),
    body("answers a text as 200", b"upstream connect error", "protocol_error", header="Content-Type: text/plain"),
    body("answers without a content type", MESSAGE, "ok", header="X-A: b"),
    body("answers with an unknown charset", MESSAGE, "ok", header="Content-Type: application/json; charset=klingon"),
    body(
        "answers content that is empty, with usage",
        b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}',
        "ok",
    ),
    body(
        "answers a tool call alone",
        b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}',
        "ok",
    ),
    body("answers a count that is negative", MESSAGE.replace(b'tokens": 1}', b'tokens": -1}'), "ok"),
    body("answers a count beyond 64 bits", MESSAGE.replace(b'tokens": 1}', b'tokens": 99999999999999999999999}'), "ok"),
    body("answers a count as text", MESSAGE.replace(b'tokens": 1}', b'tokens": "many"}'), "ok"),
    body("answers 4 MiB of JSON", b'{"choices": [{"message": {"content": "' + b"x" * (1 << 22) + b'"}}]}', "ok"),
    body("answers compressed bytes", b"\x1f\x8b\x08" + b"\x00" * 40, "protocol_error"),
    body("answers no content", b"", "api_error", status="204 No Content"),
    body(
        "answers an error with a status", b'{"error": {"message": "no room"}}', "http_error", "no room", status="503 X"
    ),
    fault("answers JSON until the end", answer(MESSAGE, headers=[JSON], length=False), "ok", closes=True),
]

FAULTS = [*STREAMS, *BODIES]
