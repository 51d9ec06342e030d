"""Was the generator the limit of a level? Its CPU, what it lost by standing still, and what its lateness did.

Lateness counts by what it does to the figure: how much a percentile of the runtime is longer for it, where that is more
than the percentile's own error. So one late request of few says nothing, and a little lateness of all of them does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.metrics import NS_PER_S, metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = [
    "CPU_LIMIT",
    "LATE_FLOOR_S",
    "LATE_SHARE",
    "Longer",
    "generator_cpu",
    "generator_limits",
    "longer_by",
    "stalled_s",
]

REFUSED: Final = 0.5
"""Share of errors that the target answered with, from which it is the limit, whatever the generator did."""
CPU_LIMIT: Final = 0.8
"""Share of its cores from which the generator itself queues; a thread at 80 % already makes work wait for itself."""
CPU_LEAST_S: Final = 0.05
"""A level that is over sooner says nothing of the generator's CPU: its set-up and last part are most of it."""
STALL_SHARE: Final = 0.05
"""Share of a level's time that the generator may stand still: as much as the number in flight may be off."""
LATE_FLOOR_S: Final = 1e-3
"""Lateness below this is the noise of timers and of the scheduler."""
LATE_SHARE: Final = 0.01
"""A percentile that is longer by less than this share is read as the same."""
PROBS: Final = (0.5, 0.95, 0.99)
"""Percentiles of the runtime that must not be the generator's."""
Z: Final = 1.96


class Longer(NamedTuple):
    """What waiting before the first write did to a percentile of the runtime.

    Attributes:
        prob: which percentile, as a probability.
        by_s: by how much it is longer than it would be without the wait, seconds.
        value_s: the percentile, seconds.
        error_s: its own error, half the width of its 95 % interval by ranks, seconds; infinite where there are too few
            requests for one.
        n: requests that it is of.
    """

    prob: float
    by_s: float
    value_s: float
    error_s: float
    n: int

    @property
    def counts(self) -> bool:
        """Whether that is more than the percentile's own error, and more than noise."""
        return self.by_s > max(LATE_FLOOR_S, LATE_SHARE * self.value_s, self.error_s)

    def __str__(self) -> str:
        """In words."""
        error = f", more than its own error of {self.error_s:.2g} s" if self.error_s > 0 else ""
        return (
            f"p{self.prob * 100:g} of {self.n:,} runtimes is longer by {self.by_s:.3g} of {self.value_s:.3g} s{error}"
        )


def generator_limits(level: LevelData) -> list[str]:
    """In which ways the generator was the limit of one visit, each with what to do; empty where it was not."""
    texts: list[str] = []
    if _refused_at_once(level):
        return texts
    cpu, longer = generator_cpu(level), longer_by(level, "pacer_late")
    if cpu is not None and cpu > CPU_LIMIT:
        what = "give it more --workers, or a machine with more cores"
        texts.append(f"generator-limited: it used {cpu:.0%} of its cores, more than {CPU_LIMIT:.0%}: {what}")
    if stood := _stood_still(level):
        texts.append(f"generator-limited: {stood}")
    if longer is not None:
        what = "give it idle cores (--pin), more --workers, or ask for less"
        texts.append(f"generator-limited: it fired late, and {longer}: {what}")
    return texts


def _refused_at_once(level: LevelData) -> bool:
    """Whether the target itself answered most requests of a closed loop with errors.

    Errors come fast, and the next request goes out at once: that loads the generator, and says of the target that it
    does not carry so many.
    """
    if level.concurrency is None:
        return False
    outcomes = level.outcomes()
    refused = outcomes.get("http_error", 0) + outcomes.get("api_error", 0)
    return refused > REFUSED * sum(outcomes.values())


