"""What replicas cost each other: the slowness of all times on n replicas, from visits of several counts.

Gunther's law (Guerrilla Capacity Planning, 2007, chapter 4: contention and coherency) as a factor on every time of a
replica:

    s(n) = 1 + sigma (n - 1) + kappa n (n - 1)

A visit of n replicas (and, for comparison, of one) is held against the fitted replica, simulated n times behind the
same router without any loss: in a
closed loop without pauses all its times are longer by s(n), so their ratio is s(n). Where tokens are known, times
are taken per token, so that the lengths that were drawn do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Replica
from gpusize.estimate.twin.task_model import Tasks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Contention", "contention"]

SEEN: Final = 2.5
"""Standard errors from 1 below which no loss is claimed."""
BENDS: Final = 9.0
"""What the second term must take off the sum of squares to be there: three standard errors."""
ALIKE: Final = 0.3
"""How far, in log users of a replica, a visit of one may be to stand for the model's own error there."""
BETWEEN: Final = 0.8
"""Likewise, where there is one on either side."""
BENT: Final = 0.25
"""Between two loads the model's own error is off the straight line by this share of their difference, in the middle."""
LEAST_ERROR: Final = 0.004
REQUESTS: Final = 20_000
FEWEST: Final = 20
SLOWEST: Final = (0.3, 6.0)
"""Between these a slowness is looked for, until both ends are so close, and how it shows by a step on both sides."""
CLOSE: Final = 0.002
STEP: Final = 1.05
LEAST_GROWTH: Final = 0.1
"""Times that grow more slowly with it do not tell it."""
"""Visits with fewer requests say nothing."""


@dataclass(frozen=True, slots=True)
class Contention:
    """The loss, and what it rests on.

    Attributes:
        sigma: contention.
        kappa: coherency.
        sigma_error: standard error of the slope; 0 where no loss is claimed: linear scaling is then assumed.
        counts: (replicas, slowness, standard error) as measured; empty where only one count was.
    """

    sigma: float = 0.0
    kappa: float = 0.0
    sigma_error: float = 0.0
    counts: tuple[tuple[int, float, float], ...] = ()

    def slowness(self, replicas: int) -> float:
        """The factor on all times."""
        return 1 + (replicas - 1) * (self.sigma + self.kappa * replicas)

    def error(self, replicas: int) -> float:
        """Relative standard error of the factor."""
        return (replicas - 1) * self.sigma_error / self.slowness(replicas)

    def weaker(self, errors: float) -> Contention:
        """The same with both coefficients so many standard errors of the first smaller, in proportion."""
        if self.sigma_error <= 0 or errors <= 0:
            return self
        scale = max(self.sigma, self.kappa, 1e-12)
        part = max(0.0, 1 - errors * self.sigma_error / scale)
        return replace(self, sigma=part * self.sigma, kappa=part * self.kappa)

    @property
    def most(self) -> int | None:
        """Replicas beyond which another one makes the whole slower; None without such a number."""
        if self.kappa <= 0:
            return None
        return max(1, math.floor(math.sqrt(max(0.0, 1 - self.sigma) / self.kappa)))


