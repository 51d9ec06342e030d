"""Levels of which not every request has a row: what their seconds and histograms tell of all of them.

Counts are exact. Times are exact to the width of a bucket (0.8 %), and so are shares within a bound, for which requests
are taken to lie evenly inside the bucket that the bound falls into. Both are by the second in which a request was due,
so the window of such a level begins and ends with a whole second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.analysis.metrics import METRICS, NS_PER_S, by_second
from gpusize.records.schema import OUTCOMES

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = [
    "COUNTED",
    "attainment",
    "histogram_count",
    "histogram_mean",
    "histogram_quantiles",
    "in_window",
    "outcomes_due",
]

COUNTED: Final = frozenset(by_second())
"""Metrics of which the engine keeps histograms."""


def in_window(level: LevelData, frame: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of seconds or histograms of a single visit that lie in its steady intervals, in whole seconds."""
    import polars as pl

    if "second" not in frame.collect_schema():
        return frame
    start_ns = int(level.meta.get("start_ns") or 0)
    second = pl.col("second")
    steady = [i for i in level.intervals if i["name"] == "steady"]
    if not steady:
        return frame
    spans = [
        (round((i["start_ns"] - start_ns) / NS_PER_S), math.ceil((i["end_ns"] - start_ns) / NS_PER_S)) for i in steady
    ]
    return frame.filter(pl.any_horizontal(*((second >= low) & (second < high) for low, high in spans)))


def outcomes_due(level: LevelData) -> dict[str, int]:
    """How the requests due in the steady window ended, by outcome; those that occurred."""
    import polars as pl

    found: dict[str, int] = {}
    for visit in level.visits():
        if visit.seconds is None:
            continue
        sums = in_window(visit, visit.seconds).select(pl.col(f"due_{name}").sum() for name in OUTCOMES).collect()
        for name in OUTCOMES:
            found[name] = found.get(name, 0) + int(sums[f"due_{name}"].item() or 0)
    return {name: n for name, n in found.items() if n}


class _Buckets:
    """One histogram: bounds in ns and counts, ascending."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.low: NDArray[np.int64] = frame["low_ns"].to_numpy()
        self.high: NDArray[np.int64] = frame["high_ns"].to_numpy()
        self.count: NDArray[np.int64] = frame["count"].to_numpy()


def _buckets(level: LevelData, name: str, *, steady: bool, stream: int | None) -> _Buckets | None:
    import polars as pl

    frames = []
    for visit in level.visits():
        if visit.histograms is None:
            continue
        frame = visit.histograms.filter((pl.col("metric") == name) & (pl.col("count") > 0))
        if steady:
            frame = in_window(visit, frame)
        if stream is not None and "stream" in frame.collect_schema():
            frame = frame.filter(pl.col("stream") == stream)
        frames.append(frame.select("low_ns", "high_ns", pl.col("count").cast(pl.Int64)))
    if not frames:
        return None
    merged = pl.concat(frames).group_by("low_ns", "high_ns").agg(pl.col("count").sum()).sort("low_ns").collect()
    return None if merged.is_empty() else _Buckets(merged)


def histogram_quantiles(
    level: LevelData, name: str, probs: Sequence[float], *, steady: bool = True, stream: int | None = None
) -> list[float | None]:
    """Quantiles in seconds from the engine's histograms; None without one.

    Each is the middle of the bucket that holds the request of that rank, the maximum its upper end, so the error is
    half a bucket's width.

    Args:
        level: a visit, or pooled ones.
        name: a metric.
        probs: probabilities in [0, 1].
        steady: only what was due in the steady window, where the histograms know when that was.
        stream: only one stream, where they know that.
    """
    import numpy as np

    found = _buckets(level, name, steady=steady, stream=stream)
    if found is None:
        return [None] * len(probs)
    reached = np.cumsum(found.count)
    values: list[float | None] = []
    for prob in probs:
        k = int(np.searchsorted(reached, max(1, math.ceil(prob * int(reached[-1])))))
        middle_ns = (float(found.low[k]) + float(found.high[k])) / 2
        values.append((float(found.high[k]) if prob >= 1 else middle_ns) / NS_PER_S)
    return values


def histogram_count(level: LevelData, name: str) -> int | None:
    """How many requests due in the steady window have a metric; None where no histograms were kept."""
    found = _buckets(level, name, steady=True, stream=None)
    if found is None:
        return None if all(visit.histograms is None for visit in level.visits()) else 0
    return int(found.count.sum())


def histogram_mean(level: LevelData, name: str) -> float | None:
    """Mean in seconds from the engine's histograms over the steady window, by the middles of the buckets."""
    import numpy as np

    found = _buckets(level, name, steady=True, stream=None)
    if found is None:
        return None
    return float(np.average((found.low + found.high) / 2, weights=found.count)) / NS_PER_S


def attainment(level: LevelData, slo: Slo) -> tuple[float, int] | None:
    """Share of the requests due in the window within an SLO, and how many were judged; None where seconds cannot tell.

    As ``Slo.attainment`` over records: every outcome but ok is a miss, cancelled ones count nowhere, as do those that
    ended ok without the metric.
    """
    outcomes = outcomes_due(level)
    asked = sum(n for name, n in outcomes.items() if name != "cancelled")
    ok = outcomes.get("ok", 0)
    if slo.kind == "share":
        missed = asked - ok if slo.metric in ("ok", "error") else outcomes.get(slo.metric, 0)
        return ((asked - missed) / asked, asked) if asked else (math.nan, 0)
    if slo.metric not in by_second("ok") or METRICS[slo.metric].table != "records":
        return None
    found = _buckets(level, slo.metric, steady=True, stream=None)
    known = 0 if found is None else int(found.count.sum())
    judged = asked - max(0, ok - known)
    if found is None or not judged:
        return (math.nan, 0) if ok or not asked else (0.0, asked)
    below = _below(found, slo.bound * NS_PER_S)
    within = below if slo.op in ("<=", "<") else known - below
    return within / judged, judged


def _below(found: _Buckets, bound_ns: float) -> float:
    """How many lie below a bound, by interpolation inside the bucket that it falls into."""
    import numpy as np

    # Both bounds of a bucket belong to it.
    share = np.clip((bound_ns - found.low + 1) / (found.high - found.low + 1), 0.0, 1.0)
    return float((found.count * share).sum())