def generator_cpu(level: LevelData) -> float | None:
    """CPU time of the generator over elapsed time and workers; None for a very short level and where nobody says."""
    cpu_ns, start, end = (level.meta.get(key) for key in ("cpu_ns", "start_ns", "end_ns"))
    workers = level.meta.get("workers") or 1
    if cpu_ns is None or start is None or end is None or end - start < CPU_LEAST_S * NS_PER_S:
        return None
    return float((cpu_ns / NS_PER_S) / ((end - start) / NS_PER_S * workers))


def stalled_s(level: LevelData) -> float | None:
    """For how long the generator's threads stood still in one visit, on average; None where nobody says."""
    lost_ns = level.meta.get("stalled_ns")
    return None if lost_ns is None else float(lost_ns / NS_PER_S)


def _stood_still(level: LevelData) -> str:
    """For how long the generator's threads stood still, and what that may come from; empty where it says nothing."""
    lost_s, (start, end) = stalled_s(level), (level.meta.get(key) for key in ("start_ns", "end_ns"))
    if not lost_s or start is None or end is None or lost_s * NS_PER_S <= STALL_SHARE * (end - start):
        return ""
    longest_s = (level.meta.get("longest_stall_ns") or 0) / NS_PER_S
    took = f"it stalled for {lost_s:.3g} of {(end - start) / NS_PER_S:.3g} s"
    return f"{took}, at most {longest_s:.3g} s at once{_why_still(level)}"


def _why_still(level: LevelData) -> str:
    """Who kept it, as far as the machine tells, and what to do."""
    machine = level.meta.get("machine") or {}
    told = {
        "its cgroup was throttled": machine.get("throttled_ns") or 0,
        "the host took the machine's cores": machine.get("stolen_ns") or 0,
    }
    said = "; ".join(f"{what} for {ns / NS_PER_S:.3g} s" for what, ns in told.items() if ns > 0)
    todo = "it was stopped, or other processes used its cores: give it idle ones (--pin)"
    if (machine.get("throttled_ns") or 0) > 0:
        todo = "lift its CPU limit"
    elif said:
        todo = "use a machine with dedicated cores"
    return f" ({said}): {todo}" if said else f": {todo}"


def longer_by(level: LevelData, part: str) -> Longer | None:
    """The percentile of the runtime that a part of it, before the first write, makes longer the most; None for none.

    Args:
        level: one visit; of a sampled one the requests that have a row.
        part: ``pacer_late``, the generator's own, or ``no_connection``.
    """
    if level.imported or not level.due_known:
        return None
    return level.kept.once(("longer", part), lambda: _longer_by(level, part))


def _longer_by(level: LevelData, part: str) -> Longer | None:
    import numpy as np
    import polars as pl

    late, runtime = metric(part).raw(), metric("runtime").raw()
    rows = level.ok().select(late.cast(pl.Float64).alias("late"), runtime.cast(pl.Float64).alias("runtime"))
    found = rows.drop_nulls().collect(engine="streaming")
    if found.is_empty() or found["late"].max() <= LATE_FLOOR_S * NS_PER_S:  # type: ignore[operator]
        return None
    with_it = np.sort(found["runtime"].to_numpy()) / NS_PER_S
    without = np.sort((found["runtime"] - found["late"]).to_numpy()) / NS_PER_S
    each = [_longer(with_it, without, prob) for prob in PROBS]
    counting = [one for one in each if one.counts]
    return max(counting, key=lambda one: one.by_s / one.value_s) if counting else None


def _longer(with_it: NDArray[np.float64], without: NDArray[np.float64], prob: float) -> Longer:
    """One percentile with and without the wait, both sorted; shape (n,)."""
    import numpy as np

    n = with_it.size
    value, base = (float(np.quantile(each, prob)) for each in (with_it, without))
    # A distribution-free interval by ranks (David and Nagaraja 2003, Order Statistics, section 7.1).
    half = Z * math.sqrt(n * prob * (1 - prob))
    low, high = math.floor(n * prob - half), math.ceil(n * prob + half)
    known = low >= 1 and high <= n
    error = (without[high - 1] - without[low - 1]) / 2 if known else math.inf
    return Longer(prob, value - base, value, float(error), n)
