"""A policy on several days, each with a replica of its own within the fit's error: kept or not, and by how much.

A day that settings are judged by is drawn from three sources at once, so that the share of them that is kept is the
share that can be expected of days to come:

    chance    other arrivals of the same course, with other lengths of requests; and as many more or fewer in all as one
              recorded day of n requests leaves open, a standard error of 1 / sqrt(n)
    the fit   a replica as slow as its standard error allows
    a limit   where no queue was seen before a replica's batch, nobody knows how many requests it works on at once; then
              each day is simulated twice, without a limit and with the smallest that there may be, and the worse counts

Both errors are quantiles of the normal distribution, one per day, so that few days have their whole width.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.base.tasks import Tasks, Threads
from gpusize.estimate.isotonic import wilson
from gpusize.estimate.plan.autoscale.days import another_day
from gpusize.estimate.plan.over_time.doubt import Doubt, seen

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.demand import Demand
    from gpusize.estimate.plan.over_time.over_time import Planner

__all__ = ["KEPT", "Day", "Days", "Trial", "tolerance"]

KEPT: Final = 0.95
"""Share of the days that are to keep the SLOs."""
FEWEST: Final = 4
"""Fewer days tell no spread."""
TOGETHER: Final = 2
"""Days that are simulated before it is looked whether too many have missed."""


@dataclass(frozen=True, eq=False)
class Day:
    """Requests, and the replica that they meet."""

    demand: Demand
    doubt: Doubt


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy on several days.

    Attributes:
        gpu_hours: mean over the days.
        kept: days on which every SLO was kept.
        days: how many there were.
        shares: the smallest share of requests within each SLO on any of the days.
        margin: by how much the share lies above what is asked for, of the SLO that is nearest to being missed: the
            mean over the days less as many of their standard deviations as `tolerance` says; NaN of fewer than four.
    """

    gpu_hours: float
    kept: int
    days: int
    shares: tuple[float, ...]
    margin: float = math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The share of days that keep the SLOs, as a 95 % interval by Wilson."""
        return wilson(self.kept / self.days, self.days)

    @property
    def surely(self) -> bool:
        """Whether it keeps the SLOs on 95 % of such days: by the count of days, and by the spread between them."""
        return self.kept >= KEPT * self.days and not self.margin < 0


def tolerance(days: int, share: float = KEPT, confidence: float = 0.95) -> float:
    """Standard deviations below the mean of so many draws above which the given share of all draws lies.

    The one-sided tolerance factor of a normal distribution, in the closed form of M. Natrella, *Experimental
    Statistics* (1963), 2-3: within 1.5 % of the exact one from five draws on.

    Args:
        days: how many draws; 3 or more.
        share: of all draws.
        confidence: how sure it is.
    """
    z, sure = NormalDist().inv_cdf(share), NormalDist().inv_cdf(confidence)
    a, b = 1 - sure * sure / (2 * (days - 1)), z * z - sure * sure / days
    return (z + math.sqrt(max(0.0, z * z - a * b))) / a


class Days:
    """Simulations of policies on days of one kind.

    Args:
        planner: a trace on a fitted replica; its ``answer`` has been asked for.
        replicas: about how many there will be.
        seed: key of the days.
        tasks: who simulates; None: two threads of this process. What comes of it is the same.

    Attributes:
        made: simulations so far.
        error: standard error of the logarithm of how slow a replica is.
        unseen: requests that a replica was seen to work on at once, where that may be its limit or may not.
    """

    def __init__(self, planner: Planner, replicas: int, seed: int, tasks: Tasks | None = None) -> None:
        self._planner, self._seed, self._drawn = planner, seed, 0
        self._tasks = Threads(TOGETHER) if tasks is None else tasks
        self._shared = self._tasks.share(planner)
        self._shared_days: dict[Day, Day] = {}
        self._lock = threading.Lock()
        self.made = 0
        self.error = planner.error(max(1, replicas))
        known = seen(planner.replica)
        self.unseen = None if known is None or known[1] else known[0]
        # Where it surely is the limit, there is none other.
        self._limits = (False,) if known is None else (True,) if known[1] else (False, True)

    def draw(self, count: int, edges_ns: NDArray[np.int64]) -> list[Day]:
        """So many days, the slowest replica first: those that fail do so soon."""
        import numpy as np

        rnd = np.random.default_rng((self._seed, self._drawn))
        normal = NormalDist()
        slow, busy = (((np.arange(count) + rnd.random(count)) / count).tolist() for _ in range(2))
        rnd.shuffle(busy)
        pairs = zip(reversed(slow), busy, strict=True)
        return [self.slower(normal.inv_cdf(a), edges_ns, busier=normal.inv_cdf(b)) for a, b in pairs]

    def slower(self, errors: float, edges_ns: NDArray[np.int64] | None = None, *, busier: float = 0.0) -> Day:
        """Another day with a replica that is slower than the fitted one by so many standard errors.

        Args:
            errors: how many.
            edges_ns: of the windows; None for the trace itself.
            busier: by how many standard errors more requests come.
        """
        self._drawn += 1
        key = self._seed * 1000 + self._drawn
        demand = self._planner.demand
        if edges_ns is not None:
            level = math.exp(busier / math.sqrt(max(1, demand.due_ns.size)))
            demand = another_day(demand, edges_ns, key, level=level)
        day = Day(demand, Doubt(math.exp(errors * self.error), seed=key))
        self._shared_days[day] = self._tasks.share(day)
        return day

    @property
    def at_once(self) -> int:
        """How many trials are worth asking for at the same time: what simulates has room for all their days."""
        return max(1, self._tasks.at_once // TOGETHER)

    def trial(self, autoscaler: Autoscaler, days: Sequence[Day], *, misses: int | None = None) -> Trial | None:
        """The policy on these days.

        Args:
            autoscaler: the policy.
            days: as `draw` or `slower` gave them.
            misses: None, at once, where more of the days than that do not keep the SLOs.
        """
        ahead = max(TOGETHER, self._tasks.at_once)
        asked = [self._ask(autoscaler, day, once=misses == 0) for day in days[:ahead]]
        seen: list[Sequence[Seen]] = []
        for begin in range(0, len(days), TOGETHER):
            some = [each.result() for each in asked[begin : begin + TOGETHER]]
            seen += some
            # Those that were simulated ahead and not looked at are not counted: it is the same number wherever.
            with self._lock:
                self.made += sum(map(len, some))
            if misses is not None and sum(not _keep(each) for each in seen) > misses:
                for each in asked[begin + TOGETHER :]:
                    each.cancel()
                return None
            more = days[len(asked) : len(asked) + len(some)]
            asked += [self._ask(autoscaler, day, once=misses == 0) for day in more]
        return _trial(seen, self._planner.targets)

    def _ask(self, autoscaler: Autoscaler, day: Day, *, once: bool) -> Future[list[Seen]]:
        shared = self._shared_days.get(day, day)
        return self._tasks.submit(_simulated, self._shared, autoscaler, shared, self._limits, once)


class Seen(NamedTuple):
    """What a simulated day came to."""

    keeps: bool
    gpu_hours: float
    shares: tuple[float, ...]


def _simulated(
    planner: Planner,
    autoscaler: Autoscaler,
    day: Day,
    limits: Sequence[bool],
    once: bool,  # noqa: FBT001 -- by place, as tasks take their arguments
) -> list[Seen]:
    """A policy on a day: one course, or two where a limit is in doubt; with ``once`` only until one is not kept."""
    found: list[Seen] = []
    for limited in limits:
        doubt = replace(day.doubt, limited=limited)
        course = planner.scaled(autoscaler, day.demand, quiet=True, doubt=doubt)
        found.append(Seen(course.keeps, course.gpu_hours, tuple(course.shares)))
        if once and not course.keeps:
            break
    return found


def _keep(day: Sequence[Seen]) -> bool:
    return all(each.keeps for each in day)


def _trial(days: Sequence[Sequence[Seen]], targets: Sequence[float]) -> Trial:
    """What days come to; of those that were simulated twice the worse counts."""
    import numpy as np

    found = [(max(course.gpu_hours for course in day), _keep(day)) for day in days]
    shares = np.array([np.min([course.shares for course in day], axis=0) for day in days])
    margin = math.nan
    if len(found) >= FEWEST:
        low = shares.mean(axis=0) - tolerance(len(found)) * shares.std(axis=0, ddof=1)
        margin = float((low - np.array(targets)).min())
    hours = sum(each for each, _ in found) / len(found)
    return Trial(hours, sum(keeps for _, keeps in found), len(found), tuple(shares.min(axis=0).tolist()), margin)
