"""What the engine reads of an answer, through the extension module and back into Polars."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benches.client import level_plan, target_spec
from gpusize.records.schema import EVENTS, from_arrow, record_dtypes, scan
from tests.servers.drive import closed, drive
from tests.servers.scripted import Close, Read, Script, ScriptedServer, Send, answer

Start = Callable[[Script], ScriptedServer]

RESPONSES: dict[str, Any] = {
    "content": [{"at": "/delta", "if": {"at": "/type", "is": ["response.output_text.delta"]}}],
    "reasoning": [{"at": "/delta", "if": {"at": "/type", "is": ["response.reasoning_text.delta"]}}],
    "tokens_in": ["/response/usage/input_tokens"],
    "tokens_out": "/response/usage/output_tokens",
    "error": ["/response/error", "/error"],
    "end": {"at": "/type", "is": ["response.completed", "response.incomplete"]},
}
CALLS: dict[str, Any] = {
    "content": "/value",
    "calls": {
        "field": "intermediate_data",
        "kind": "/payload/event_type",
        "start": "LLM_START",
        "end": "LLM_END",
        "id": "/payload/UUID",
        "name": "/payload/name",
        "time_s": "/payload/event_timestamp",
    },
}


def sse(lines: list[str]) -> bytes:
    return answer("".join(f"{line}\n\n" for line in lines).encode(), headers=["Content-Type: text/event-stream"])


def typed(kind: str, **fields: object) -> str:
    return "data: " + json.dumps({"type": kind, **fields})


def step(kind: str, call: str, time_s: float) -> str:
    payload = {"event_type": kind, "UUID": call, "name": "llama", "event_timestamp": time_s}
    return "intermediate_data: " + json.dumps({"payload": payload})


STREAM = [
    typed("response.created", response={"usage": None, "error": None}),
    typed("response.reasoning_text.delta", delta="hm"),
    typed("response.output_text.delta", delta="a"),
    typed("response.output_text.delta", delta="b"),
    typed("response.completed", response={"error": None, "usage": {"input_tokens": 4, "output_tokens": 3}}),
]


@pytest.mark.parametrize("piece", [None, 1, 40])
def test_typed_events_and_their_times(scripted_server: Start, piece: int | None) -> None:
    server = scripted_server(lambda request: [Send(sse(STREAM), piece)])
    visit = drive(server.port, count=2, response=RESPONSES, record_events=True)
    assert visit.outcomes == ["ok"] * 2, visit.outcome["errors"]
    assert visit.rows.columns == list(record_dtypes())
    assert (visit.column("events"), visit.column("reasoning_events")) == ([3, 3], [1, 1])
    assert (visit.column("tokens_in"), visit.column("tokens_out")) == ([4, 4], [3, 3])
    digest = ("itl_min_ns", "itl_p50_ns", "itl_max_ns", "first_token_ns", "first_output_ns", "last_token_ns")
    for times, *row in visit.rows.select(EVENTS, *digest).iter_rows():
        gaps = sorted([times[1] - times[0], times[2] - times[1]])
        assert row == [gaps[0], gaps[0], gaps[1], *times]


GENERIC: dict[str, Any] = {"content": ["/text"], "json": "by_type"}
TEXT = "Content-Type: text/plain; charset=utf-8"


def test_a_stream_of_plain_text_is_timed_as_it_comes(scripted_server: Start) -> None:
    head = answer(b"", headers=[TEXT, "Transfer-Encoding: chunked"], length=False)
    words = [b"3\r\nOne\r\n", b"4\r\n two\r\n5\r\n and \r\n", b"5\r\nthree\r\n"]
    pieces = [step for word in words for step in (Send(word), Read())]
    server = scripted_server(lambda request: [Send(head), Read(), *pieces, Send(b"0\r\n\r\n")])
    visit = drive(server.port, count=2, response=GENERIC, record_events=True)
    assert visit.outcomes == ["ok"] * 2, visit.outcome["errors"]
    assert visit.column("events") == [3, 3], "chunks that come together are one"
    for times, first, last, end in visit.rows.select(EVENTS, "first_token_ns", "last_token_ns", "end_ns").iter_rows():
        assert times[0] == first < times[1] < times[2] == last < end


def test_a_text_that_ends_with_the_connection_is_a_stream_and_one_of_known_length_is_none(
    scripted_server: Start,
) -> None:
    until_close = answer(b"", headers=[TEXT], length=False)
    server = scripted_server(lambda request: [Send(until_close), Read(), Send(b"a"), Read(), Send(b"b"), Close()])
    assert drive(server.port, response=GENERIC).column("events") == [2]
    whole = scripted_server(lambda request: [Send(answer(b"ab", headers=[TEXT]))])
    assert drive(whole.port, response=GENERIC).column("events") == [0]
    # Who says what a success holds, or how a stream ends, wants the text looked into.
    for more, outcome in (({"success_if": {"at": "/ok", "is": None}}, "api_error"), ({"framing": "whole"}, "ok")):
        visit = drive(server.port, response={**GENERIC, **more})
        assert (visit.outcomes, visit.column("events")) == ([outcome], [0])


def test_a_mix_goes_to_its_paths_and_into_the_records(scripted_server: Start) -> None:
    from gpusize import _core

    seen: list[tuple[str, bytes]] = []

    def script(request: Any) -> list[Send]:
        seen.append((request.start_line.split()[1], request.body))
        return [Send(answer(b"{}"))]

    server = scripted_server(script)
    mix = {
        "requests": [
            {"path": "/a", "segments": [{"field": 0}], "headers": [["X-Kind", "a"]], "model": 0},
            {"path": "/b", "segments": [{"static": "b"}], "model": 1},
        ],
        "of_row": [0, 1, 1],
        "sessions": [5, 5, 6],
        "turns": None,
    }
    session = _core.Session(json.dumps(target_spec(server.port)), "[]", [[b"x"], [], []], mix=json.dumps(mix))
    try:
        level = session.level(json.dumps(level_plan(closed(), {"count": 3}, None)))
        assert level.wait(60)
        batches = level.rows()
        assert batches is not None
        rows = from_arrow(batches).collect().sort("seq")
    finally:
        session.close()
    assert [path for path, _ in seen] == ["/a", "/b", "/b"]
    assert rows["model"].to_list() == [0, 1, 1]
    assert rows["session"].to_list() == [5, 5, 6]
    assert rows["turn"].null_count() == 3


def test_calls_are_written_beside_the_records(scripted_server: Start, tmp_path: Path) -> None:
    from gpusize import _core

    lines = [
        step("LLM_START", "a", 1700000000.0),
        step("LLM_START", "b", 1700000000.5),
        step("LLM_END", "b", 1700000001.0),
        step("LLM_END", "a", 1700000003.0),
        'data: {"value": "x"}',
    ]
    server = scripted_server(lambda request: [Send(sse(lines), 7)])
    folder = tmp_path / "records"
    folder.mkdir()
    session = _core.Session(json.dumps(target_spec(server.port, response=CALLS)), "[]", [[]])
    try:
        level = session.level(json.dumps({**level_plan(closed(), {"count": 2}, str(folder)), "keep_bytes": 1 << 20}))
        assert level.wait(60)
        outcome = json.loads(level.outcome())
        kept = level.spans()
    finally:
        session.close()
    assert (outcome["outcomes"], outcome["spans"], outcome["span_parts"]) == ({"ok": 2}, 4, ["part-00000.parquet"])
    spans = pl.read_parquet(tmp_path / "spans" / "part-00000.parquet")
    assert spans.equals(pl.DataFrame(kept))
    took_s = (spans["end_ns"] - spans["start_ns"]) / 1e9
    assert took_s.to_list() == [3.0, 0.5, 3.0, 0.5]
    assert spans["kind"].unique().to_list() == ["llm"]
    records = scan(sorted(folder.glob("*.parquet")))
    joined = records.join(spans.lazy(), on=["visit", "stream", "seq", "attempt"]).select(pl.len()).collect().item()
    assert (joined, records.select(pl.col("events").sum()).collect().item()) == (4, 2)


def test_an_answer_that_does_not_say_ok_is_an_error(scripted_server: Start) -> None:
    spec = {"json": "by_type", "success_if": {"at": "/status", "is": ["ok"]}}
    bodies = [b'{"status": "ok"}', b'{"status": "no", "message": "full"}']
    server = scripted_server(lambda request: [Send(answer(bodies[request.number % 2]))])
    visit = drive(server.port, count=2, response=spec)
    assert sorted(visit.outcomes) == ["api_error", "ok"]
    assert visit.outcome["errors"][0]["message"].endswith("full")
