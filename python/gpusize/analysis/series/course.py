"""One series in the course of time: its last sample at a moment, and whether there is a gap instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["STALE_INTERVALS", "Course", "Place", "courses", "single_name"]

STALE_INTERVALS: Final = 3.0
"""A sample counts for so many times the median distance of its series' samples, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a moment lies in a series.

    Attributes:
        at: index of the last sample at or before it; -1 before the first.
        known: False in a gap: the sample before is too old, and another comes later.
        fresh: whether that sample is not too old; False before the first.
        last: whether it is the series' last one.
    """

    at: int
    known: bool
    fresh: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Course:
    """The times of one series' samples, ascending.

    Attributes:
        labels: of the series.
        t_ns: times.
        stale_ns: how old a sample may be to count.
    """

    labels: str
    t_ns: NDArray[np.int64]
    stale_ns: float

    def place(self, moment_ns: int) -> Place:
        """Where a moment lies.

        After the last sample a series has ended, or its data has: what it rose by until then is known.
        """
        import numpy as np

        at = int(np.searchsorted(self.t_ns, moment_ns, "right")) - 1
        fresh = at >= 0 and moment_ns - int(self.t_ns[at]) <= self.stale_ns
        last = at == self.t_ns.size - 1
        return Place(at, fresh or at < 0 or last, fresh, last)

    def born_after(self, begin_ns: int) -> bool:
        """Whether it began later than the data did."""
        return int(self.t_ns[0]) - begin_ns > self.stale_ns


def single_name(frame: pl.DataFrame | pl.LazyFrame, name: str | None) -> pl.DataFrame:
    """The samples of one name, all of a frame's where it has one.

    Raises:
        ValueError: the frame has several names, and none was chosen.
    """
    import polars as pl

    lazy = frame.lazy() if name is None else frame.lazy().filter(pl.col("name") == name)
    rows = lazy.collect()
    if rows["name"].n_unique() > 1:
        raise ValueError(f"the frame has several names, such as {', '.join(rows['name'].unique().sort()[:2])}")
    return rows


def courses(rows: pl.DataFrame, stale_after_s: float | None) -> Iterator[tuple[Course, pl.DataFrame]]:
    """Each series with its samples, one for each time of it (and bound), ascending.

    Args:
        rows: samples of one name.
        stale_after_s: how old a sample may be to count; None for `STALE_INTERVALS`.
    """
    import numpy as np

    keys = ["labels", "t_ns", "le"]
    ordered = rows.unique(keys, keep="last").sort(keys, nulls_last=True)
    for (labels,), mine in ordered.group_by(["labels"], maintain_order=True):
        times = mine["t_ns"].unique(maintain_order=True).to_numpy()
        if stale_after_s is not None:
            stale_ns = stale_after_s * 1e9
        else:
            stale_ns = STALE_INTERVALS * float(np.median(np.diff(times))) if times.size > 1 else 0.0
        yield Course(str(labels), times, stale_ns), mine
