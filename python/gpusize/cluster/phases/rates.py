"""How many pods and workloads were scheduled a second, and how many GPUs were taken when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.timelines import POD, UNTOLD
from gpusize.cluster.tables import CLIENT_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["Occupancy", "Throughput", "gpus_per_pod", "occupancy", "throughput", "total_gpus"]

_NS: Final = 1e9
_ENDS: Final = ("succeeded", "failed", "evicted", "deleted")


@dataclass(frozen=True, slots=True, eq=False)
class Throughput:
    """How many came to their end when.

    Attributes:
        n: that came to their end.
        begin_ns: of the time that counts: the first submission.
        elapsed_s: from there to the last end; what is idle after it does not count.
        idle_s: from the last end to the last look.
        counts: that came to their end in each second after ``begin_ns``, empty ones included; shape (m,). Where the
            last end is on a whole second, that second is one of its own.
        per_s: rate in each second; the last, which is cut off, over its own length, and left out where that is short;
            shape (m,) or (m - 1,).
    """

    n: int
    begin_ns: int
    elapsed_s: float
    idle_s: float
    counts: NDArray[np.int64]
    per_s: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """All of them over the time that counts, per second; NaN where there is none."""
        return self.n / self.elapsed_s if self.elapsed_s > 0 else float("nan")

    @property
    def most(self) -> float:
        """How many ended in the second with the most: a count, also of the last, which scaled up would be a guess."""
        return float(self.counts.max())


def throughput(times_ns: NDArray[np.int64], begin_ns: int, look_ns: int | None) -> Throughput | None:
    """The rate at which things came to their end.

    Args:
        times_ns: their ends; shape (n,), any order.
        begin_ns: the first submission, by the same clock.
        look_ns: the last look, by the same clock.

    Returns:
        None where nothing ended after the begin.
    """
    import numpy as np

    after = np.sort(times_ns[times_ns >= begin_ns])
    if after.size == 0:
        return None
    elapsed = float(after[-1] - begin_ns) / _NS
    # An end on a whole second, as all are where stamps have no parts of one, is of the second that begins there.
    bins = int(elapsed) + 1
    counts = np.bincount(((after - begin_ns) // int(_NS)).astype(np.int64), minlength=bins)
    lengths = np.ones(bins)
    lengths[-1] = 1.0 if elapsed.is_integer() else elapsed - (bins - 1)
    # A second that was cut off after its first hundredths says nothing of a rate.
    kept = bins if lengths[-1] >= 0.1 or bins == 1 else bins - 1
    idle = max(0.0, (look_ns - float(after[-1])) / _NS) if look_ns is not None else 0.0
    per_s = counts[:kept] / lengths[:kept]
    return Throughput(int(after.size), begin_ns, elapsed, idle, counts, per_s)


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """GPUs taken over time.

    Attributes:
        times_s: after the begin, at which it changed; shape (m,).
        gpus: taken from then on; shape (m,).
        total: GPUs of the cluster; None where nobody said.
        until_s: the end, after the begin.
    """

    times_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    total: float | None
    until_s: float

    @property
    def mean(self) -> float:
        """GPUs taken on average, until the end."""
        import numpy as np

        lengths = np.diff(np.append(self.times_s, self.until_s))
        whole = float(self.until_s - self.times_s[0])
        return float(lengths @ self.gpus) / whole if whole > 0 else float("nan")


def occupancy(
    objects: pl.DataFrame, begin_ns: int, look_ns: int, gpus_each: float, total: float | None, clock: str = CLIENT_CLOCK
) -> Occupancy | None:
    """GPUs that pods took, each from its binding (or scheduling) to its end.

    Args:
        objects: of `gpusize.cluster.phases.timelines.object_moments`.
        begin_ns, look_ns: first submission and last look, by ``clock``.
        gpus_each: GPUs that a pod asks for.
        total: of the cluster.
        clock: the timeline.
    """
    import numpy as np
    import polars as pl

    pods = objects.filter(pl.col("kind") == POD, pl.col("clock") == clock)
    # A binding that a list alone shows was at any time before: the decision, which has a time, stands for it.
    timed = pl.col("at").filter(pl.col("source") != UNTOLD)
    taken = (
        pods.filter(pl.col("moment").is_in(("bound", "scheduled")))
        .group_by("object")
        .agg(pl.coalesce(timed.max(), pl.col("at").max()).alias("at"))
    )
    left = pods.filter(pl.col("moment").is_in(_ENDS)).group_by("object").agg(pl.col("at").min().alias("end"))
    both = taken.join(left, on="object", how="left").with_columns(
        pl.col("end").fill_null(look_ns).clip(upper_bound=look_ns)
    )
    both = both.filter(pl.col("end") > pl.col("at"))
    if both.is_empty() or gpus_each <= 0:
        return None
    times = np.concatenate((both["at"].to_numpy(), both["end"].filter(both["end"] < look_ns).to_numpy()))
    steps = np.concatenate((np.ones(both.height), -np.ones(times.size - both.height))) * gpus_each
    order = np.argsort(times, kind="stable")
    moments, places = np.unique(times[order], return_index=True)
    sums = np.add.reduceat(steps[order], places)
    begin = min(begin_ns, int(moments[0]))
    at = np.concatenate(([0.0], (moments - begin) / _NS))
    return Occupancy(at, np.concatenate(([0.0], np.cumsum(sums))), total, (look_ns - begin) / _NS)


def gpus_per_pod(facts: Mapping[str, Any]) -> float:
    """GPUs that each pod asks for, as `submit` noted it; 0 where it did not."""
    told = facts.get("submit") or {}
    either = (told.get("gpus"), (told.get("options") or {}).get("num_gpus"))
    return next((float(each) for each in either if isinstance(each, int | float)), 0.0)


def total_gpus(facts: Mapping[str, Any]) -> float | None:
    """GPUs of the cluster, as sampling saw its nodes (``sample.gpus``); None where nobody said."""
    noted = (facts.get("sample") or {}).get("gpus")
    return float(noted) if isinstance(noted, int | float) and noted > 0 else None
