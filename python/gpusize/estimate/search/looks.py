"""Where to measure next: the highest load that one target carries within its SLOs, in a bounded number of requests.

First the load grows geometrically from one request in flight until an SLO is missed; a line through the levels' tails
foresees the capacity, so that the last step does not overshoot it by half. Then the rest of the budget goes around the
capacity, alternately at, below and above it, so that the capacity is visited more than once and never twice in
succession: a target that drifts shows it. The order of looks is fixed beforehand; where they fall follows from the
estimate.

`Search.next` spends a whole budget; `gpusize.estimate.search` takes the parts to stop earlier, at a precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.routed_mixture import curve_capacity
from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Budget", "Look", "Search"]

LOOKS: Final = (1.0, 0.94, 1.06, 1.0, 0.97, 1.03)
"""Where the looks at the capacity fall, as shares of it; whole numbers by turns rounded down and up."""
WIDE_LOOKS: Final = (1.0, 0.8, 1.25, 1.0, 0.65, 1.5)
"""Where requests in flight vary behind the router, more of the curve decides."""
GROWTH: Final = 2.5
FIRST_REQUESTS: Final = 30
FEWEST: Final = 20
ROUNDS: Final = 9.0
"""A look at the capacity lasts at least so many rounds: about four of them are warm-up and drain."""
OTHER: Final = 0.12
"""Part of the budget for each further number of replicas."""
OTHER_ROUNDS: Final = 8.0
AFFORD: Final = 0.25
"""Part of what is left that one step of the growth may cost."""
LONGER: Final = 2
"""A load that was not reached is looked at again with so many times the requests."""
SURE: Final = 2.0
"""Standard errors by which a level must miss before the growth ends."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent: so many requests or so many rounds at the capacity, whichever is more; warm-up counts.

    Attributes:
        requests: requests.
        rounds: requests per user at the capacity.
    """

    requests: int = 4000
    rounds: float = 40.0

    def at(self, capacity: float) -> float:
        """Requests when the capacity lies at so many users."""
        return max(float(self.requests), self.rounds * capacity)


@dataclass(frozen=True, slots=True)
class Look:
    """One visit: users on all replicas, requests that count, requests before them, and replicas."""

    users: int
    requests: int
    warmup: int
    replicas: int = 1


@dataclass(frozen=True)
class Search:
    """Plans visits of one target, closed loop without pauses.

    Attributes:
        objectives: the SLOs.
        budget: what may be spent.
        most_users: no level is larger.
        wide: whether loads further from the capacity matter too.
        counts: numbers of replicas that can be measured; the first is where the capacity is looked for.
    """

    objectives: Sequence[Objective]
    budget: Budget = Budget()
    most_users: int = 1 << 20
    wide: bool = False
    counts: Sequence[int] = (1,)

    def next(self, visits: Sequence[Observed]) -> Look | None:
        """The next visit after these, in order; None when the search is over."""
        if not visits:
            return self.growth(visits, 0)
        base = min(each.gpus for each in visits)
        others = [each for each in visits if each.gpus > base]
        spent = sum(each.due_s.size for each in visits)
        visits = [each for each in visits if each.gpus == base]
        if not others:
            found = self._base(visits, spent)
            if found is not None:
                return found
        return self._other(visits, len(others), spent)

    def _other(self, visits: Sequence[Observed], done: int, spent: int) -> Look | None:
        """The next visit of more replicas: as many users each as the capacity, or as the budget allows rounds of."""
        counts = self.counts[1:]
        capacity = self.capacity(visits)
        if done >= len(counts) or capacity is None or capacity < 1:
            return None
        budget = self.budget.at(capacity)
        left = min(budget - spent, (len(counts) - done) * OTHER * budget)
        requests = int(left * counts[done] / sum(counts[done:]))
        ratio = counts[done] // self.counts[0]
        each = max(1, min(round(capacity), int(requests / (ratio * OTHER_ROUNDS))))
        return Look(each * ratio, max(0, requests - each * ratio), each * ratio, ratio) if requests > 30 else None

    def _base(self, visits: Sequence[Observed], spent: int) -> Look | None:
        grown = self.growth(visits, spent)
        if grown is not None:
            return grown
        capacity = self.capacity(visits)
        top = max(each.users for each in visits)
        if capacity is None:
            capacity = 1.1 * top
        looked = len(visits) - self.grown_at(visits)
        left = self.budget.at(capacity) * (1 - OTHER * (len(self.counts) - 1)) - spent
        more = min(len(LOOKS) - looked, round(left / (ROUNDS * max(capacity, 1.0))), round(left / 100))
        count = looked + max(0, more)
        if looked < 3:
            count = max(count, 3)
        if looked >= count:
            return None
        users = self.place(capacity, looked)
        counted = int(left / (count - looked) - 2 * users)
        if counted < max(FEWEST, users) or (capacity < 1 and looked > 0 and self.missed(visits, 1)):
            return None
        return Look(users, counted, 2 * users)

    def place(self, capacity: float, looked: int) -> int:
        """Users of the look around the capacity that follows on so many looks."""
        looks = WIDE_LOOKS if self.wide else LOOKS
        at = max(capacity, 1.0) * looks[looked % len(looks)]
        return max(1, math.floor(at) if looked % 2 == 0 else math.ceil(at))

    def growth(self, visits: Sequence[Observed], spent: int) -> Look | None:
        """A short visit of a larger load; None when one was reached that misses an SLO, or no larger one can be had."""
        if not visits:
            return _short(1)
        grown = self._growing(visits, spent)
        if grown is None:
            return None
        last = visits[-1]
        if last.asked is not None and last.users < last.asked:
            # The load was not reached, and will not be in as many requests.
            look, sent = _short(last.asked), LONGER * last.due_s.size
            return replace(look, requests=max(look.requests, sent - look.warmup))
        return _short(grown)

    def grown_at(self, visits: Sequence[Observed]) -> int:
        """How many visits it took to find a load that misses."""
        for k in range(1, len(visits) + 1):
            top = max(each.users for each in visits[:k])
            if self.missed(visits[:k], top):
                return k
        return len(visits)

    def capacity(self, visits: Sequence[Observed]) -> float | None:
        """Users that keep all SLOs, as far as is known; None when none has been missed."""
        found = []
        for number, objective in enumerate(self.objectives):
            curve = Curve(objective, number, visits)
            if curve.levels:
                found.append(curve_capacity(curve))
        known = [each for each in found if each is not None]
        return min(known) if known else None

    def missed(self, visits: Sequence[Observed], users: int) -> bool:
        """Whether so many users surely miss an SLO."""
        for number, objective in enumerate(self.objectives):
            curve = Curve(objective, number, visits)
            if not curve.levels:
                continue
            found = curve.at(users)
            if found.value + SURE * found.error < objective.target:
                return True
        return False

    def _growing(self, visits: Sequence[Observed], spent: int) -> int | None:
        """The next larger load, or None when one was reached that misses an SLO (or the budget is gone)."""
        top = max(each.users for each in visits)
        if self.missed(visits, top) or top >= self.most_users:
            return None
        if spent > 0.5 * self.budget.at(top):
            return None
        following = min(self.most_users, max(top + 1, round(GROWTH * top)))
        foreseen = self._foreseen(visits)
        if foreseen is not None and foreseen < following:
            following = max(top + 1, math.ceil(1.1 * foreseen), math.ceil(1.15 * top))
        # A visit that only finds the way lasts two and a half rounds.
        affordable = int(AFFORD * (self.budget.at(following) - spent) / 2.5)
        return max(top + 1, min(following, affordable))

    def _foreseen(self, visits: Sequence[Observed]) -> float | None:
        """Where a line through the last two levels' means meets an SLO, for the first that does."""
        found = []
        for number, objective in enumerate(self.objectives):
            levels = Curve(objective, number, visits).levels
            if objective.share is None or len(levels) < 3 or not all(math.isfinite(each.mean) for each in levels):
                continue
            import numpy as np

            before, last = levels[-2:]
            tail = math.exp(float(np.quantile(last.logs, objective.share)))
            slope = tail * (1 - before.mean / last.mean) / (last.users - before.users)
            if slope > 0 and objective.bound > tail:
                found.append(last.users + (objective.bound - tail) / slope)
        return min(found) if found else None


def _short(users: int) -> Look:
    warmup = 2 * users if users <= 64 else users
    return Look(users, max(FIRST_REQUESTS, 3 * users if users <= 64 else round(1.5 * users)), warmup)
