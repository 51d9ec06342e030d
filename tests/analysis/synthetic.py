"""Record frames with a known truth, for the tests of the analysis and of the estimates."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import intervals
from gpusize.records.schema import OUTCOMES, from_arrow, record_dtypes

MS = 1_000_000
SOURCE = {"targets": [{"url": "http://127.0.0.1/", "api": "json", "simulated": None}], "models": ["m"], "dataset": "d"}
OPTIONAL = {
    "session", "turn", "fired_ns", "sent_ns", "connect_ns", "tls_ns", "first_byte_ns", "first_token_ns",
    "last_token_ns", "end_ns", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "status", "error_id",
    "first_output_ns", "itl_min_ns", "itl_mean_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns", "events_ns",
    "server_queue_ns", "server_service_ns",
}  # fmt: skip


def frame(columns: dict[str, Any]) -> pl.DataFrame:
    """Records as stored, from the columns that matter; the others are null or 0."""
    n = len(next(iter(columns.values())))
    filled: dict[str, Any] = {}
    for name, dtype in record_dtypes().items():
        optional = name in OPTIONAL
        values = columns.get(name, range(n) if name == "seq" else [None if optional else 0] * n)
        filled[name] = pl.Series(name, values, dtype=dtype, strict=False)
    return pl.DataFrame(filled)


def closed(
    concurrency: int,
    service_ns: Callable[[int], int],
    *,
    count: int | None = None,
    duration_ns: int | None = None,
    idle_ns: int = 0,
    start_ns: int = 1_000_000_000,
) -> dict[str, list[int]]:
    """A closed loop in virtual time: each slot sends again when its answer came, ``idle_ns`` late."""
    slots = [(start_ns, k) for k in range(concurrency)]
    heapq.heapify(slots)
    due: list[int] = []
    sent: list[int] = []
    end: list[int] = []
    while slots:
        at, slot = heapq.heappop(slots)
        if (count is not None and len(due) >= count) or (duration_ns is not None and at >= start_ns + duration_ns):
            continue
        due.append(at)
        sent.append(at + idle_ns)
        end.append(at + idle_ns + service_ns(len(due) - 1))
        heapq.heappush(slots, (end[-1], slot))
    return {"due_ns": due, "fired_ns": due, "sent_ns": sent, "end_ns": end}


def level(
    concurrency: int | None,
    columns: dict[str, Any],
    *,
    visit: int = 0,
    gpus: int = 8,
    state: str = "done",
    run: str = "r1",
    source: dict[str, Any] | None = None,
    **setting: Any,
) -> LevelData:
    """A level over synthetic records; ``setting`` holds passes, count and the like, and a rate for an open loop."""
    raw = frame(columns)
    records = from_arrow(raw)
    kind = "closed" if concurrency is not None else "open"
    full = {"kind": kind, **({"concurrency": concurrency} if concurrency is not None else {}), **setting}
    outcomes = {OUTCOMES[code]: n for code, n in raw["outcome"].value_counts().iter_rows()}
    meta = {
        "schema": 1,
        "visit": visit,
        "setting": full,
        "state": state,
        "start_ns": raw["due_ns"].min(),
        "close_ns": raw["due_ns"].min() + 10**9 * setting["duration_s"]
        if "duration_s" in setting
        else raw["due_ns"].max() + 1,
        "end_ns": raw["end_ns"].max(),
        "outcomes": outcomes,
        "workers": 1,
        "cpu_ns": 0,
        "alerts": [],
    }
    return LevelData(
        visit=visit,
        setting=full,
        state=state,
        intervals=intervals(meta, records).intervals,
        gpus=gpus,
        run=run,
        meta=meta,
        source=SOURCE if source is None else source,
        records=records,
    )


def percentile_level(concurrency: int, p95_s: float, *, state: str = "done", gpus: int = 8, **more: Any) -> LevelData:
    """A level with passes whose p95 runtime is exactly ``p95_s`` by linear interpolation: all requests alike."""
    n = max(2 * concurrency, 4)
    runtime_ns = round(p95_s * 1e9)
    due = [1_000_000_000] * n
    columns = {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": [d + runtime_ns for d in due]}
    return level(concurrency, columns, visit=concurrency, state=state, gpus=gpus, passes=2, **more)


def lognormal_ns(seed: int, mean_ns: float, sigma: float) -> Callable[[int], int]:
    """Service times by request number, seeded."""
    rng = np.random.default_rng(seed)
    draws = rng.lognormal(np.log(mean_ns), sigma, 200_000)
    return lambda k: int(draws[k % len(draws)])
