"""The most that each side was seen to answer, whatever the load: a CPU with 48 threads beside a GPU with one.

The loads need not be equal, so that this says nothing of times. It is the highest rate of those measured: a side whose
largest level was not its limit can answer more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusize.analysis.compare.differences import difference
from gpusize.analysis.compare.figures import Measured, figure
from gpusize.analysis.compare.matching import Side, Turns, load_names, usable
from gpusize.analysis.compare.spent import over_runs
from gpusize.analysis.level import LevelData

__all__ = ["Most", "most"]

_RATE = "achieved rate"


@dataclass(frozen=True, slots=True)
class Most:
    """The highest rate of one side.

    Attributes:
        side: name.
        load: the load at which it was, of several runs the one of most of them.
        largest: whether that was the largest of its loads, so that more users may bring more.
        rate: requests/s: of several runs the geometric mean of the highest rate of each.
        low, high: its 95 % interval over runs; NaN with one run.
        runs: runs that have a rate.
        ratio: over the first side, with its 95 % interval; NaN where that has none. Of the first side 1.
        ratio_low, ratio_high: see there.
    """

    side: str
    load: str
    largest: bool
    rate: float
    low: float
    high: float
    runs: int
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan


def most(sides: Sequence[Side], in_turns: Mapping[str, Turns]) -> list[Most]:
    """The most of each side that has a rate, by its levels of closed loops; of all sides or of none by open ones.

    Args:
        sides: what is compared.
        in_turns: by side but the first, whether its runs make pairs with those of the first.
    """
    of = figure(_RATE)
    closed = all(any(level.concurrency is not None for level in usable(side)) for side in sides)
    best = [[_best(usable(Side(side.name, [run])), closed=closed) for run in side.runs] for side in sides]
    found = []
    for side, tops in zip(sides, best, strict=True):
        known = [top for top in tops if top is not None]
        if not known:
            continue
        one = over_runs(side.name, "", of, [value for value, _ in known])
        level = Counter(load_names([top.setting])[0] for _, top in known).most_common(1)[0][0]
        sizes = [_load(each) for each in usable(side) if (each.concurrency is not None) == closed]
        largest = any(_load(top) >= max(sizes) for _, top in known)
        ratio, low, high = 1.0, 1.0, 1.0
        if side is not sides[0]:
            a, b = ([None if top is None else Measured(top[0]) for top in each] for each in (best[0], tops))
            paired = in_turns.get(side.name) != "no"
            against = difference(side.name, "", of, a, b, paired=paired)
            ratio, low, high = (1 + each for each in (against.change, against.low, against.high))
        found.append(Most(side.name, level, largest, one.value, one.low, one.high, one.runs, ratio, low, high))
    return found


def _best(levels: Sequence[LevelData], *, closed: bool) -> tuple[float, LevelData] | None:
    of = figure(_RATE)
    known = [(of.measure(level).value, level) for level in levels if (level.concurrency is not None) == closed]
    return max((each for each in known if each[0] > 0), key=lambda each: each[0], default=None)


def _load(level: LevelData) -> float:
    return float(level.concurrency if level.concurrency is not None else level.rate or 0.0)
