"""Where the attainment falls to what is asked for, with its interval: the loads at which chance may decide.

    capacity  where A(c) = share
    low   the largest c with A(c) - t v s(c) >= share
    high  the smallest c with A(c) + t v s(c) < share

A and s are `gpusize.estimate.search.margin`'s attainment and standard error, from batches of time no shorter than two
residences; t is the 97.5 % quantile of Student's t at their degrees of freedom; v is by how much visits differ more
than their batches say. Between two whole numbers of users the capacity is that of replicas of which some carry one more
(`gpusize.estimate.twin.routed_mixture`).

Where each c has a band that holds the truth in 95 of 100 cases, so has the set of c whose band holds the share: the
inversion of a test (Fieller 1954; Draper and Smith, Applied Regression Analysis, 3rd ed., 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.search.margin import REACH, Pooled
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.static_batch_model import COMPANY_ERROR, surely_static

if TYPE_CHECKING:
    from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Crossing", "added_half", "capacity_of", "crossing", "widened", "wider_half"]

FURTHEST: Final = 1.5
"""Beyond so many times the largest load measured no end of an interval is looked for."""
SURE: Final = 2.0
"""Standard errors by which a single user must miss."""
TIMES: Final = 1.2
UNSEEN: Final = 0.012
"""Halves of intervals become sqrt((1.2 h)^2 + 0.012^2), as logarithms: then 95 of 100 searches of clusters that nothing
is judged on hold the truth (split conformal prediction: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random
World, 2005). A search that ends because its interval is short has a lucky one."""
NEAR: Final = 0.01
"""Visits whose margin is at most what the SLO lets miss, and this, are held against each other."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """The capacity in users, and its 95 % interval.

    Attributes:
        capacity: the capacity; None where no measured load misses an SLO, 0 where the smallest surely does.
        low: lower end; 0 where no load surely keeps the SLOs.
        high: upper end; None where no load surely misses one.
        binding: which SLO decides, from 0.
        static: whether batches that run to their end are seen, for which the interval is wider.
    """

    capacity: float | None
    low: float
    high: float | None
    binding: int = 0
    static: bool = False

    @property
    def precision(self) -> float:
        """Half the width of the interval as a share of the capacity; infinite where an end is open."""
        if not self.capacity or self.high is None or self.low <= 0:
            return math.inf
        return (self.high - self.low) / 2 / self.capacity


def crossing(objectives: Sequence[Objective], visits: Sequence[Observed]) -> Crossing:
    """The capacity of a target: the least over its SLOs, and so are the ends of its interval.

    Args:
        objectives: the SLOs.
        visits: closed loops of one target, with values of each objective; at least one.
    """
    each_slo = [_of_one(each, number, visits) for number, each in enumerate(objectives)]
    found = [each for each in each_slo if each is not None]
    if not found:
        return Crossing(None, 0.0, None)
    binding = min(found, key=lambda each: math.inf if each.capacity is None else each.capacity)
    ends = [each.high for each in found if each.high is not None]
    low, high = min(each.low for each in found), min(ends, default=None)
    return _wider(Crossing(binding.capacity, low, high, binding.binding, surely_static(visits) is not None))


def _wider(found: Crossing) -> Crossing:
    if not found.capacity:
        return found
    added = added_half(static=found.static)

    def wider(ratio: float) -> float:
        return math.exp(wider_half(math.log(ratio), added))

    low = found.capacity / wider(found.capacity / found.low) if found.low > 0 else 0.0
    high = None if found.high is None else found.capacity * wider(found.high / found.capacity)
    return replace(found, low=low, high=high)


def added_half(*, static: bool) -> float:
    """What half an interval's logarithm holds beside chance: what searches lack, and batches that run to their end."""
    return math.hypot(UNSEEN, t_quantile(math.inf) * COMPANY_ERROR if static else 0.0)


def wider_half(half: float, added: float) -> float:
    """Half an interval, a logarithm, with what it holds beside chance."""
    return math.hypot(TIMES * half, added)


