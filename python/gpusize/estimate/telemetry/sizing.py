"""From a fitted replica to a count with its interval: by what the pages show, and by what they leave open.

What they leave open is how many requests a replica works on at once where no scrape saw it full. So it is counted
twice: as if there were no limit but its cache's, and as if the most that was ever seen at work were the limit. That
second count also stands for costs that rise faster beyond what was seen: either way a replica does no more than was
seen. Where both come to the same the answer does not depend on it; where they are far apart nothing here tells which is
true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.telemetry.checks import Check, check
from gpusize.estimate.telemetry.costs import Costs, replica_of
from gpusize.estimate.telemetry.replay import Day
from gpusize.estimate.twin.fewest_replicas import Counter, mean_field
from gpusize.estimate.twin.simulate import TimeBound
from gpusize.estimate.twin.sizing import lean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.estimate.telemetry.lengths import Lengths
    from gpusize.estimate.telemetry.limits import Limit
    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.twin.batching_model import Service
    from gpusize.estimate.twin.load import ClusterLoad
    from gpusize.estimate.twin.simulate import Batching
    from gpusize.estimate.twin.visit_data import Objective

__all__ = ["Counted", "Sizing"]

ERRORS: Final = 2.0
"""Standard errors on either side of the interval."""
LEAST: Final = 0.01
MOST_REACH: Final = 1.2
REPLAYS: Final = 3
SHOWN: Final = 0.7
"""A replica that had so much of what it has at the edge shows what happens there."""
SMALL: Final = 0.02
"""Errors of costs that are smaller are not looked at."""
MOST_MOVED: Final = 0.15
BLUNT: Final = 0.6
SHARP: Final = 0.2
"""Parts of the means' misfit that are taken for an error of bounds: where no bucket tells, and where one does."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Unrounded counts of replicas.

    Attributes:
        raw: the best guess.
        leaning: the one of least expected cost; see ``twin.sizing.lean``.
        free: as if nothing but the cache limited a batch.
        seen: as if the most that was seen at work did.
        low: fewer are not enough, by the errors.
        high: more are not needed; None where no end is in sight.
        binding: number of the SLO that decides.
        at_work: requests on a replica at the edge, waiting ones among them.
        per_s: requests per second of a replica there.
        busiest: the most requests in flight that a replica had on the mean over five minutes.
        shown: whether that is near the edge: then the pages show what decides.
        checks: of each SLO.
        error: standard error of the logarithm of the bounds.
    """

    raw: float
    leaning: float
    free: float
    seen: float
    low: float
    high: float | None
    binding: int
    at_work: float
    per_s: float
    busiest: float
    shown: bool
    checks: tuple[Check, ...]
    error: float


class Sizing:
    """Counts for one question.

    Args:
        production: what was scraped.
        lengths: of requests.
        costs: as fitted.
        limit: as seen.
        objectives: what is to be kept.
        asked: the load.
        risk: how many times as much a replica too few costs as one too many.
    """

    def __init__(
        self,
        production: Production,
        lengths: Lengths,
        costs: Costs,
        limit: Limit,
        objectives: Sequence[Objective],
        asked: ClusterLoad,
        risk: float,
    ) -> None:
        self._production, self._lengths, self._costs, self._limit = production, lengths, costs, limit
        self._asked, self._risk = asked, risk
        self._days = [Day(production, asked.router, seed=seed) for seed in range(1, REPLAYS + 1)]
        self._targets = [each.target for each in objectives]
        self._joint = len(objectives) == 1 and len(objectives[0].parts) > 1
        self._bounds = [TimeBound(part.metric, part.bound_s or 0.0) for each in objectives for part in each.parts]
        self._of = [k for k, each in enumerate(objectives) for _ in each.parts]

    def counted(self) -> Counted | None:
        """The counts; None where no number of replicas keeps the SLOs, as one request alone misses them."""
        service = self._costs.service
        begun = self._counter(service, (0.0,) * len(self._bounds))
        whole = begun.fewest(self._guess(begun))
        # Where none is enough before anything was corrected, the busiest time is what is looked at.
        edge_per_s = self._busiest() if whole is None else self._edge(float(whole), begun, whole)[1]
        checks = self._checks(service, edge_per_s, self._days)
        corrections = self._corrections(checks)
        best = self._once(service, corrections, whole)
        if best is None:
            return None
        raw, counter, whole = best
        binding = counter.binding(whole)
        deciding = max(checks, key=lambda each: each.error) if self._joint else checks[binding]
        error = math.hypot(deciding.error, 0.5 * deciding.misfit, LEAST)
        error = math.hypot(error, (BLUNT if deciding.by != "buckets" else SHARP) * self._costs.off)
        free, seen = raw, raw
        if not self._limit.reached:
            narrow = replace(service, max_batch=max(1, round(self._limit.most_seen)))
            there = self._once(narrow, corrections, whole)
            seen = math.inf if there is None else there[0]
        less, more = counter.sides(whole, min(MOST_REACH, ERRORS * error))
        at_work, per_s = self._edge(raw, counter, whole)
        shown = self._production.busiest() >= SHOWN * at_work
        if not (shown and deciding.by == "buckets"):
            by_costs = self._by_costs(edge_per_s, whole)
            less, more = math.hypot(less, by_costs), math.hypot(more, by_costs)
        # Where it is not known which of both is true, the truth lies between.
        middle = math.sqrt(free * seen) if math.isfinite(seen) else free
        high = max(free, seen) * math.exp(more) if math.isfinite(seen) and math.isfinite(more) else None
        return Counted(
            middle,
            middle * math.exp(lean(more, self._risk)),
            free,
            seen,
            min(free, seen) * math.exp(-less),
            high,
            binding,
            at_work,
            per_s,
            self._production.busiest(),
            shown,
            checks,
            error,
        )

    def _checks(self, service: Service, edge_per_s: float, days: Sequence[Day]) -> tuple[Check, ...]:
        """What replays of a service get wrong of each bound."""
        replica = replica_of(service, self._lengths)
        replays = [day.run(replica) for day in days]
        return tuple(
            check(self._production, replays, bound.metric, bound.bound_s, self._targets[of], edge_per_s)
            for bound, of in zip(self._bounds, self._of, strict=True)
        )

    def _corrections(self, checks: Sequence[Check]) -> tuple[float, ...]:
        found = tuple(each.correction for each in checks)
        return (sum(found) / len(found),) * len(found) if self._joint else found

    def _busiest(self) -> float:
        """Requests per second of a replica in the busiest group."""
        production = self._production
        top = production.group == production.groups - 1
        return float((production.per_s * production.alive)[top].sum() / max(1e-9, production.alive[top].sum()))

    def _counter(self, service: Service, corrections: Sequence[float]) -> Counter:
        return Counter(self._replica(service, corrections), self._asked, self._targets)

    def _guess(self, counter: Counter) -> int:
        busy = max(4.0, 2.0 * self._limit.most_seen)
        return mean_field(self._asked, busy, counter.replica.residence_s(busy))

    def _once(
        self, service: Service, corrections: Sequence[float], guess: int | None = None
    ) -> tuple[float, Counter, int] | None:
        """Unrounded and whole count of replicas of a kind; None where no number is enough."""
        counter = self._counter(service, corrections)
        whole = counter.fewest(guess or self._guess(counter))
        return None if whole is None else (counter.raw(whole), counter, whole)

    def _replica(self, service: Service, corrections: Sequence[float]) -> Batching:
        factors = tuple(math.exp(each) for each in corrections)
        return replica_of(
            service,
            self._lengths,
            self._bounds,
            joint=self._joint,
            factors=factors[:1] if self._joint else factors,
            most=8 * max(8.0, self._limit.most_seen),
        )

    def _edge(self, raw: float, counter: Counter, whole: int) -> tuple[float, float]:
        """Requests in flight and requests per second of a replica that carries all that it can."""
        load = self._asked.load * whole / raw
        found = counter.run(load, whole)
        if self._asked.users is None:
            return found.in_flight / whole, load / whole
        return found.in_flight / whole, load / whole / max(1e-9, found.runtime_s + self._asked.think_s)

    def _by_costs(self, edge_per_s: float, whole: int) -> float:
        """What the costs' errors make of the count's logarithm, at ``ERRORS`` of them.

        Moved costs are held against the pages as the best ones are: what these correct is no error.
        """
        import numpy as np

        def count(service: Service) -> float | None:
            corrections = self._corrections(self._checks(service, edge_per_s, self._days))
            found = self._once(service, corrections, whole)
            return None if found is None else found[0]

        values, vectors = np.linalg.eigh(self._costs.covariance)
        total = 0.0
        for value, vector in zip(values, vectors.T, strict=True):
            error = math.sqrt(max(0.0, float(value)))
            if error < SMALL:
                continue
            # Small steps to both sides, and what comes of them in proportion: far away others would fit again.
            step = min(error, MOST_MOVED)
            up, down = (count(self._costs.moved(sign * step * vector)) for sign in (1, -1))
            if up is not None and down is not None:
                total += (0.5 * math.log(up / down) * error / step) ** 2
        return ERRORS * math.sqrt(total)
