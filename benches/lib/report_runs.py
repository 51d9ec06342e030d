"""Run folders of closed loops with as many requests as wanted, written in seconds and not measured for hours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from gpusize.analysis.windows import intervals
from gpusize.records.schema import EVENTS, SCHEMA_KEY, SERVER_TIMES, record_dtypes, scan, version_of

__all__ = ["LEVELS", "write_run"]

LEVELS: Final = (1, 2, 4, 8, 16, 24, 32, 48)
PART_ROWS: Final = 1 << 18
"""As the engine closes its parts."""
ZEROS: Final = ("stream", "attempt", "target", "model", "host", "reasoning_events", "connect_ns", "tls_ns")
SLOS: Final = ("p95 runtime <= 3s", "p95 ttft <= 1s")


def write_run(place: Path, requests: int, *, seed: int = 3) -> Path:
    """A run of 8 levels with so many requests each: streamed answers, one in a thousand fails."""
    place.mkdir(parents=True)
    target = {"url": "http://gpu-0/v1/chat/completions", "api": "openai-chat", "model": "m", "gpus": 1}
    run = {
        "schema": 1, "run": place.name, "models": ["m"], "labels": {}, "dataset": {"sha256": "ab"}, "seed": 1,
        "targets": [{**target, "tls_verified": None, "simulated": None}], "command": ["gpusize", "run"],
        "created": "2026-11-20T21:03:12Z", "options": {"slo": list(SLOS), "users": 100},
    }  # fmt: skip
    (place / "run.json").write_text(json.dumps(run))
    rng = np.random.default_rng(seed)
    start = 10**9
    for visit, users in enumerate(LEVELS):
        start = _write_level(place / "levels" / f"{visit:04d}", visit, users, requests, start, rng) + 10**9
    return place


def _write_level(folder: Path, visit: int, users: int, requests: int, start: int, rng: np.random.Generator) -> int:
    """Write one level; when it ended."""
    rows = _rows(visit, users, requests, start, rng)
    (folder / "records").mkdir(parents=True)
    parts = []
    for number, first in enumerate(range(0, requests, PART_ROWS)):
        parts.append(folder / "records" / f"part-{number:05d}.parquet")
        part, metadata = rows[first : first + PART_ROWS], {SCHEMA_KEY: version_of(rows.columns)}
        part.write_parquet(parts[-1], compression="lz4", metadata=metadata)
    failed = int((rows["outcome"] == 1).sum())
    end = int(rows["end_ns"].to_numpy().max())
    setting = {"kind": "closed", "concurrency": users, "passes": None, "count": requests, "duration_s": None}
    meta: dict[str, Any] = {
        "schema": 1, "visit": visit, "setting": setting, "state": "done", "stop_reason": "count", "start_ns": start,
        "close_ns": int(rows["due_ns"].to_numpy().max()) + 1, "end_ns": end, "due": requests, "sent": requests,
        "rows": requests, "outcomes": {"ok": requests - failed, "http_error": failed}, "workers": 2, "cpu_ns": 10**9,
        "alerts": [],
    }  # fmt: skip
    meta["intervals"] = intervals(meta, scan(parts)).intervals
    (folder / "level.json").write_text(json.dumps(meta))
    return end


def _rows(visit: int, users: int, requests: int, start: int, rng: np.random.Generator) -> pl.DataFrame:
    """Slots that send again when their answer came, slower with more of them; in the order of their due times."""
    each = -(-requests // users)
    service_s = rng.lognormal(np.log(0.5 + 0.06 * users), 0.3, (users, each))
    ended_s = np.cumsum(service_s, axis=1)
    begun = (ended_s - service_s).ravel()
    order = np.argsort(begun, kind="stable")[:requests]
    slot = np.repeat(np.arange(users), each)[order]
    due = start + (begun[order] * 1e9).astype(np.int64)
    fired = due + rng.integers(500, 3000, requests)
    sent = fired + rng.integers(500, 30_000, requests)
    end = np.maximum(start + (ended_s.ravel()[order] * 1e9).astype(np.int64), sent + 1000)
    first, took, tokens = sent + (end - sent) // 10, end - sent, rng.integers(20, 200, requests)
    columns: dict[str, Any] = {
        "visit": np.full(requests, visit), "seq": np.arange(requests), "row": rng.integers(0, 100, requests),
        "worker": slot % 2, "conn": slot, "due_ns": due, "fired_ns": fired, "sent_ns": sent, "first_byte_ns": first,
        "first_token_ns": first, "first_output_ns": first, "last_token_ns": end - 1000, "end_ns": end,
        "events": tokens, "tokens_in": rng.integers(50, 500, requests), "tokens_out": tokens + 1,
        "bytes_in": tokens * 40, "bytes_out": np.full(requests, 500), "itl_min_ns": took // 400,
        "itl_mean_ns": took // 200, "itl_p50_ns": took // 200, "itl_p99_ns": took // 50, "itl_max_ns": took // 40,
        "outcome": (rng.random(requests) < 0.001).astype(np.uint8), **dict.fromkeys(ZEROS, np.zeros(requests)),
    }  # fmt: skip
    columns["status"] = np.where(columns["outcome"] == 1, 500, 200)
    kinds = {name: kind for name, kind in record_dtypes().items() if name not in (EVENTS, *SERVER_TIMES)}
    none = [None] * requests
    return pl.DataFrame({name: pl.Series(name, columns.get(name, none)).cast(kind) for name, kind in kinds.items()})
