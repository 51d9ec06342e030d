"""Open loops in virtual time: arrivals of known processes, a queue with known servers, and run folders of them."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import frame

START_NS = 1_000_000_000
Floats = NDArray[np.float64]


def arrivals(process: str, rate: float, length_s: float, *, seed: int = 1, shape: float = 1.0) -> Floats:
    """Seconds after the start of a stream's arrivals."""
    rng = np.random.default_rng(seed)
    n = int(rate * length_s * 1.5 + 200 / shape)
    if process == "constant":
        times = np.arange(n) / rate
    else:
        gaps = rng.exponential(1.0, n) if process == "poisson" else rng.gamma(shape, 1 / shape, n)
        times = np.cumsum(gaps) / rate
    return times[times < length_s]


def same_seed_workers(rate: float, length_s: float, *, workers: int = 10, seed: int = 1) -> Floats:
    """Workers that draw gaps from one seed each and share their offset: every gap comes so many times in a row."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, int(rate * length_s / workers * 2) + 50)
    times = np.cumsum(np.repeat(gaps, workers))
    return times[times < length_s]


def served(due_s: Floats, service_s: Floats | float, servers: Sequence[tuple[float, int]] = ((0.0, 1),)) -> Floats:
    """When each request ends, first come first served; ``servers`` are (from when, how many), never fewer."""
    times = np.broadcast_to(np.asarray(service_s, dtype=float), due_s.shape)
    free = [at for at, more in _added(servers) for _ in range(more)]
    heapq.heapify(free)
    ends = np.empty(due_s.size)
    for k, (at, length) in enumerate(zip(due_s, times, strict=True)):
        ends[k] = max(at, heapq.heappop(free)) + length
        heapq.heappush(free, ends[k])
    return ends


def _added(servers: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    before = 0
    found = []
    for at, count in servers:
        found.append((at, count - before))
        before = count
    return found


def columns(
    due_s: Floats,
    end_s: Floats,
    *,
    sent_s: Floats | None = None,
    fired_s: Floats | None = None,
    start_ns: int = START_NS,
    **more: Any,
) -> dict[str, Any]:
    """Records of an open loop from seconds after its start; what is nan was never reached."""
    sent = due_s if sent_s is None else sent_s
    fired = due_s if fired_s is None else fired_s

    def ns(values: Floats) -> list[int | None]:
        return [None if np.isnan(value) else start_ns + round(value * 1e9) for value in values.tolist()]

    return {"due_ns": ns(due_s), "fired_ns": ns(fired), "sent_ns": ns(sent), "end_ns": ns(end_s), **more}


def meta_of(
    raw: pl.DataFrame, setting: Mapping[str, Any], visit: int, start_ns: int, length_s: float, **more: Any
) -> dict[str, Any]:
    """The contents of ``level.json``."""
    outcomes = {OUTCOMES[code]: n for code, n in raw["outcome"].value_counts().iter_rows()}
    ends = raw["end_ns"].drop_nulls().to_list()
    return {
        "schema": 1,
        "visit": visit,
        "setting": dict(setting),
        "state": "done",
        "stop_reason": "duration",
        "start_ns": start_ns,
        "close_ns": start_ns + round(length_s * 1e9),
        "end_ns": max([start_ns + round(length_s * 1e9), *ends]),
        "due": raw.height,
        "sent": raw["sent_ns"].count(),
        "rows": raw.height,
        "outcomes": outcomes,
        "workers": 1,
        "cpu_ns": 0,
        "alerts": [],
        **more,
    }


def open_setting(rate: float, length_s: float, process: str = "poisson", **more: Any) -> dict[str, Any]:
    """The setting of an open level."""
    asked = {"kind": "open", "rate": rate, "process": process, "passes": None, "count": None, "duration_s": length_s}
    return {**asked, **more}


def write_level(
    place: Path,
    visit: int,
    given: Mapping[str, Any],
    setting: Mapping[str, Any],
    length_s: float,
    *,
    start_ns: int = START_NS,
    **more: Any,
) -> Path:
    """One level of a run folder; returns its folder."""
    raw = frame({**given, "visit": [visit] * len(given["due_ns"])})
    folder = place / "levels" / f"{visit:04d}"
    (folder / "records").mkdir(parents=True)
    raw.write_parquet(folder / "records" / "part-00000.parquet")
    meta = meta_of(raw, setting, visit, start_ns, length_s, **more)
    (folder / "level.json").write_text(json.dumps(meta))
    return folder


def write_run(place: Path, **more: Any) -> Path:
    """A run folder without levels."""
    place.mkdir(parents=True, exist_ok=True)
    target = {"url": "http://gpu-0/v1/chat/completions", "api": "openai-chat", "model": "m", "gpus": 1}
    known = {"schema": 1, "run": place.name, "targets": [{**target, "tls_verified": None, "simulated": None}]}
    rest = {"models": ["m"], "labels": {}, "dataset": {"sha256": "ab"}}
    (place / "run.json").write_text(json.dumps({**known, **rest, **more}))
    return place


def run_of(
    place: Path,
    due_s: Floats,
    end_s: Floats,
    setting: Mapping[str, Any],
    length_s: float,
    *,
    facts: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """A run of one open level; ``more`` goes to ``columns``, ``facts`` into ``level.json``."""
    write_run(place)
    write_level(place, 0, columns(due_s, end_s, **more), setting, length_s, **(facts or {}))
    return place


def sample_down(folder: Path, every: int) -> None:
    """Make a level sampled: 1 in ``every`` rows stays, seconds and histograms tell of all requests."""
    part = folder / "records" / "part-00000.parquet"
    rows = pl.read_parquet(part)
    file = folder / "level.json"
    meta = json.loads(file.read_text())
    start = meta["start_ns"]
    for name, frame_ in (("seconds", frame_seconds(rows, start)), ("histograms", frame_histograms(rows, start))):
        (folder / name).mkdir()
        # Two parts that add up, as the engine drains them every few seconds.
        frame_[: frame_.height // 2].write_parquet(folder / name / "part-00000.parquet")
        frame_[frame_.height // 2 :].write_parquet(folder / name / "part-00001.parquet")
    kept = rows.filter(pl.col("seq") % every == 0)
    kept.write_parquet(part)
    file.write_text(json.dumps({**meta, "sampled": every, "rows": kept.height}))


def _second(column: str, start: int) -> pl.Expr:
    return ((pl.col(column) - start) // 1_000_000_000).cast(pl.UInt32).alias("second")


def frame_seconds(rows: pl.DataFrame, start: int) -> pl.DataFrame:
    """The table of seconds that the engine would have written of all rows."""
    code = pl.col("outcome")
    frames = []
    for name, at in (("due", "due_ns"), ("sent", "sent_ns"), ("done", "end_ns")):
        known = rows.drop_nulls(at)
        frames.append(known.group_by(_second(at, start), "stream").agg(pl.len().cast(pl.UInt64).alias(name)))
    for place, outcome in enumerate(OUTCOMES):
        of = rows.filter(code == place)
        if of.is_empty():
            continue
        for name, at in ((outcome, "end_ns"), (f"due_{outcome}", "due_ns")):
            frames.append(of.group_by(_second(at, start), "stream").agg(pl.len().cast(pl.UInt64).alias(name)))
    return pl.concat(frames, how="diagonal").fill_null(0).sort("second", "stream")


def frame_histograms(rows: pl.DataFrame, start: int) -> pl.DataFrame:
    """The table of histograms, likewise."""
    ok = pl.col("outcome") == 0
    sent = pl.col("sent_ns").is_not_null()
    metrics = {
        "runtime": ("due_ns", "end_ns", ok),
        "service": ("sent_ns", "end_ns", ok),
        "ttft": ("due_ns", "first_token_ns", ok),
        "ttft_sent": ("sent_ns", "first_token_ns", ok),
        "lateness": ("due_ns", "sent_ns", sent),
        "pacer_late": ("due_ns", "fired_ns", sent),
        "no_connection": ("fired_ns", "sent_ns", sent),
    }
    frames = []
    for name, (low, high, which) in metrics.items():
        value = (pl.col(high) - pl.col(low)).alias("value")
        known = rows.filter(which).select(_second("due_ns", start), "stream", value).drop_nulls()
        frames.append(known.with_columns(pl.lit(name).alias("metric")))
    every = pl.concat(frames)
    values = every["value"].to_numpy()
    # The engine's buckets: 256 at first, then 128 per doubling; times below 2^9 ns are one.
    bits = np.maximum(np.ceil(np.log2(np.maximum(values, 1) + 1)).astype(np.int64) - 8, 9)
    lows = (values >> bits) << bits
    highs = lows + (np.int64(1) << bits) - 1
    made = every.with_columns(pl.Series("low_ns", lows), pl.Series("high_ns", highs))
    keys = ["metric", "second", "stream", "low_ns", "high_ns"]
    return made.group_by(keys).agg(pl.len().cast(pl.UInt64).alias("count")).sort(keys)