def contention(visits: Sequence[Observed], base: int, replica: Replica, router: str) -> Contention:
    """From visits of more GPUs than ``base``; without any, no loss is assumed."""
    points = []
    alone = [each for each in visits if each.gpus == base]
    for gpus in sorted({each.gpus for each in visits if each.gpus > base}):
        same = [each for each in visits if each.gpus == gpus]
        found = [_against(each, alone, gpus // base, replica, router) for each in same]
        known = [each for each in found if each is not None]
        if known:
            weight = sum(1 / error**2 for _, error in known)
            points.append((gpus // base, sum(s / e**2 for s, e in known) / weight, math.sqrt(1 / weight)))
    return _fitted(points)


def _fitted(points: Sequence[tuple[int, float, float]]) -> Contention:
    counts = tuple(points)
    if not points:
        return Contention()
    weights = [1 / error**2 for _, _, error in points]
    reach = [n - 1 for n, _, _ in points]
    loss = [s - 1 for _, s, _ in points]
    held = sum(w * x * x for w, x in zip(weights, reach, strict=True))
    sigma_error = math.sqrt(1 / held)
    sigma = max(0.0, sum(w * x * y for w, x, y in zip(weights, reach, loss, strict=True)) / held)
    if sigma < SEEN * sigma_error:
        return Contention(counts=counts)
    one = sum(w * (y - sigma * x) ** 2 for w, x, y in zip(weights, reach, loss, strict=True))
    if len(points) > 1:
        both = _both(points, weights)
        if both is not None and one - both[2] > BENDS:
            return Contention(both[0], both[1], sigma_error, counts)
    return Contention(sigma, 0.0, sigma_error, counts)


def _both(points: Sequence[tuple[int, float, float]], weights: Sequence[float]) -> tuple[float, float, float] | None:
    """sigma, kappa and the sum of squares they leave; None where both would be negative."""
    import numpy as np

    n = np.array([each[0] for each in points], dtype=float)
    design = np.stack([n - 1, n * (n - 1)], axis=1) * np.sqrt(weights)[:, None]
    loss = (np.array([each[1] for each in points]) - 1) * np.sqrt(weights)
    best: tuple[float, float, float] | None = None
    for chosen in ([0, 1], [1]):
        found, *_ = np.linalg.lstsq(design[:, chosen], loss, rcond=None)
        if (found < 0).any():
            continue
        off = loss - design[:, chosen] @ found
        left = float(off @ off)
        sigma, kappa = (float(found[0]), float(found[1])) if len(chosen) == 2 else (0.0, float(found[0]))
        if best is None or left < best[2]:
            best = sigma, kappa, left
    return best


def _against(
    visit: Observed, alone: Sequence[Observed], replicas: int, replica: Replica, router: str
) -> tuple[float, float] | None:
    """As ``_held``, over the same for one replica at the same load, which has no loss: what the model gets wrong."""
    found = _held(visit, replicas, replica, router)
    settled = [each for each in alone if each.settled] or list(alone)
    own = _alone(settled, visit.users / replicas, replica, router) if found is not None else None
    if found is None or own is None:
        return found
    return found[0] / own[0], found[0] / own[0] * math.hypot(found[1] / found[0], own[1] / own[0])


def _alone(visits: Sequence[Observed], users: float, replica: Replica, router: str) -> tuple[float, float] | None:
    """``_held`` of one replica with so many users: straight in log users between the measured loads on both sides.

    Where there is none on one side, that of the nearest load, if it is near enough; else None.
    """
    visits = [each for each in visits if int((each.steady & each.ok).sum()) >= FEWEST]
    loads = sorted({each.users for each in visits if abs(math.log(each.users / users)) <= BETWEEN})
    below = max((each for each in loads if each <= users), default=None)
    above = min((each for each in loads if each >= users), default=None)
    if below is None or above is None:
        nearest = below or above
        if nearest is None or abs(math.log(nearest / users)) > ALIKE:
            return None
        below = above = nearest
    low, high = (_pooled([each for each in visits if each.users == load], replica, router) for load in (below, above))
    if low is None or high is None or below == above:
        return None if high is None else low
    part = math.log(users / below) / math.log(above / below)
    bend = BENT * abs(high[0] - low[0]) * 4 * part * (1 - part)
    error = math.hypot((1 - part) * low[1], part * high[1], bend)
    return low[0] + part * (high[0] - low[0]), error


def _pooled(visits: Sequence[Observed], replica: Replica, router: str) -> tuple[float, float] | None:
    """``_held`` of visits of one replica with the same number of users, together."""
    held = [found for each in visits if (found := _held(each, 1, replica, router))]
    if not held:
        return None
    weight = sum(1 / error**2 for _, error in held)
    return sum(s / e**2 for s, e in held) / weight, math.sqrt(1 / weight)


def _held(visit: Observed, replicas: int, replica: Replica, router: str) -> tuple[float, float] | None:
    """Slowness and its standard error by one visit."""
    import numpy as np

    kept = visit.steady & visit.ok
    took = (visit.last_s - visit.sent_s)[kept]
    if took.size < FEWEST:
        return None
    tokens = visit.tokens_out[kept]
    load = ClusterLoad.of_visit(visit, router)
    if isinstance(replica, Tasks):
        return _in_part(replica, load, replicas, took)
    simulated = replica.run(load, replicas, requests=REQUESTS)
    if replica.tokens is None or not np.isfinite(tokens).all():
        tokens = np.ones_like(took)
        expected = simulated.runtime_s
    else:
        expected = simulated.runtime_s / replica.tokens
    pace = float(took.sum() / tokens.sum())
    off = took - pace * tokens
    # Requests that run at the same time share their iterations: a third as many count as independent.
    error = math.sqrt(3 * float(off @ off)) / float(took.sum())
    slowness = pace / expected
    return slowness, slowness * max(error, LEAST_ERROR)


def _in_part(replica: Tasks, load: ClusterLoad, replicas: int, took: NDArray[np.float64]) -> tuple[float, float] | None:
    """The same where requests are at a replica for a part of their time, or of their users': only that is slower.

    By the slowness with which simulated requests take as long as the measured ones.
    """
    mean_s = float(took.mean())

    def off(slowness: float) -> float:
        simulated = replica.run(load.quickened(slowness), replicas, requests=REQUESTS)
        return math.log(slowness * simulated.runtime_s / mean_s)

    low, high = SLOWEST
    if off(low) > 0 or off(high) < 0:
        return None
    while high / low > 1 + CLOSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if off(middle) < 0 else (low, middle)
    found = math.sqrt(low * high)
    # How much of a request's time grows with it tells what the mean's error is worth.
    grows = max(LEAST_GROWTH, (off(STEP * found) - off(found / STEP)) / (2 * math.log(STEP)))
    error = math.sqrt(3 * float(took.var()) / took.size) / mean_s
    return found, found * max(error / grows, LEAST_ERROR)