def widened(half: float, added: float) -> float:
    """The half that became so wide: the reverse of ``wider_half``; 0 where all of it was added."""
    return math.sqrt(max(0.0, half**2 - added**2)) / TIMES


def capacity_of(objectives: Sequence[Objective], visits: Sequence[Observed]) -> float | None:
    """The capacity alone, as ``crossing`` has it."""
    most = max(each.users for each in visits)
    curves = [Curve(objective, number, visits) for number, objective in enumerate(objectives)]
    capacities = [_pooled_capacity(Pooled(curve), most) for curve in curves if curve.levels]
    return min((each for each in capacities if each is not None), default=None)


def _pooled_capacity(pooled: Pooled, most: int) -> float | None:
    """Where the margin falls to 0; None where it does not up to ``most`` users.

    Larger loads that were only glanced at are left out beside longer ones: the curve's line leads there.
    """
    least, top = pooled.curve.range
    capacity = _last_kept(lambda users: pooled.at(users).value, top, least, most)
    if capacity is None or capacity >= least:
        return capacity
    first = pooled.at(least)
    return 0.0 if first.value + SURE * first.error < 0 else float(least)


def _of_one(objective: Objective, number: int, visits: Sequence[Observed]) -> Crossing | None:
    curve = Curve(objective, number, visits)
    if not curve.levels:
        return None
    pooled = Pooled(curve)
    least, most = curve.range[0], max(each.users for each in visits)
    capacity = _pooled_capacity(pooled, most)
    spread = _spread(pooled, number, visits, capacity)
    start = min(most, max(least, math.floor(capacity) if capacity is not None else curve.range[1]))

    def reach(users: int) -> tuple[float, float]:
        margin = pooled.at(users)
        return margin.value, spread * t_quantile(margin.freedom) * margin.error

    low = _last_kept(lambda users: reach(users)[0] - reach(users)[1], start, least, most)
    high = _last_kept(lambda users: sum(reach(users)), start, least, math.ceil(FURTHEST * most))
    # Where even the largest load is surely kept, the capacity is at least that.
    sure = float(most) if low is None else low if low >= least else 0.0
    return Crossing(capacity, sure, high, number)


def _spread(pooled: Pooled, number: int, visits: Sequence[Observed], capacity: float | None) -> float:
    """By how much visits near the capacity differ more than their own batches say; at least 1.

    The root of chi-squared over its degrees of freedom (Birge, Physical Review 40, 1932): what varies from visit to
    visit, such as how requests fall into step with each other, no batch of one visit shows.
    """
    objective = pooled.curve.objective
    if objective.share is None or not capacity:
        return 1.0
    terms = []
    for visit in visits:
        if not visit.settled or abs(math.log(visit.users / capacity)) > REACH:
            continue
        around = pooled.at(visit.users)
        if abs(around.value) > 1 - objective.share + NEAR:
            continue
        alone = Curve(objective, number, [visit])
        if alone.levels:
            own = alone.own(alone.levels[0])
            # As if it had missed what all say: one that happens to miss nothing is not the surer for it.
            error = max(own.error, pooled.even_error(around.value + objective.share, alone.levels[0].logs.size))
            terms.append(((own.value - objective.share - around.value) / error) ** 2)
    return math.sqrt(max(1.0, sum(terms) / (len(terms) - 1))) if len(terms) > 2 else 1.0


def _last_kept(kept: Callable[[int], float], start: int, least: int, most: int) -> float | None:
    """Users at which a falling function, looked at around ``start``, goes below 0.

    None where it never does up to ``most``; below ``least`` where it is below 0 there already.
    """
    low, high, step = start, start, 1
    if kept(start) >= 0:
        while kept(high) >= 0:
            if high >= most:
                return None
            low, high, step = high, min(most, high + step), 2 * step
    else:
        while kept(low) < 0:
            if low <= least:
                return least - 1.0
            low, high, step = max(least, low - step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) >= 0 else (low, middle)
    inside, outside = kept(low), kept(high)
    part = inside / (inside - outside) if inside > outside else 0.0
    # As the mixture of replicas that carry low and low + 1 users, of which part of the requests are at the latter.
    return low * (low + 1) / (low + 1 - part)
