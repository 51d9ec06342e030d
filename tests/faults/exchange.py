"""Loads whose every request says which one it is, and the balance that must hold between rows and servers.

A request carries its visit, stream and number in ``traceparent``, or its number in its body where heads are compressed.
Whatever a server does to requests, each that it counted is in the records once, and was asked again as often as its row
says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from benches.client import PLAIN_RESPONSE, level_plan, target_spec
from tests.servers.scripted import Request

__all__ = ["BODY", "CHAT", "PLAIN", "assert_balance", "number_in_body", "number_of", "send", "visits_of"]

PLAIN: dict[str, Any] = PLAIN_RESPONSE
CHAT: dict[str, Any] = {
    **PLAIN_RESPONSE,
    "framing": "auto",
    "content": ["/choices/0/delta/content", "/choices/0/message/content"],
    "tokens_out": "/usage/completion_tokens",
    "error": "/error",
    "end": "[DONE]",
}

BODY = ({"static": '{"seq": '}, {"counter": {"start": 0}}, {"static": "}"})


def number_in_body(body: bytes) -> int:
    return int(json.loads(body)["seq"])


def number_of(request: Request) -> tuple[int, int]:
    """Visit and number of a request, from its trace context."""
    trace = (request.header("traceparent") or "").split("-")[1]
    return int(trace[4:12], 16), int(trace[16:32], 16)


def send(
    port: int,
    levels: Sequence[Mapping[str, Any]],
    *,
    counts: Sequence[int],
    workers: int = 1,
    stop_after_sent: int | None = None,
    **target: Any,
) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Send queued levels of these loads; the outcome of each, and all rows."""
    from gpusize import _core
    from gpusize.records.schema import from_arrow

    spec = json.dumps(
        target_spec(port, **{"method": "POST", "trace": True, "response": PLAIN, "timeout_ns": 2_000_000_000, **target})
    )
    session = _core.Session(spec, json.dumps(list(BODY)), [[]], workers=workers)
    try:
        plans = [
            level_plan(dict(load), {"count": count}, None, visit=visit)
            for visit, (load, count) in enumerate(zip(levels, counts, strict=True))
        ]
        running = [session.level(json.dumps(plan)) for plan in plans]
        if stop_after_sent is not None:
            while json.loads(running[0].poll())["sent"] < stop_after_sent:
                assert not running[0].wait(0.002), "over before it was stopped"
            running[0].stop(0)
        frames = []
        for level in running:
            assert level.wait(60), f"still running: {level.poll()}"
            batches = level.rows()
            assert batches is not None
            frames.append(from_arrow(batches).collect())
        return [json.loads(level.outcome()) for level in running], pl.concat(frames).sort("visit", "seq")
    finally:
        session.close()


def visits_of(frame: pl.DataFrame) -> list[tuple[int, int, int, str, bool]]:
    """Of each row: visit, number, attempt, outcome, and whether it was sent."""
    wanted = frame.select("visit", "seq", "attempt", pl.col("outcome").cast(pl.String), pl.col("sent_ns").is_not_null())
    return list(wanted.iter_rows())


def assert_balance(
    outcomes: Sequence[Mapping[str, Any]],
    frame: pl.DataFrame,
    counted: Counter[tuple[int, int]],
    answered: set[tuple[int, int]],
) -> None:
    """Rows, the engine's counts and what the server counted say the same.

    ``counted`` has how often each request came in whole, ``answered`` those that got a whole and good answer.
    """
    rows = visits_of(frame)
    names = [(visit, seq) for visit, seq, *_ in rows]
    assert len(set(names)) == len(names), "a request has two rows"
    for outcome in outcomes:
        of_visit = [row for row in rows if row[0] == outcome["visit"]]
        assert outcome["due"] == outcome["rows"] == len(of_visit)
        assert outcome["outcomes"] == dict(Counter(how for *_, how, _ in of_visit))
        assert outcome["sent"] == sum(was_sent for *_, was_sent in of_visit)
        failed = sum(error["count"] for error in outcome["errors"])
        assert failed == sum(how not in {"ok", "shed"} for *_, how, _ in of_visit), "a failure without its text"
    by_name = {(visit, seq): (attempt, how, was_sent) for visit, seq, attempt, how, was_sent in rows}
    assert set(counted) <= set(by_name), "the server counted a request that no row knows"
    for name, (attempt, how, was_sent) in by_name.items():
        assert counted[name] <= 1 + attempt, (
            f"request {name} reached the server {counted[name]} times, told {attempt + 1}"
        )
        assert was_sent or not counted[name], f"request {name} reached the server and was never sent"
        assert how != "ok" or name in answered, f"request {name} is ok, and the server never answered it"
        assert name not in answered or how in {"ok", "cancelled", "timeout"}, f"request {name} was answered: {how}"
