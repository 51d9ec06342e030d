"""Whether the replicas of a run are alike: their service times, held against each other level by level.

Of two replicas, at each load: the medians of the service times of those requests that ended ok, and whether one's times
lie above the other's beyond chance, by ranks (Mann and Whitney, Annals of Mathematical Statistics 18, 1947). One slow
moment, or one level, is no difference: the same replica has to be slower at most of the levels that tell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.analysis.proof.blocks import correlation_length
from gpusize.base.text import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["CLEARLY", "UnlikeReplicas", "unlike_replicas"]

CLEARLY: Final = 1.3
"""A replica whose times are so many times another's at like load is not like it."""
LEAST: Final = 20
"""Requests of a replica at a level that say something of it."""
SURE: Final = 4.0
"""Standard errors of the rank sums of all levels together: chance alone comes as far once in 16,000 pairs."""
SEEN: Final = 2.0
"""Standard errors at a level that counts as one at which a replica was slower."""
MOST: Final = 0.6
"""Share of the levels at which it has to be."""
FEWEST: Final = 2
"""Levels that tell: at one alone a queue before either of two equal ones may last as long as the level."""


@dataclass(frozen=True, slots=True)
class UnlikeReplicas:
    """Two replicas of a run that are not alike: those that differ most.

    Attributes:
        slow, fast: their addresses.
        slow_s, fast_s: medians of their service times at ``level``, seconds.
        level: the lightest load at which they were clearly apart, in words.
        levels: at how many levels the one was clearly slower.
        of: how many tell.
    """

    slow: str
    fast: str
    slow_s: float
    fast_s: float
    level: str
    levels: int
    of: int

    def __str__(self) -> str:
        return (
            f"replicas are not alike: {self.level} {shown(self.slow, 80)} took {_time(self.slow_s)} in the median and "
            f"{shown(self.fast, 80)} {_time(self.fast_s)}, and it was the slower one at {self.levels} of {self.of} "
            f"level{'' if self.of == 1 else 's'}. It is slower, or was sent longer requests; figures of them together "
            "say nothing of replicas that are all like one of them"
        )


@dataclass(frozen=True, slots=True)
class _Apart:
    """Two replicas at one level: how many times as long the first one's times are, and by how many standard errors."""

    times: float
    errors: float
    medians: tuple[float, float]
    level: str


def unlike_replicas(levels: Iterable[LevelData]) -> UnlikeReplicas | None:
    """The two replicas of a run that differ most, where they differ clearly; None where none do, or nothing tells.

    Args:
        levels: single visits of one run.
    """
    names: list[str] = []
    pairs: dict[tuple[int, int], list[_Apart]] = {}
    for level in levels:
        targets = level.source.get("targets") or []
        if level.imported or level.state != "done" or len(targets) < 2:
            continue
        names = names or [str(target.get("url") or "") for target in targets]
        for pair, apart in _apart(level).items():
            pairs.setdefault(pair, []).append(apart)
    found = [each for pair, looks in pairs.items() for each in _both_ways(pair, looks, names)]
    return max(found, key=lambda each: each.slow_s / each.fast_s, default=None)


def _both_ways(pair: tuple[int, int], looks: list[_Apart], names: list[str]) -> list[UnlikeReplicas]:
    made = []
    for sign in (1, -1):
        slow, fast = pair[::sign]
        clear = [each for each in looks if each.times**sign > CLEARLY and sign * each.errors > SEEN]
        together = sign * sum(each.errors for each in looks) / math.sqrt(len(looks))
        most = len(looks) >= FEWEST and len(clear) >= MOST * len(looks)
        if most and together > SURE and max(pair) < len(names):
            # Under a heavy load a slow replica's queue is what differs most.
            light = min(clear, key=lambda each: max(each.medians))
            slow_s, fast_s = light.medians[::sign]
            made.append(UnlikeReplicas(names[slow], names[fast], slow_s, fast_s, light.level, len(clear), len(looks)))
    return made


def _apart(level: LevelData) -> Mapping[tuple[int, int], _Apart]:
    """Each two replicas of a level of which both have enough requests."""
    import numpy as np
    import polars as pl

    service = (pl.col("end_ns") - pl.col("sent_ns")).cast(pl.Float64).alias("service") / 1e9
    rows = level.ok("target").sort("due_ns").select("target", service).drop_nulls().collect(engine="streaming")
    times = {
        int(key[0]): part["service"].to_numpy()
        for key, part in rows.partition_by("target", as_dict=True, maintain_order=True).items()
    }
    where = f"with {level.concurrency} in flight" if level.concurrency is not None else f"at {level.rate or 0:g}/s"
    found = {}
    for first, second in itertools.combinations(sorted(k for k, each in times.items() if each.size >= LEAST), 2):
        a, b = times[first], times[second]
        medians = float(np.median(a)), float(np.median(b))
        if min(medians) > 0:
            found[first, second] = _Apart(medians[0] / medians[1], _rank_errors(a, b), medians, where)
    return found


def _rank_errors(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """By how many standard errors the ranks of ``a`` among both lie above what chance gives; ties in any order.

    Where requests queue, one that is slow tells of the next: of such there are as many fewer as they are correlated.

    Args:
        a: times of one replica, in the order in which they were due.
        b: of the other.
    """
    import numpy as np

    ranks = np.empty(a.size + b.size)
    ranks[np.argsort(np.concatenate([a, b]), kind="stable")] = np.arange(1, ranks.size + 1)
    mean = a.size * (ranks.size + 1) / 2
    alike = max(correlation_length([ranks[: a.size]]), correlation_length([ranks[a.size :]]))
    return float(ranks[: a.size].sum() - mean) / math.sqrt(mean * b.size / 6 * alike)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
