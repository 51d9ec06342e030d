"""Percentiles of a window from what the buckets of histograms rose by in it.

The buckets of all replicas are added before a percentile is read: percentiles themselves cannot be averaged. What is
known is the bucket that the observation of that rank lies in; inside it the value is interpolated in a straight line,
as ``histogram_quantile`` does. Resets are those of a series as a whole: when one bucket fell, all began again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpusize.analysis.series.course import Course, courses, single_name

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["BucketRise", "Percentile", "bucket_rises"]

Window = tuple[int, int]


class Percentile(NamedTuple):
    """A percentile out of buckets.

    Attributes:
        value: interpolated inside the bucket; None where the bucket has no upper bound.
        low: lower bound of the bucket; the observation of that rank is above it, or equal where it is the least.
        high: upper bound; infinite for the last bucket.
    """

    value: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BucketRise:
    """What the buckets of all series rose by in a window.

    Attributes:
        window: its begin and end, in ns by the server's clock.
        bounds: upper bounds, ascending; the last is infinite.
        counts: observations at or below each bound, of all series.
        series: how many had something to tell.
        unknown: how many of them are not in the counts: a border of the window lies in a gap of theirs.
        resets: how often one of them began again.
        born: observations that series which began inside the window had before their first sample; not in the counts.
    """

    window: Window
    bounds: NDArray[np.float64]
    counts: NDArray[np.float64]
    series: int
    unknown: int
    resets: int
    born: float

    @property
    def count(self) -> float:
        """Observations in the window."""
        return float(self.counts[-1]) if self.counts.size else 0.0

    def percentile(self, share: float) -> Percentile | None:
        """The observation of which this share is at or below; None without observations.

        Args:
            share: in [0, 1]; 0.95 for the 95th percentile.

        Raises:
            ValueError: another share.
        """
        import numpy as np

        if not 0 <= share <= 1:
            raise ValueError(f"a share must be in [0, 1], not {share}")
        if not self.count > 0:
            return None
        rank = share * self.count
        # Counts are sums of differences of floats: a rank that is a whole count must not fall behind it.
        found = int(np.searchsorted(self.counts, max(rank, 0.0) * (1 - 1e-12), "left"))
        while self.counts[found] <= 0:
            found += 1
        high = float(self.bounds[found])
        below = float(self.counts[found - 1]) if found else 0.0
        low = float(self.bounds[found - 1]) if found else (0.0 if high > 0 else -math.inf)
        if math.isinf(high) or math.isinf(low):
            return Percentile(None, low, high)
        inside = float(self.counts[found]) - below
        return Percentile(low + (high - low) * min(1.0, max(0.0, rank - below) / inside), low, high)

    def share_within(self, bound: float) -> tuple[float, float] | None:
        """Which share of the observations lies at or below a bound: at least, and at most; None without observations.

        The two are equal where it is a bound of the buckets.
        """
        import numpy as np

        if not self.count > 0:
            return None
        at = int(np.searchsorted(self.bounds, bound, "right")) - 1
        least = float(self.counts[at]) / self.count if at >= 0 else 0.0
        if at >= 0 and self.bounds[at] == bound:
            return least, least
        return least, float(self.counts[at + 1]) / self.count


def bucket_rises(
    frame: pl.DataFrame | pl.LazyFrame,
    windows: Sequence[Window],
    *,
    name: str | None = None,
    stale_after_s: float | None = None,
) -> list[BucketRise]:
    """What the buckets of a histogram rose by, all series together, window by window.

    Where series differ in their bounds, or samples of a native histogram do, those bounds are left that all know: which
    have the bound, or the same count on both sides of it.

    Args:
        frame: samples; those without ``le`` are passed over.
        windows: begin and end, in ns by the server's clock; a sample at the begin belongs to the window before.
        name: of the histogram; None where the frame has no other.
        stale_after_s: how old the last sample before a border may be; None for three times the median distance of the
            series' samples.

    Raises:
        ValueError: the frame has several names.
    """
    import polars as pl

    rows = single_name(frame.lazy().filter(pl.col("le").is_not_null()), name)
    if rows.is_empty():
        return [_nothing(window) for window in windows]
    begin_ns = int(rows["t_ns"].min())  # type: ignore[arg-type]
    tables = [_table(course, mine) for course, mine in courses(rows, stale_after_s)]
    return [_added(window, [_one(table, window, begin_ns) for table in tables]) for window in windows]


class _Table(NamedTuple):
    """One series: a row for each time, a column for each bound; NaN where a count is not known."""

    course: Course
    bounds: NDArray[np.float64]
    counts: NDArray[np.float64]


class _Rise(NamedTuple):
    bounds: NDArray[np.float64]
    counts: NDArray[np.float64] | None
    resets: int
    born: float


def _table(course: Course, mine: pl.DataFrame) -> _Table:
    import numpy as np

    bounds = mine["le"].unique().sort().to_numpy()
    counts = np.full((course.t_ns.size, bounds.size), np.nan)
    row = np.searchsorted(course.t_ns, mine["t_ns"].to_numpy())
    column = np.searchsorted(bounds, mine["le"].to_numpy())
    counts[row, column] = mine["value"].to_numpy()
    return _Table(course, bounds, _filled(counts))


def _filled(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts at bounds that a sample has not: known where those on both sides are equal, as nothing lies between."""
    import numpy as np

    holes = np.isnan(counts)
    if not holes.any():
        return counts
    places = np.arange(counts.shape[1])
    before = np.maximum.accumulate(np.where(holes, -1, places), axis=1)
    behind = np.minimum.accumulate(np.where(holes, counts.shape[1], places)[:, ::-1], axis=1)[:, ::-1]
    padded = np.concatenate([np.zeros((counts.shape[0], 1)), counts, np.full((counts.shape[0], 1), np.nan)], axis=1)
    low = np.take_along_axis(padded, before + 1, axis=1)
    high = np.take_along_axis(padded, behind + 1, axis=1)
    return np.where(holes, np.where(low == high, low, np.nan), counts)


