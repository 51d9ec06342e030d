"""What counters rose by in windows, from their samples as they were stored.

The rise from one sample to the next is their difference, or the later one where that is smaller: the counter began
again at 0. What was counted between the last sample before such a reset and the reset is not known to anybody. A
window's rise is that from the last sample at or before its begin to the last at or before its end. Prometheus's
``increase`` looks at the samples inside the window alone and extrapolates to its borders; nothing is extrapolated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusize.analysis.series.course import courses, single_name

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["increases", "total_increases"]

Window = tuple[int, int]


def rises(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a counter rose by from each sample to the next, resets undone."""
    import numpy as np

    steps = np.diff(values)
    return np.where(steps < 0, values[1:], steps)


def increases(
    frame: pl.DataFrame | pl.LazyFrame,
    windows: Sequence[Window],
    *,
    name: str | None = None,
    stale_after_s: float | None = None,
) -> pl.DataFrame:
    """What each series of a counter rose by in each window.

    Args:
        frame: samples.
        windows: begin and end, in ns by the server's clock; a sample at the begin belongs to the window before.
        name: of the counter; None where the frame has no other.
        stale_after_s: how old the last sample before a border may be; None for three times the median distance of the
            series' samples.

    Returns:
        A row for each window and series that has a sample around it: ``start_ns``, ``end_ns``, ``labels``; ``value``,
        null where a border lies in a gap or no sample in the window; ``from_ns`` and ``to_ns``, the samples that it is
        between; ``rate``, per second: over the time between these where the series was there at both borders, else over
        the window; ``resets``; ``born``: the first value of a series that began inside the window, which is not part of
        ``value`` and was counted in it if the series began at 0; ``gap_s``, the longest time without a sample.

    Raises:
        ValueError: the frame has several names.
    """
    import polars as pl

    rows = single_name(frame, name)
    schema: dict[str, Any] = {
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "labels": pl.String,
        "value": pl.Float64,
        "rate": pl.Float64,
        "from_ns": pl.Int64,
        "to_ns": pl.Int64,
        "resets": pl.Int64,
        "born": pl.Float64,
        "gap_s": pl.Float64,
    }
    if rows.is_empty():
        return pl.DataFrame(schema=schema)
    begin_ns = int(rows["t_ns"].min())  # type: ignore[arg-type]
    found = []
    for course, mine in courses(rows, stale_after_s):
        values = mine["value"].to_numpy()
        found += [row for window in windows if (row := _one(course, values, window, begin_ns)) is not None]
    return pl.DataFrame(found, schema=schema, orient="row").sort("start_ns", "end_ns", "labels")


def _one(course: Any, values: NDArray[np.float64], window: Window, begin_ns: int) -> tuple[Any, ...] | None:
    import numpy as np

    start, end = course.place(window[0]), course.place(window[1])
    if end.at < 0 or (end.at == start.at and end.last):
        return None
    born = float(values[0]) if start.at < 0 and course.born_after(begin_ns) else 0.0
    first = max(start.at, 0)
    steps = np.diff(values[first : end.at + 1])
    times = course.t_ns[first : end.at + 1]
    spans = np.diff(times)
    known = start.known and end.known and end.at > start.at
    value = float(rises(values[first : end.at + 1]).sum()) if known else None
    both = start.at >= 0 and end.fresh
    over_s = (int(times[-1]) - int(times[0])) / 1e9 if both else (window[1] - window[0]) / 1e9
    rate = value / over_s if value is not None and over_s > 0 else None
    gap_s = float(spans.max()) / 1e9 if spans.size else 0.0
    return (*window, course.labels, value, rate, int(times[0]), int(times[-1]), int((steps < 0).sum()), born, gap_s)


def total_increases(
    frame: pl.DataFrame | pl.LazyFrame,
    windows: Sequence[Window],
    *,
    name: str | None = None,
    stale_after_s: float | None = None,
) -> pl.DataFrame:
    """What all series of a counter rose by together, window by window: replicas that came and went among them.

    Args:
        frame: samples.
        windows: as for `increases`.
        name: likewise.
        stale_after_s: likewise.

    Returns:
        One row a window: ``start_ns``, ``end_ns``; ``value`` and ``rate``, null where nothing is known of a series that
        was there, or there was none; ``known``, the sum of what is known; ``series``, and ``unknown`` among them;
        ``resets``, ``born``.
    """
    import polars as pl

    each = increases(frame, windows, name=name, stale_after_s=stale_after_s)
    asked = pl.DataFrame(
        {"start_ns": [low for low, _ in windows], "end_ns": [high for _, high in windows]},
        schema={"start_ns": pl.Int64, "end_ns": pl.Int64},
    )
    value, rate = pl.col("value"), pl.col("rate")
    sums = each.group_by("start_ns", "end_ns").agg(
        pl.when(value.null_count() == 0).then(value.sum()).alias("value"),
        pl.when(rate.null_count() == 0).then(rate.sum()).alias("rate"),
        value.sum().alias("known"),
        pl.len().cast(pl.Int64).alias("series"),
        value.null_count().cast(pl.Int64).alias("unknown"),
        pl.col("resets").sum(),
        pl.col("born").sum(),
    )
    counts = [pl.col(column).fill_null(0) for column in ("known", "series", "unknown", "resets", "born")]
    return asked.join(sums, on=["start_ns", "end_ns"], how="left", maintain_order="left").with_columns(counts)
