"""Gauges of several replicas at moments: each by its last sample, where that is not too old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from gpusize.analysis.series.course import courses, single_name

if TYPE_CHECKING:
    import polars as pl

__all__ = ["gauge_at"]

Across = Literal["sum", "mean", "max", "min"]
_ACROSS: Final = ("sum", "mean", "max", "min")


def gauge_at(
    frame: pl.DataFrame | pl.LazyFrame,
    times_ns: Sequence[int],
    across: Across = "sum",
    *,
    name: str | None = None,
    stale_after_s: float | None = None,
) -> pl.DataFrame:
    """A gauge at moments, its replicas added, averaged, or the largest or smallest of them.

    A replica counts from its first sample until its last one is too old. In a gap of one of them the figure is not
    known; before all, after all and between them it is null and never 0.

    Args:
        frame: samples.
        times_ns: moments, in ns by the server's clock.
        across: what is made of the replicas.
        name: of the gauge; None where the frame has no other.
        stale_after_s: how old a sample may be; None for three times the median distance of the series' samples.

    Returns:
        One row a moment: ``t_ns``; ``value``, null where nothing or not everything is known; ``series``, how many are
        in it; ``unknown``, how many are in a gap.

    Raises:
        ValueError: the frame has several names; another word for ``across``.
    """
    import numpy as np
    import polars as pl

    if across not in _ACROSS:
        raise ValueError(f"across must be one of {', '.join(_ACROSS)}, not {across}")
    rows = single_name(frame, name)
    moments = np.asarray(times_ns, np.int64)
    found, gaps = [np.empty((0, moments.size))], np.zeros(moments.size, np.int64)
    for course, mine in courses(rows, stale_after_s):
        values = np.concatenate([mine["value"].to_numpy(), [np.nan]])
        at = np.searchsorted(course.t_ns, moments, "right") - 1
        fresh = (at >= 0) & (moments - course.t_ns[np.maximum(at, 0)] <= course.stale_ns)
        gaps += (at >= 0) & (at < course.t_ns.size - 1) & ~fresh
        found.append(np.where(fresh, values[np.maximum(at, 0)], np.nan)[np.newaxis])
    table = np.concatenate(found)
    there = ~np.isnan(table)
    n = there.sum(axis=0)
    if across in ("sum", "mean"):
        value = np.where(there, table, 0.0).sum(axis=0) / (np.maximum(n, 1) if across == "mean" else 1)
    else:
        worst = -np.inf if across == "max" else np.inf
        value = getattr(np.where(there, table, worst), across)(axis=0, initial=worst)
    known = (n > 0) & (gaps == 0)
    return pl.DataFrame({"t_ns": moments, "value": value, "series": n.astype(np.int64), "unknown": gaps}).with_columns(
        pl.when(pl.Series(known)).then("value").alias("value")
    )
