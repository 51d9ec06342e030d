"""Gaps between events with content, pooled over the requests of a level: the metric ``itl``.

Exact where the times of events were kept, over the steady requests that ended ok; else from the engine's histogram.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusize.analysis.histograms import histogram_mean, histogram_quantiles
from gpusize.analysis.metrics import NS_PER_S
from gpusize.records.schema import EVENTS, has_events, quantiles

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["gap_mean", "gap_quantiles"]

_GAP = "gap"


def gap_quantiles(level: LevelData, probs: Sequence[float]) -> tuple[list[float | None], str | None]:
    """Quantiles in seconds, None where nothing is known; and their source: ``events``, ``histogram`` or None.

    Args:
        level: a visit, or pooled ones, with records.
        probs: probabilities in [0, 1].
    """
    import polars as pl

    gaps = _gaps(level)
    if gaps is not None:
        values = quantiles(gaps, pl.col(_GAP), probs)
        if values[0] is not None:
            return [None if value is None else value / NS_PER_S for value in values], "events"
    values = histogram_quantiles(level, "itl", probs)
    return values, None if values[0] is None else "histogram"


def gap_mean(level: LevelData) -> float | None:
    """Their mean in seconds; None where nothing is known."""
    import polars as pl

    gaps = _gaps(level)
    mean = None if gaps is None else gaps.select(pl.col(_GAP).mean()).collect(engine="streaming").item()
    return histogram_mean(level, "itl") if mean is None else float(mean) / NS_PER_S


def _gaps(level: LevelData) -> pl.LazyFrame | None:
    """The gaps in ns; None where no visit kept the times of events."""
    import polars as pl

    times = pl.col(EVENTS)
    # Lists of times are as large as all else together, and wanted once: they are read where there are any.
    kept = [v.in_window(v.records) for v in level.visits() if v.folder is None or has_events(v.folder)]
    if not kept:
        return None
    several = pl.concat(kept).filter((pl.col("outcome") == "ok") & (times.list.len() > 1))
    return several.select(times.list.diff(null_behavior="drop").explode().alias(_GAP))
