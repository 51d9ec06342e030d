"""What a search has found: the capacity with its interval, what it cost, and why it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpusize.estimate.question import Question
from gpusize.estimate.search.count import Count
from gpusize.estimate.search.margin import Pooled
from gpusize.estimate.search.more import Again, again
from gpusize.estimate.search.planner import Over, Planner
from gpusize.estimate.search.terms import Adaptive, searched
from gpusize.estimate.search.visits import (
    BreakingLoad,
    Visit,
    breaking_load,
    limited_loads,
    of_part,
    standing,
    visits_of,
)
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.visit_data import Objective, silent

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.search.crossing import Crossing

__all__ = ["Found", "contradictions", "found_of"]

FLANK: Final = 0.2
"""Looks whose attainment is so far off the SLO's share say nothing of the capacity."""
BEYOND_CHANCE: Final = 4.5
"""Standard errors between two looks; docs/reference/search.md says how often a steady target comes to that."""
APART: Final = 0.06
"""And so much, as a share of the capacity, must lie between the capacities that the two looks speak for."""
COMPANY: Final = (
    "the server runs each batch to its end, so which users share a batch is fixed for a whole level: another start may "
    "carry more or less, and the interval allows for that"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The highest load within the SLOs.

    Attributes:
        capacity: users that the target carries; None where none of the loads missed an SLO, 0 where a single user does.
        low: lower end of the 95 % interval.
        high: upper end, None where it is open.
        reason: why the search ended: ``precision`` reached, ``count``: the interval of the count that it was for is
            one number, ``budget`` spent, ``limit``: no SLO was missed up to the
            most users allowed, ``single``: one user misses one; ``failed``: the target did; ``silent``: no request has
            what an SLO is about; ``ended``: it was cut short.
        slo: the SLO that decides, or that no request has data for; None where none was missed.
        wall: fewest users under whom the target broke; None where it did not.
        levels: level visits.
        requests: requests that they sent, warm-up included.
        most_users: of the largest level.
        terms: what was asked for.
        remarks: what speaks against the figures.
        limited: users of the loads that no level has shown without the generator being the limit; they count here
            where nothing better is known of them, and an estimate leaves them out.
        loads: how many loads were measured to their end.
        users: what the count was searched for; None where the capacity alone was.
        again: what as much again would show, where the budget ended the search; None where that cannot be foretold.
        length_s: seconds that the levels took together, from their first request to their last answer.
    """

    capacity: float | None
    low: float
    high: float | None
    reason: Literal["precision", "count", "budget", "limit", "single", "failed", "silent", "ended"]
    slo: str | None
    wall: int | None
    levels: int
    requests: int
    most_users: int
    terms: Adaptive
    remarks: tuple[str, ...] = ()
    limited: tuple[int, ...] = ()
    loads: int = 0
    length_s: float = 0.0
    users: float | None = None
    again: Again | None = None

    @property
    def precision(self) -> float | None:
        """Half the width of the interval as a share of the capacity; None where an end is open."""
        if not self.capacity or self.high is None or self.low <= 0:
            return None
        return (self.high - self.low) / 2 / self.capacity

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "precision": self.precision}


def found_of(
    levels: Sequence[LevelData],
    slos: Sequence[Slo],
    terms: Adaptive,
    natures: Sequence[str | None] = (),
    users: float | None = None,
) -> Found | None:
    """What the levels of a search show; None without any.

    Args:
        levels: in the order of their visits.
        slos: what has to be kept.
        terms: what was asked for.
        natures: what a request to each target is (`records.run_json.nature_of`).
        users: what the run was asked to size for.
    """
    count = None if users is None else Count(Question(users, slos), levels)
    planner = Planner([Objective.of(slo) for slo in searched(slos, natures)], terms, count)
    measured = visits_of(levels, planner.objectives)
    visits = of_part(measured)
    if not measured:
        return None
    crossing, wall, decided = planner.crossing(visits), breaking_load(visits), planner.next(visits)
    reason = decided.reason if isinstance(decided, Over) else "ended"
    beyond = wall is not None and (crossing.capacity is None or crossing.capacity >= wall.users - 1)
    at_wall = beyond and reason != "failed"
    binding = crossing.binding if crossing.capacity is not None and not at_wall else None
    if reason == "silent":
        seen = [each.observed for each in visits if each.observed is not None]
        untold = silent(seen, planner.objectives)
        binding = None if untold is None else planner.objectives.index(untold)
    capacity, low, high = _at_breaking_load(wall) if wall is not None and at_wall else _ends(crossing, reason)
    return Found(
        capacity=capacity,
        low=low,
        high=high,
        reason=reason,
        slo=str(slos[binding]) if binding is not None else None,
        wall=None if wall is None else wall.users,
        levels=len(measured),
        requests=sum(each.sent for each in measured),
        most_users=max(each.users for each in measured),
        terms=terms,
        remarks=(*contradictions(planner, visits, crossing), *((COMPANY,) if crossing.static else ())),
        limited=limited_loads(measured),
        loads=len({each.users for each in measured if each.observed is not None}),
        length_s=sum(each.length_s for each in measured),
        users=users,
        again=again(planner.objectives, visits, crossing) if reason == "budget" and not beyond else None,
    )


def _at_breaking_load(wall: BreakingLoad) -> tuple[float, float, float]:
    return float(wall.kept), float(wall.kept), float(wall.users)


def _ends(crossing: Crossing, reason: str) -> tuple[float | None, float, float | None]:
    if reason == "single":
        return 0.0, 0.0, 1.0
    if reason == "silent":
        return None, 0.0, None
    if reason == "failed":
        # How much it would have carried nobody has seen to its end.
        return None, crossing.low, None
    return crossing.capacity, crossing.low, crossing.high


def contradictions(planner: Planner, visits: Sequence[Visit], crossing: Crossing) -> list[str]:
    """The two looks that are furthest apart, where neither chance nor their loads explain it."""
    objective = planner.objectives[crossing.binding]
    seen = [each for each in standing(visits) if each.observed is not None and not each.failed]
    if not crossing.capacity or objective.share is None:
        return []
    pooled = Pooled(Curve(objective, crossing.binding, [each.observed for each in seen if each.observed is not None]))
    steep = _slope(pooled, crossing.capacity)
    looks = [each for visit in seen if (each := _look(pooled, crossing.binding, visit)) is not None]
    pairs = [
        (abs(a.off - b.off) / math.hypot(a.error, b.error), a, b)
        for a, b in combinations(looks, 2)
        if abs(a.off - b.off) > APART * steep
    ]
    far, a, b = max(pairs, key=lambda each: each[0], default=(0.0, None, None))
    if far <= BEYOND_CHANCE or a is None or b is None:
        return []
    text = (
        f"two looks contradict each other beyond chance: {a.share:.1%} within the SLO in visit {a.visit.number} at "
        f"{a.visit.users} users, {b.share:.1%} in visit {b.visit.number} at {b.visit.users}; the target is not the "
        "same all the time, and the interval does not cover that"
    )
    return [text]


class _Look(NamedTuple):
    """A look, its share, by how much that is off what all levels together say of its load, and its standard error."""

    visit: Visit
    share: float
    off: float
    error: float


def _look(pooled: Pooled, number: int, visit: Visit) -> _Look | None:
    """A look that says something of the curve near the capacity; None of any other visit."""
    objective = pooled.curve.objective
    if visit.observed is None or not visit.observed.settled or objective.share is None:
        return None
    margin = pooled.at(visit.users).value
    alone = Curve(objective, number, [visit.observed])
    if abs(margin) > FLANK or not alone.levels:
        return None
    own = alone.own(alone.levels[0])
    return _Look(visit, own.value, own.value - objective.share - margin, own.error)


def _slope(pooled: Pooled, capacity: float) -> float:
    """By how much the attainment falls while the users grow by a factor e, around the capacity."""
    low, high = max(1, math.floor(0.93 * capacity)), math.ceil(1.07 * capacity)
    return max(0.0, pooled.at(low).value - pooled.at(high).value) / math.log(high / low) if high > low else 0.0