def _one(table: _Table, window: Window, begin_ns: int) -> _Rise | None:
    import numpy as np

    start, end = table.course.place(window[0]), table.course.place(window[1])
    if end.at < 0 or (end.at == start.at and end.last):
        return None
    if not (start.known and end.known and end.at > start.at):
        return _Rise(table.bounds, None, 0, 0.0)
    born = float(table.counts[0, -1]) if start.at < 0 and table.course.born_after(begin_ns) else 0.0
    counts = table.counts[max(start.at, 0) : end.at + 1]
    known = ~np.isnan(counts).any(axis=0)
    counts = counts[:, known]
    steps = np.diff(counts, axis=0)
    fell = (steps < 0).any(axis=1)
    steps[fell] = counts[1:][fell]
    return _Rise(table.bounds[known], steps.sum(axis=0), int(fell.sum()), born)


def _added(window: Window, found: list[_Rise | None]) -> BucketRise:
    import numpy as np

    there = [each for each in found if each is not None]
    known = [each for each in there if each.counts is not None]
    if not known:
        nothing = _nothing(window)
        return BucketRise(window, nothing.bounds, nothing.counts, len(there), len(there), 0, 0.0)
    every = np.unique(np.concatenate([each.bounds for each in known]))
    table = np.full((len(known), every.size), np.nan)
    for row, each in enumerate(known):
        table[row, np.searchsorted(every, each.bounds)] = each.counts
    table = _filled(table)
    common = ~np.isnan(table).any(axis=0)
    return BucketRise(
        window,
        every[common],
        # Pages that are written while requests end may have a count that is below the one before it.
        np.maximum.accumulate(table[:, common].sum(axis=0)),
        len(there),
        len(there) - len(known),
        sum(each.resets for each in known),
        sum(each.born for each in known),
    )


def _nothing(window: Window) -> BucketRise:
    import numpy as np

    return BucketRise(window, np.array([], np.float64), np.array([], np.float64), 0, 0, 0, 0.0)
