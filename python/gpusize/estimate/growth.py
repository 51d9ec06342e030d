"""How the most requests/s grow with GPUs, instances or another count, for comparisons of grouped runs.

The most that a count answers is its capacity without an SLO: the throughput at which more users bring no more, or the
rate that is no longer kept up with. Runs are takes: where each of several has a capacity, their geometric mean counts,
and how much they differ. Closed and open loops are not mixed: a plateau of users and a rate that is kept up with are
not the same figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpusize.analysis.compare.matching import Side, usable
from gpusize.analysis.compare.scaling_law import Carried, Interval, ScalingLaw
from gpusize.analysis.compare.student import t_quantile
from gpusize.analysis.level import LevelData
from gpusize.analysis.pooling import pool
from gpusize.estimate.capacities import LEAST_SE, Capacity, capacities
from gpusize.estimate.isotonic import Z_95
from gpusize.estimate.laws import Count, Law, Point, ScalingFit, count_for
from gpusize.estimate.question import gpus_text

__all__ = ["LEAST_COUNTS", "growth"]

LEAST_COUNTS: Final = 3
"""Counts from which a law is told: two cannot tell one law from the other."""
_ANY: Final = ("targets", "models", "dataset")
_AHEAD: Final = 2
"""How far the curve is drawn beyond the largest count, as a multiple of it."""
_STEPS: Final = 10
_ABOVE: Final = 1.05
"""Of one of the largest count over one of the smallest: from here on it is more than in proportion."""


@dataclass(frozen=True, slots=True)
class _Most:
    """The most that a side answers, requests/s."""

    side: str
    count: int
    rate: float
    se: float
    runs: int


def growth(sides: Sequence[Side], counts: Mapping[str, int]) -> ScalingLaw:
    """The capacity of each count, and the law through them.

    Args:
        sides: groups of runs.
        counts: by side its count, the smallest first.
    """
    loops = ("closed", "open")
    tried = {loop: _capacities(sides, counts, closed=loop == "closed") for loop in loops}
    loop = max(loops, key=lambda each: len(tried[each][0]))
    most, missing = tried[loop]
    if not any(missing.values()) and not most:
        return ScalingLaw(why_not="nothing says how much any of them can answer", missing=missing)
    measured = [_carried(each, most[0]) for each in most]
    base = ScalingLaw(loop, measured, missing=missing)
    if len(most) < LEAST_COUNTS:
        known = {0: "none shows its most", 1: "one shows its most"}.get(len(most), f"{len(most)} show their most")
        return replace(base, why_not=f"it takes {LEAST_COUNTS} counts or more, and {known}")
    found = count_for([Point(each.count, each.rate, each.se) for each in most], max(each.rate for each in most))
    return _with_law(base, most, found)


def _with_law(base: ScalingLaw, most: Sequence[_Most], found: Count) -> ScalingLaw:
    law, fit = found.law, found.fit
    counts = [each.count for each in most]
    each = [most[0].rate / counts[0], most[-1].rate / counts[-1]]
    more = each[1] > _ABOVE * each[0]
    top = _AHEAD * counts[-1]
    steps = {round(counts[0] * (top / counts[0]) ** (k / _STEPS)) for k in range(_STEPS + 1)}
    return replace(
        base,
        name=law.name,
        one=_around(law.one, fit.one),
        sigma=_around(law.sigma, fit.sigma),
        kappa=_around(law.kappa, fit.kappa),
        peak=law.peak if math.isfinite(law.peak) else None,
        curve=[_said(n, law, fit, counts[0]) for n in sorted({*counts, *steps})],
        remark=f"{counts[-1]} carry more each than {counts[0]}, which no law has: the curve is a compromise"
        if more
        else "",
    )


def _said(n: int, law: Law, fit: ScalingFit, smallest: int) -> Carried:
    rate = _around(law.at(n), fit.capacity(n))
    base = law.at(smallest)
    up = Interval(*(x / base for x in (rate.value, rate.low, rate.high)))
    return Carried(n, rate, up, Interval(*(x * smallest / n for x in (up.value, up.low, up.high))))


def _around(value: float, ends: tuple[float, float]) -> Interval:
    """The interval of the USL around the value of the simplest law, which may lie at its edge."""
    return Interval(value, min(value, ends[0]), max(value, ends[1]))


def _carried(each: _Most, first: _Most) -> Carried:
    ideal = each.count / first.count
    ratio = each.rate / first.rate
    relative = math.hypot(each.se / each.rate, first.se / first.rate) if each is not first else 0.0
    up = Interval(ratio, ratio * math.exp(-Z_95 * relative), ratio * math.exp(Z_95 * relative))
    own = each.se / each.rate
    rate = Interval(each.rate, each.rate * math.exp(-Z_95 * own), each.rate * math.exp(Z_95 * own))
    return Carried(each.count, rate, up, Interval(*(x / ideal for x in (up.value, up.low, up.high))), each.runs)


def _capacities(
    sides: Sequence[Side], counts: Mapping[str, int], *, closed: bool
) -> tuple[list[_Most], dict[str, str]]:
    """The most that each side answers by its levels of one loop; and by side why that is not known."""

    def of(side: Side) -> list[LevelData]:
        found = [level for level in usable(side) if (level.concurrency is not None) == closed]
        return [replace(level, gpus=counts[side.name]) for level in found]

    known = [side for side in sides if of(side)]
    together = capacities([level for side in known for level in _pooled(of(side))], None, rate=True)
    pooled = {each.gpus: each for each in together.capacities}
    alone = {side.name: _takes(side, of) for side in known}
    spread = _spread([takes for takes in alone.values() if takes])
    most: list[_Most] = []
    missing: dict[str, str] = {}
    for side in known:
        count = counts[side.name]
        if alone[side.name]:
            most.append(_mean(side.name, count, alone[side.name], spread))
        elif (one := pooled.get(count)) is not None:
            most.append(_Most(side.name, count, one.load, one.se, len(side.runs)))
        else:
            why = next((text for text in together.missing if text.startswith(f"{gpus_text(count)}: ")), ": unknown")
            missing[side.name] = why.split(": ", 1)[1]
    return sorted(most, key=lambda each: each.count), missing


def _takes(side: Side, of: Callable[[Side], list[LevelData]]) -> list[Capacity]:
    """The capacity of each of several runs; none where one of them does not show it."""
    found = [_alone(_pooled(of(Side(side.name, [run])))) for run in side.runs]
    return [take for take in found if take is not None] if len(found) > 1 and None not in found else []


def _pooled(levels: Sequence[LevelData]) -> list[LevelData]:
    # Runs of a group are repeats of each other: that is seen to where they are grouped.
    return pool((replace(level, labels={}) for level in levels), allow=_ANY)


def _alone(levels: Sequence[LevelData]) -> Capacity | None:
    found = capacities(levels, None, rate=True).capacities if levels else ()
    return found[0] if found else None


def _spread(groups: Sequence[Sequence[Capacity]]) -> float:
    """Standard deviation of a take's logarithm about its group's mean, over all groups: a few takes say little each.

    It is widened so that 1.96 of it are Student's t with that many degrees of freedom.
    """
    logs = [[math.log(take.load) for take in takes] for takes in groups]
    freedom = sum(len(each) - 1 for each in logs)
    if not freedom:
        return 0.0
    squares = sum((x - sum(each) / len(each)) ** 2 for each in logs for x in each)
    return math.sqrt(squares / freedom) * t_quantile(0.975, freedom) / Z_95


def _mean(side: str, count: int, takes: Sequence[Capacity], spread: float) -> _Most:
    """Geometric mean; its error is what takes differ by, and no less than what is inside them."""
    n = len(takes)
    rate = math.exp(sum(math.log(take.load) for take in takes) / n)
    inside = math.sqrt(sum((take.se / take.load) ** 2 for take in takes)) / n
    return _Most(side, count, rate, rate * max(spread / math.sqrt(n), inside, LEAST_SE), n)
