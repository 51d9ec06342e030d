"""Levels of a simulated cluster in virtual time, with the columns that a run would store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import intervals
from gpusize.engine.session import core
from gpusize.records.calls import LLM, span_dtypes
from gpusize.records.schema import OUTCOMES, outcome_dtype, record_dtypes

CLUSTER: Mapping[str, Any] = {
    "iteration_base_s": 0.02,
    "iteration_per_sequence_s": 0.001,
    "prefill_per_token_s": 0.00005,
    "max_batch": 64,
    "output_tokens": {"lognormal": {"median_tokens": 100, "sigma": 0.4, "max_tokens": 600}},
}
COSTS = ("iteration_base_s", "iteration_per_sequence_s", "prefill_per_token_s")


def level(
    users: int,
    *,
    gpus: int = 1,
    requests: int = 600,
    slowness: float = 1.0,
    said: bool = False,
    whole: bool = False,
    pause_s: float = 0.0,
    brought: Mapping[str, bytes] | None = None,
    **more: Any,
) -> LevelData:
    """One level of so many users on so many GPUs, each of them slower by a factor, with nothing left out.

    ``said``: the server says how long each request waited and was served. ``whole``: answers come in one piece.
    ``pause_s``: mean of the users' pauses, which are exponential. ``brought``: tables that lengths are drawn from, as
    the core takes them.
    """
    slowed = {name: slowness * CLUSTER[name] for name in COSTS}
    config = {**CLUSTER, **slowed, "gpus": gpus, "seed": users + 1000 * gpus, **more}
    asked = {
        "arrivals": {"closed": {"users": users, "think_s": pause_s, "think": "exponential"}},
        "requests": requests,
        "warmup_requests": 0,
        "prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}},
    }
    stream, _ = core().simulate(json.dumps(config), json.dumps(asked), **(brought or {}))
    records = _records(pl.DataFrame(stream), said=said, whole=whole)
    setting: dict[str, Any] = {"kind": "closed", "concurrency": users, "count": requests}
    if pause_s:
        setting["think"] = f"exp({pause_s}s)"
    due, end = records["due_ns"], records["end_ns"]
    meta = {
        "setting": setting,
        "state": "done",
        "start_ns": 0,
        "close_ns": int(due.to_numpy().max()) + 1,
        "end_ns": int(end.to_numpy().max()),
        "outcomes": {"ok": requests},
    }
    return LevelData(
        visit=users,
        setting=setting,
        state="done",
        intervals=intervals(meta, records.lazy()).intervals,
        gpus=gpus,
        run="virtual",
        meta=meta,
        records=records.lazy(),
    )


def calls_by_the_server(given: LevelData) -> LevelData:
    """The same where each request is one call inside it, which the server's clock timed: the twin knows it not."""
    known = {"seq", "start_ns", "end_ns", "kind", "outcome", "domain"}
    assert given.records is not None
    calls = given.records.select(
        "seq", "outcome", "end_ns", start_ns="sent_ns", kind=pl.lit(LLM), domain=pl.lit(1, pl.UInt8)
    ).with_columns(
        pl.lit(0 if name in ("visit", "stream", "attempt", "call") else None, dtype).alias(name)
        for name, dtype in span_dtypes().items()
        if name not in known
    )
    return replace(given, calls=calls)


def _records(rows: pl.DataFrame, *, said: bool, whole: bool) -> pl.DataFrame:
    known = {
        "seq": pl.Series(range(rows.height)),
        "due_ns": rows["due_ns"],
        "fired_ns": rows["due_ns"],
        "sent_ns": rows["due_ns"],
        "first_byte_ns": rows["first_token_ns"],
        "first_token_ns": rows["first_token_ns"],
        "last_token_ns": rows["end_ns"],
        "end_ns": rows["end_ns"],
        "events": rows["tokens_out"],
        "tokens_in": rows["prompt_tokens"],
        "tokens_out": rows["tokens_out"],
        "outcome": pl.Series(OUTCOMES, dtype=outcome_dtype()).gather(rows["outcome"]),
    }
    if said:
        known["server_queue_ns"] = rows["start_ns"] - rows["due_ns"]
        known["server_service_ns"] = rows["end_ns"] - rows["start_ns"]
    if whole:
        for name in ("first_byte_ns", "first_token_ns", "last_token_ns", "events"):
            known.pop(name)
        known["events"] = pl.repeat(0, rows.height, eager=True)
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    zero = {"visit", "stream", "attempt", "row"}
    columns = [
        known[name].cast(dtype).alias(name)
        if name in known
        else pl.repeat(0 if name in zero else None, rows.height, dtype=dtype, eager=True).alias(name)
        for name, dtype in dtypes.items()
    ]
    return pl.DataFrame(columns)
