"""What each replica did from one scrape to the next: rises of counters and of buckets, gauges at both ends.

A replica is told by the labels that all its series have: `instance`, `pod`, `engine` and the like, but not
`finished_reason`, which only one counter has. Series that differ in other labels are added.

Where a counter fell the process began again, and what it counted before that is lost: the step is left out, and so is
one over a gap. After a missed scrape a step is longer, and as true.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["GAP_INTERVALS", "Buckets", "Steps", "steps_of"]

GAP_INTERVALS: Final = 4.5
"""A step of more than so many times the median has a gap in it: the process may have ended meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """What the buckets of one histogram rose by in each step.

    Attributes:
        bounds: upper bounds, ascending, the last infinite; shape (b,).
        counts: observations at or below each bound, NaN where a replica does not have them; shape (n, b).
    """

    bounds: NDArray[np.float64]
    counts: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps from scrape to scrape of all replicas, n of them, by replica and time.

    Attributes:
        replicas: labels of each replica, as canonical JSON.
        replica: place in ``replicas``; shape (n,).
        begin_ns: time of the scrape before; shape (n,).
        end_ns: time of the scrape; shape (n,).
        gauges: values at begin and end by name, NaN where not known; shape (n, 2) each.
        rises: what counters rose by, by name, NaN likewise; shape (n,) each. Of a histogram ``NAME_sum`` and
            ``NAME_count`` too.
        buckets: by histogram.
        left_out: how many steps were left out, by why: ``reset`` or ``gap``.
        interval_s: median time between scrapes.
    """

    replicas: tuple[str, ...]
    replica: NDArray[np.int64]
    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    gauges: Mapping[str, NDArray[np.float64]]
    rises: Mapping[str, NDArray[np.float64]]
    buckets: Mapping[str, Buckets]
    left_out: Mapping[str, int]
    interval_s: float

    def __len__(self) -> int:
        return int(self.replica.size)

    @property
    def length_s(self) -> NDArray[np.float64]:
        """Length of each step, s; shape (n,)."""
        return (self.end_ns - self.begin_ns) / 1e9

    def rise(self, name: str) -> NDArray[np.float64]:
        """What a counter rose by in each step; NaN for one that nobody has. Shape (n,)."""
        import numpy as np

        return self.rises.get(name, np.full(len(self), np.nan))

    def gauge(self, name: str) -> NDArray[np.float64]:
        """A gauge at begin and end of each step; NaN for one that nobody has. Shape (n, 2)."""
        import numpy as np

        return self.gauges.get(name, np.full((len(self), 2), np.nan))


def steps_of(
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    gauges: Sequence[str],
    counters: Sequence[str],
    histograms: Sequence[str],
) -> Steps:
    """The steps of all replicas.

    Args:
        frame: samples, with the columns of ``gpusize.records.series.series_schema``.
        gauges: names to read; those that are not there are left out.
        counters: likewise.
        histograms: likewise, without ``_sum`` and ``_count``.
    """
    import numpy as np
    import polars as pl

    sums = [f"{name}{part}" for name in histograms for part in ("_sum", "_count")]
    wanted = [*gauges, *counters, *histograms, *sums]
    rows = frame.lazy().filter(pl.col("name").is_in(wanted) & pl.col("value").is_finite()).collect()
    rows = _by_replica(rows)
    found = [_Table(str(key), mine) for (key,), mine in rows.group_by(["replica"], maintain_order=True)]
    spaces = np.concatenate([np.diff(each.t_ns) for each in found]) if found else np.array([])
    median_ns = float(np.median(spaces)) if spaces.size else 0.0
    totals = {*counters, *sums}
    parts = [each.steps(median_ns, gauges, totals, set(histograms)) for each in found]
    bounds = {
        name: np.unique(np.concatenate([each.bounds[name] for each in found if name in each.bounds]))
        for name in histograms
        if any(name in each.bounds for each in found)
    }

    def joined(pieces: Sequence[NDArray[Any]], empty: tuple[int, ...]) -> NDArray[Any]:
        return np.concatenate(pieces) if pieces else np.empty(empty)

    return Steps(
        replicas=tuple(each.key for each in found),
        replica=np.concatenate([np.full(len(part.begin_ns), k) for k, part in enumerate(parts)]).astype(np.int64)
        if parts
        else np.empty(0, np.int64),
        begin_ns=joined([part.begin_ns for part in parts], (0,)).astype(np.int64),
        end_ns=joined([part.end_ns for part in parts], (0,)).astype(np.int64),
        gauges={name: joined([part.gauge(name) for part in parts], (0, 2)) for name in _there(gauges, rows)},
        rises={name: joined([part.rise(name) for part in parts], (0,)) for name in _there(sorted(totals), rows)},
        buckets={
            name: Buckets(each, joined([part.counts(name, each) for part in parts], (0, each.size)))
            for name, each in bounds.items()
        },
        left_out={why: sum(part.left_out[why] for part in parts) for why in ("reset", "gap")},
        interval_s=median_ns / 1e9,
    )


def _there(names: Sequence[str], rows: pl.DataFrame) -> list[str]:
    known = set(rows["name"].unique())
    return [name for name in names if name in known]


def _by_replica(rows: pl.DataFrame) -> pl.DataFrame:
    """One value for each replica, time, name and bound, series of other labels added."""
    import polars as pl

    texts = rows["labels"].unique().to_list()
    labels = {text: json.loads(text) for text in texts}
    common: set[str] = set.intersection(*(set(each) for each in labels.values())) if labels else set()
    keys = {text: _key(each, common) for text, each in labels.items()}
    told = pl.DataFrame(
        {"labels": list(keys), "replica": list(keys.values())}, schema={"labels": pl.String, "replica": pl.String}
    )
    by = ["replica", "t_ns", "name", "le"]
    once = rows.unique(["labels", "t_ns", "name", "le"], keep="last")
    return once.join(told, on="labels", how="left").group_by(by).agg(pl.col("value").sum()).sort(by, nulls_last=True)


def _key(labels: Mapping[str, str], common: Collection[str]) -> str:
    return json.dumps({name: labels[name] for name in sorted(common)}, ensure_ascii=False, separators=(",", ":"))


class _Table:
    """The scrapes of one replica: a row for each time, a column for each name, or name and bound."""

    def __init__(self, key: str, rows: pl.DataFrame) -> None:
        import numpy as np
        import polars as pl

        self.key = key
        self.t_ns: NDArray[np.int64] = rows["t_ns"].unique().sort().to_numpy()
        self.values: dict[str, NDArray[np.float64]] = {}
        self.bounds: dict[str, NDArray[np.float64]] = {}
        self.tables: dict[str, NDArray[np.float64]] = {}
        plain, bucket = rows.filter(pl.col("le").is_null()), rows.filter(pl.col("le").is_not_null())
        for (name,), mine in plain.group_by(["name"], maintain_order=True):
            column = np.full(self.t_ns.size, np.nan)
            column[np.searchsorted(self.t_ns, mine["t_ns"].to_numpy())] = mine["value"].to_numpy()
            self.values[str(name)] = column
        for (name,), mine in bucket.group_by(["name"], maintain_order=True):
            bounds = np.unique(mine["le"].to_numpy())
            table = np.full((self.t_ns.size, bounds.size), np.nan)
            at = np.searchsorted(self.t_ns, mine["t_ns"].to_numpy()), np.searchsorted(bounds, mine["le"].to_numpy())
            table[at] = mine["value"].to_numpy()
            self.bounds[str(name)], self.tables[str(name)] = bounds, table

    def steps(self, median_ns: float, gauges: Sequence[str], totals: set[str], histograms: set[str]) -> _Part:
        import numpy as np

        spaces = np.diff(self.t_ns)
        gap = spaces > GAP_INTERVALS * median_ns
        reset = np.zeros(spaces.size, np.bool_)
        rises = {name: np.diff(self.values[name]) for name in totals if name in self.values}
        tables = {name: np.diff(self.tables[name], axis=0) for name in histograms if name in self.tables}
        for rise in (*rises.values(), *tables.values()):
            # What is not known (NaN) did not fall.
            fell = rise < 0
            reset |= fell if fell.ndim == 1 else fell.any(axis=1)
        kept = ~(gap | reset)
        return _Part(
            self.t_ns[:-1][kept],
            self.t_ns[1:][kept],
            {
                name: np.stack([self.values[name][:-1], self.values[name][1:]], axis=1)[kept]
                for name in gauges
                if name in self.values
            },
            {name: rise[kept] for name, rise in rises.items()},
            {name: (self.bounds[name], table[kept]) for name, table in tables.items()},
            {"reset": int((reset & ~gap).sum()), "gap": int(gap.sum())},
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """The steps of one replica."""

    begin_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    gauges: Mapping[str, NDArray[np.float64]]
    rises: Mapping[str, NDArray[np.float64]]
    tables: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    left_out: Mapping[str, int]

    def gauge(self, name: str) -> NDArray[np.float64]:
        import numpy as np

        return self.gauges.get(name, np.full((self.begin_ns.size, 2), np.nan))

    def rise(self, name: str) -> NDArray[np.float64]:
        import numpy as np

        return self.rises.get(name, np.full(self.begin_ns.size, np.nan))

    def counts(self, name: str, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np

        table = np.full((self.begin_ns.size, bounds.size), np.nan)
        if name in self.tables:
            own, counts = self.tables[name]
            table[:, np.searchsorted(bounds, own)] = counts
        return table
