"""What to measure next, and when to stop: a pure function of the levels so far, so that a run that died goes on.

    grow    short levels, each 2.5 times as many users, until one surely misses an SLO or breaks the target
    looks   around the capacity, in a fixed order: at it, below, above, at it, below, above, ...
    repeat  a level in which the generator was the limit, at most twice: what it showed is not the target's alone
    check   a load that had held, once more after one under which the target broke: whether it still answers

The looks come in stages whose ends are fixed before the first of them is taken: their number, and the part of the
budget that is gone by then. Only at the end of a stage, which is a look at the capacity, the interval is held against
the precision, and the count that the search is for against one number: a search that may stop at any moment stops when
chance makes the interval short (Anscombe 1954; Chow and Robbins 1965), one that may stop three times hardly does.
docs/reference/search.md has the measured coverage.

A level that was stopped for errors or timeouts is a wall: the capacity lies below it, and if every other load keeps the
SLOs, it is found by halving the distance. Where the load that had held breaks as well the target itself has failed, and
the search ends without a capacity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.broken import check_load, has_failed
from gpusize.estimate.search.crossing import Crossing, capacity_of, crossing
from gpusize.estimate.search.looks import GROWTH, Budget, Look, Search
from gpusize.estimate.search.terms import REQUESTS, ROUNDS, Adaptive
from gpusize.estimate.search.visits import REPEATS, BreakingLoad, breaking_load, looks_of, standing
from gpusize.estimate.twin.visit_data import silent

if TYPE_CHECKING:
    from gpusize.estimate.search.count import Count
    from gpusize.estimate.search.visits import Visit
    from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Chosen", "Over", "Planner", "Why"]

STAGES: Final = ((4, 0.25), (7, 0.5), (10, 1.0))
"""Looks by the end of each stage, and the part of the budget that is spent by then. Each ends with a look at the
capacity, and even the first has seen it twice, not in succession."""
LOOK_ROUNDS: Final = 9.0
"""A look lasts at least so many rounds: about four of them are warm-up and drain."""
LOOK_REQUESTS: Final = 100
PAST: Final = 1.3
"""A largest load so many times the capacity is past it, even where it is not sure that it misses: looks will tell."""
GLANCE: Final = 10
MANY: Final = 64
"""From so many users on fewer rounds show as much."""
GRACE: Final = 1.2
"""A budget that nobody asked for may be exceeded by so much, where the capacity moves while it is spent."""
REPEAT_PART: Final = 0.5
"""Part of what is left that a level measured again may cost."""
MOST_AT_LIMIT: Final = 4
"""Levels with the most users that are allowed, after which none is expected to have a steady part."""
FEWEST: Final = 5
"""A level of fewer requests than its users and these says nothing."""

Why = Literal["grow", "edge", "below", "above", "again", "repeat", "check"]
Reason = Literal["precision", "count", "budget", "limit", "single", "failed", "silent"]
_ORDER: Final[tuple[Why, ...]] = ("edge", "below", "above")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The next level, and why it is that one.

    Attributes:
        look: users, and requests with those of the warm-up.
        why: ``grow``, a look at the ``edge``, ``below`` or ``above`` it, ``again``: where the target broke,
            ``repeat``, as the generator was the limit, or ``check``: whether the target still answers.
        low: most users so far that surely keep the SLOs, 0 where none do.
        high: fewest that surely miss one; None where none do.
        most_s: the level may last no longer, where the budget is a time.
        of: what the level was for that is repeated.
    """

    look: Look
    why: Why
    low: float = 0.0
    high: float | None = None
    most_s: float | None = None
    of: str = ""

    @property
    def requests(self) -> int:
        """Requests of the level, warm-up included."""
        return self.look.requests + self.look.warmup

    def facts(self) -> dict[str, Any]:
        """As ``level.json`` keeps it under ``search``."""
        of = {"of": self.of} if self.of else {}
        return {"why": self.why, **of, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Over:
    """The search is over.

    ``precision`` reached, the ``count`` is one number, ``budget`` spent, ``limit`` of users, a ``single`` user misses,
    the target has ``failed``, or requests are ``silent``: none has what an SLO is about.
    """

    reason: Reason


@dataclass(frozen=True)
class Planner:
    """Plans the levels of one target, a closed loop.

    Attributes:
        objectives: the SLOs.
        terms: precision, budget and limit.
        count: what the search is for; None where it is for the capacity alone.
    """

    objectives: Sequence[Objective]
    terms: Adaptive = field(default_factory=Adaptive)
    count: Count | None = None

    def next(self, visits: Sequence[Visit]) -> Chosen | Over:
        """The level that follows on these, in their order, or why none does."""
        spending = _Spending(self.terms, visits)
        found = self.crossing(visits)
        alive = self._alive(visits, found, spending)
        if alive is not None:
            return alive
        visits = standing(visits)
        # A look at whether the target still answers is none at the capacity.
        held = [each for each in visits if not each.failed and each.why != "check"]
        seen = [each.observed for each in held if each.observed is not None]
        wall = breaking_load(visits)
        repeat = self._repeated(found, spending)
        if repeat is not None:
            return repeat
        if wall is not None and (found.capacity is None or found.capacity >= wall.users - 1):
            return self._at_breaking_load(wall, found, spending)
        begins = self._begins(seen, found, spending)
        if begins is not None:
            return begins
        search = self._search(spending, seen)
        grown = None if self._is_grown(search, seen) else search.growth(seen, spending.spent)
        if grown is not None and (wall is None or grown.users < wall.users):
            return self._chosen(_glance(grown.users), "grow", found, spending)
        if found.capacity == 0:
            # What a server does for the first time it may never do again.
            again = sum(each.users == 1 for each in visits) < 2
            return self._chosen(_glance(1), "again", found, spending) if again else Over("single")
        top = max(each.users for each in seen)
        if found.capacity is None and not search.missed(seen, top):
            return self._never_missed(top, seen, found, spending)
        numbers = [each.number for each in held if each.observed is not None]
        return self._look(search, seen, numbers, found, spending)

    def _begins(self, seen: Sequence[Observed], found: Crossing, spending: _Spending) -> Chosen | Over | None:
        """The first level, or the end where it tells nothing of an SLO; None where it does."""
        if not seen:
            return self._chosen(_glance(1), "grow", found, spending)
        return Over("silent") if silent(seen, self.objectives) is not None else None

    def _alive(self, visits: Sequence[Visit], found: Crossing, spending: _Spending) -> Chosen | Over | None:
        """After the target broke: a load that had held once more, or the end; None where it still answers."""
        _, looks = looks_of(visits)
        if has_failed(looks):
            return Over("failed")
        users = check_load(looks)
        if users is not None:
            return self._chosen(_glance(int(users)), "check", found, spending)
        if not looks or not looks[-1].broke or looks[-1].brought or any(not each.broke for each in looks):
            return None
        # The first user's requests failed at once, so that nothing lower is there to be tried.
        return Over("failed") if len(looks) > 1 else self._chosen(_glance(1), "again", found, spending)

    def repeat(self, visit: Visit, visits: Sequence[Visit]) -> Chosen | None:
        """A visit once more, after these; None where too little is left for it."""
        found, spending = self.crossing(visits), _Spending(self.terms, visits)
        return _again(visit, found, spending) if visit.sent <= spending.left(visit.users) else None

    def _repeated(self, found: Crossing, spending: _Spending) -> Chosen | None:
        """The last level once more, where the generator was its limit; None where that was tried, or costs too much."""
        evident = [each for each in spending.visits if each.failed or each.observed is not None]
        last = evident[-1] if evident else None
        if last is None or not last.limited or last.sent > REPEAT_PART * spending.left(last.users):
            return None
        if last.observed is not None and silent([last.observed], self.objectives) is not None:
            # What requests do not have they have no more of on an idle machine.
            return None
        if sum(each.limited and each.users == last.users for each in evident) > REPEATS:
            return None
        return _again(last, found, spending)

    def _never_missed(self, top: int, seen: Sequence[Observed], found: Crossing, spending: _Spending) -> Chosen | Over:
        """Growth ended without a miss: at the limit, once that was seen for long enough, or for want of budget."""
        if top < self.terms.most_users:
            return Over("budget")
        there = [each for each in seen if each.users == top]
        # What answers within microseconds has no steady part, however often it is looked at.
        enough = any(each.settled for each in there) or len(there) > MOST_AT_LIMIT
        return Over("limit") if enough else self._chosen(_brief(top), "edge", found, spending)

    def crossing(self, visits: Sequence[Visit]) -> Crossing:
        """The capacity as far as these levels show it, walls left out."""
        seen = [each.observed for each in standing(visits) if each.observed is not None and not each.failed]
        return crossing(self.objectives, seen) if seen else Crossing(None, 0.0, None)

    def _search(self, spending: _Spending, seen: Sequence[Observed]) -> Search:
        top = max(each.users for each in seen)
        # As many requests as the next larger load would send in the time: at first it is time that runs out.
        budget = Budget(round(spending.total(seen, GROWTH * top)), 0.0)
        return Search(self.objectives, budget, most_users=self.terms.most_users)

    def _is_grown(self, search: Search, seen: Sequence[Observed]) -> bool:
        """Whether the capacity is behind the largest load: that surely misses an SLO, or it seems to by far."""
        top = max(each.users for each in seen)
        if search.missed(seen, top):
            return True
        capacity = capacity_of(self.objectives, seen)
        return capacity is not None and top >= PAST * capacity

    def _look(
        self, search: Search, seen: Sequence[Observed], numbers: Sequence[int], found: Crossing, spending: _Spending
    ) -> Chosen | Over:
        """The next look; at the end of a stage whether one is needed. ``numbers`` are the visits' that showed them."""
        # Growth that went on after a first look, when that took an early miss back, was no look.
        still = (k for k in range(len(seen) - 1, 0, -1) if not self._is_grown(search, seen[:k]))
        grown = next(still, 0) + 1
        looked = len(seen) - grown
        for looks, requests in self._stages(seen[:grown], spending):
            if looked < looks:
                # Seen once for long, the largest load may keep what it missed at a glance.
                beyond = 1.05 * max(each.users for each in seen)
                capacity = max(1.0, beyond if found.capacity is None else found.capacity)
                users = min(search.place(capacity, looked), self.terms.most_users)
                sent = (requests - spending.spent) / (looks - looked)
                counted = max(round(sent) - 2 * users, round((LOOK_ROUNDS - 2) * users), LOOK_REQUESTS)
                return self._chosen(Look(users, counted, 2 * users), _ORDER[looked % 3], found, spending)
            shown = crossing(self.objectives, seen[: grown + looks])
            if shown.precision <= self.terms.share:
                return Over("precision")
            if self.count is not None and self.count.is_one(shown, max(numbers[: grown + looks])):
                return Over("count")
        return Over("budget")

    def _stages(self, seen: Sequence[Observed], spending: _Spending) -> list[tuple[int, float]]:
        """(looks, requests by then) of each stage that the budget has room for, as the growth showed the capacity."""
        capacity = capacity_of(self.objectives, seen) or float(max(each.users for each in seen))
        total = spending.total(seen, capacity)
        spent = sum(each.due_s.size for each in seen)
        least = max(LOOK_ROUNDS * max(capacity, 1.0), LOOK_REQUESTS)
        found = [(looks, part * total) for looks, part in STAGES if part * total - spent >= looks * least]
        # The last of those that there is room for has all that is left.
        return [*found[:-1], (found[-1][0] if found else STAGES[0][0], total)]

    def _at_breaking_load(self, wall: BreakingLoad, found: Crossing, spending: _Spending) -> Chosen | Over:
        """Halve the distance between the wall and what is kept, then see both once more."""
        if wall.kept < 1:
            return Over("single") if wall.failures > 1 else self._chosen(_glance(1), "again", found, spending)
        apart = wall.users - wall.kept
        if apart > max(1, self.terms.share * wall.kept):
            users = round(math.sqrt(wall.users * wall.kept))
            return self._chosen(_brief(min(max(users, wall.kept + 1), wall.users - 1)), "edge", found, spending)
        if wall.visits > 1 and wall.failures > 1:
            return Over("precision")
        below = wall.visits < 2 and wall.last != wall.kept
        users = wall.kept if below or wall.failures > 1 else wall.users
        return self._chosen(_brief(users), "below" if below else "again", found, spending)

    def _chosen(self, look: Look, why: Why, found: Crossing, spending: _Spending) -> Chosen | Over:
        """The look, cut to what is left of the budget."""
        requests = math.floor(min(look.requests + look.warmup, spending.left(look.users)))
        if requests < look.users + FEWEST:
            return Over("budget")
        cut = Look(look.users, requests - look.warmup, look.warmup)
        return Chosen(cut, why, found.low, found.high, spending.left_s)


def _again(visit: Visit, found: Crossing, spending: _Spending) -> Chosen:
    return Chosen(Look(visit.users, visit.sent, 0), "repeat", found.low, found.high, spending.left_s, visit.why)


def _glance(users: int) -> Look:
    """A level that only finds the way: some five rounds, for it is time that they cost."""
    return Look(
        users, max(GLANCE, 3 * users if users <= MANY else round(1.5 * users)), 2 * users if users <= MANY else users
    )


def _brief(users: int) -> Look:
    """A level that shows whether the target breaks."""
    return Look(users, max(LOOK_REQUESTS, round((LOOK_ROUNDS - 2) * users)), 2 * users)


@dataclass(frozen=True)
class _Spending:
    """What has been spent, and what may be."""

    terms: Adaptive
    visits: Sequence[Visit]

    @property
    def spent(self) -> int:
        """Requests of all levels, also of those that say nothing."""
        return sum(each.sent for each in self.visits)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; None where the budget is no time."""
        if self.terms.time_s is None:
            return None
        return max(0.0, self.terms.time_s - sum(each.length_s for each in self.visits))

    def total(self, seen: Sequence[Observed], capacity: float) -> float:
        """Requests of the whole search, with the capacity at so many users and the rates of these levels."""
        if self.terms.requests is not None:
            return float(self.terms.requests)
        if self.terms.time_s is None:
            return max(REQUESTS, ROUNDS * capacity)
        spent_s = sum(float(each.due_s[-1]) + each.residence_s for each in seen if math.isfinite(each.residence_s))
        spent = sum(each.due_s.size for each in seen)
        return spent + max(0.0, self.terms.time_s - spent_s) * _rate_per_s(seen, capacity)

    def left(self, users: int) -> float:
        """Requests that one more level of so many users may have."""
        if self.terms.requests is not None:
            return float(self.terms.requests - self.spent)
        if self.left_s is None:
            return GRACE * max(REQUESTS, ROUNDS * users) - self.spent
        seen = [each.observed for each in self.visits if each.observed is not None]
        if not seen:
            return math.inf if self.left_s > 0 else 0.0
        return self.left_s * _rate_per_s(seen, users)


def _rate_per_s(seen: Sequence[Observed], users: float) -> float:
    """Requests per second of the level whose users are nearest; of other numbers of users in proportion."""
    near = min(seen, key=lambda each: abs(math.log(each.users / max(users, 1.0))))
    rate = near.rate_per_s
    return rate * min(GROWTH, max(users, 1.0) / near.users) if math.isfinite(rate) else 0.0
