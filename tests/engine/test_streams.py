"""Streamed answers, to the byte: the same events however the stream is cut, stamped at the read that brought them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from tests.servers.drive import drive
from tests.servers.scripted import Close, Read, Request, Script, ScriptedServer, Send, Step, answer, chunked

Start = Callable[[Script], ScriptedServer]

CHAT = {
    "framing": "auto",
    "content": ["/choices/0/delta/content"],
    "reasoning": ["/choices/0/delta/reasoning_content"],
    "tokens_in": "/usage/prompt_tokens",
    "tokens_out": "/usage/completion_tokens",
    "tokens_cached": "/usage/prompt_tokens_details/cached_tokens",
    "tokens_reasoning": None,
    "error": "/error",
    "end": "[DONE]",
    "success": [200, 299],
}


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


EVENTS: list[dict[str, object]] = [
    delta(role="assistant", content=""),
    delta(content="Hé"),
    delta(content="llo"),
    delta(reasoning_content="hm"),
    delta(content=None),
    {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    },
]


def stream(events: Sequence[object], newline: str = "\n", *, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}" for event in events] + (["data: [DONE]"] if done else [])
    return (f": comment{newline}{newline}" + "".join(f"{line}{newline}{newline}" for line in lines)).encode()


def sse(body: bytes, chunk: int | None = None) -> bytes:
    if chunk is None:
        return answer(body, headers=["Content-Type: text/event-stream"])
    parts = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    headers = ["Content-Type: text/event-stream; charset=utf-8", "Transfer-Encoding: chunked"]
    return answer(chunked(parts), headers=headers, length=False)


@pytest.mark.parametrize("piece", [None, 1, 3, 50])
@pytest.mark.parametrize("chunk", [None, 1, 17, 10_000])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_events_do_not_depend_on_the_cuts(
    scripted_server: Start, newline: str, chunk: int | None, piece: int | None
) -> None:
    server = scripted_server(lambda request: [Send(sse(stream(EVENTS, newline), chunk), piece)])
    visit = drive(server.port, count=2, response=CHAT)
    assert visit.outcomes == ["ok"] * 2
    assert visit.column("events") == [3] * 2
    assert (visit.column("tokens_in"), visit.column("tokens_out"), visit.column("tokens_cached")) == (
        [7] * 2,
        [3] * 2,
        [2] * 2,
    )
    for row in visit.rows.select("first_byte_ns", "first_token_ns", "last_token_ns", "end_ns").iter_rows():
        assert list(row) == sorted(row)
    assert visit.rows["conn"].n_unique() == 1


def test_the_first_token_is_the_first_event_with_content(scripted_server: Start) -> None:
    role, token, end = stream(EVENTS[:1], done=False), stream(EVENTS[1:2], done=False), stream(EVENTS[2:])
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    def script(request: Request) -> Sequence[Step]:
        return [Send(head + role), Read(), Send(token), Read(), Send(end), Close()]

    visit = drive(scripted_server(script).port, response=CHAT)
    assert visit.outcomes == ["ok"]
    (row,) = visit.rows.select("first_byte_ns", "first_token_ns", "last_token_ns").iter_rows()
    assert row[0] < row[1] < row[2]


@pytest.mark.parametrize("coding", ["length", "chunked", "close"])
def test_a_stream_without_its_end_marker_is_truncated(scripted_server: Start, coding: str) -> None:
    body = stream(EVENTS, done=False)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    said = {"length": sse(body), "chunked": sse(body, 20), "close": head + body}[coding]
    ending: list[Step] = [Close()] if coding == "close" else []
    visit = drive(scripted_server(lambda request: [Send(said), *ending]).port, count=2, response=CHAT)
    assert visit.outcomes == ["truncated"] * 2
    assert visit.column("events") == [3] * 2


@pytest.mark.parametrize("piece", [None, 1])
def test_an_error_inside_a_stream_is_an_api_error(scripted_server: Start, piece: int | None) -> None:
    events = [*EVENTS[:2], {"error": {"message": "out of memory", "code": 500}}]
    visit = drive(scripted_server(lambda request: [Send(sse(stream(events)), piece)]).port, response=CHAT)
    assert visit.outcomes == ["api_error"]
    assert visit.column("status") == [200]
    assert "out of memory" in visit.outcome["errors"][0]["message"]


def test_a_plain_document_where_a_stream_was_possible(scripted_server: Start) -> None:
    document = {
        "choices": [{"delta": {"content": "all at once"}}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 9},
    }
    said = answer(json.dumps(document).encode(), headers=["Content-Type: application/json"])
    visit = drive(scripted_server(lambda request: [Send(said, 5)]).port, response=CHAT)
    assert visit.outcomes == ["ok"]
    assert (visit.column("tokens_in"), visit.column("tokens_out")) == ([4], [9])
    refused = answer(b'{"error": {"message": "no such model"}}', headers=["Content-Type: application/json"])
    visit = drive(scripted_server(lambda request: [Send(refused)]).port, response=CHAT)
    assert visit.outcomes == ["api_error"]
    assert "no such model" in visit.outcome["errors"][0]["message"]


@pytest.mark.parametrize("piece", [None, 1, 4])
def test_lines_of_json(scripted_server: Start, piece: int | None) -> None:
    lines = b"".join(
        json.dumps(event).encode() + b"\n" for event in [{"value": "a"}, {"value": ""}, {"value": "b"}, {"n": 5}]
    )
    said = answer(lines, headers=["Content-Type: application/x-ndjson"])
    spec = {**CHAT, "content": ["/value"], "reasoning": [], "tokens_out": "/n", "end": None}
    visit = drive(scripted_server(lambda request: [Send(said, piece)]).port, count=2, response=spec)
    assert visit.outcomes == ["ok"] * 2
    assert (visit.column("events"), visit.column("tokens_out")) == ([2] * 2, [5] * 2)


def test_hostile_streams_end_in_an_outcome(scripted_server: Start) -> None:
    hostile = [
        b"data: {not json}\n\ndata: [DONE]\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"\xff\xfe\x00" * 1000,
        b"data:" * 50_000,
        b"\n" * 100_000 + b"data: [DONE]\n\n",
    ]
    headers = ["Content-Type: text/event-stream", "Connection: close"]
    server = scripted_server(lambda request: [Send(answer(hostile[request.connection], headers=headers)), Close()])
    visit = drive(server.port, count=len(hostile), response=CHAT)
    assert visit.outcome["rows"] == len(hostile)
    assert set(visit.outcomes) <= {"ok", "truncated", "protocol_error", "api_error"}
    assert visit.outcomes[3] != "ok"


def test_a_stream_with_an_announced_length_is_read_as_it_comes(scripted_server: Start) -> None:
    events = [delta(content=word) for word in ("a", "b", "c" * 400_000)]
    whole = sse(stream(events))
    first, second = (whole.index(json.dumps(event).encode()) for event in events[1:])
    steps: list[Step] = [Send(whole[:first]), Read(), Send(whole[first:second]), Read(), Send(whole[second:])]
    server = scripted_server(lambda request: steps)
    # The server says the rest when the second event was read, and not before.
    visit = drive(server.port, response=CHAT, timeout_ns=5 * 10**9)
    assert (visit.outcomes, visit.column("events")) == (["ok"], [3]), visit.outcome["errors"]
