"""By how much a load keeps an SLO, from all levels near it, with the standard error of that.

As `estimate.twin.attainment_curve`, levels are moved to the load by the distance of their tails and averaged. But all
of them are weighted as if they had missed the same share:

    w_j = 1 / (D p (1 - p) / n_j + b_j^2)

with p the share of all their requests, n_j a level's, D the design effect (Kish, Survey Sampling, 1965, section 8.2)
over the levels, and b_j what a move may be wrong by. A level's own error falls with the misses that it happens to have:
weighted by it, lucky levels count more, and the capacity comes out too high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.estimate.twin.level_shares import mean_error, share_within

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.level_shares import Level

__all__ = ["REACH", "Margin", "Pooled"]

REACH: Final = 0.35
"""Levels up to so far in log users speak for a load; the nearest one does in any case."""
BENT: Final = 0.3
"""A moved bound is off by this share of the move, and a fifth of it of the distance in log users."""


class Margin(NamedTuple):
    """By how much a load keeps an SLO (misses it, below 0), its standard error, and the error's degrees of freedom."""

    value: float
    error: float
    freedom: float


class _Level(NamedTuple):
    """A level moved to a load: its share, what that may be wrong by, and its batches' error with its freedom."""

    share: float
    bent: float
    error: float
    freedom: float
    n: int


@dataclass(frozen=True, eq=False)
class Pooled:
    """The margins of one SLO over the levels of one target.

    Attributes:
        curve: its levels.
    """

    curve: Curve
    _seen: dict[tuple[int, float], Margin] = field(default_factory=dict, init=False)

    def at(self, users: int, times: float = 1.0) -> Margin:
        """The margin with so many requests in flight: attainment less its target; of a mean, bound over mean less 1.

        With ``times`` as it would be with so many times the requests in each level, and the same to see in them.
        """
        key = (users, times)
        if key not in self._seen:
            margin = self._mean if self.curve.objective.share is None else self._share
            self._seen[key] = margin(users, times)
        return self._seen[key]

    def even_error(self, share: float, n: int) -> float:
        """Standard error of the share of so many requests, with the design effect of all."""
        inside = min(max(share, 0.5 / n), 1 - 0.5 / n)
        return math.sqrt(self._design * inside * (1 - inside) / n)

    def _share(self, users: int, times: float) -> Margin:
        import numpy as np

        target = self.curve.objective.share or 0.0
        share, bent, error, freedom, n = np.array(self._near(users)).T
        total = float(n.sum())
        p = min(max(float(share @ n) / total, 0.5 / total), 1 - 0.5 / total)
        n, error, freedom = times * n, error / math.sqrt(times), times * freedom
        even = np.sqrt(self._design * p * (1 - p) / n)
        weight = 1 / (even**2 + bent**2)
        weight /= weight.sum()
        spread = np.maximum(error, even)
        variances = (weight * spread) ** 2
        whole = math.sqrt(float((variances + (weight * bent) ** 2).sum()))
        return Margin(
            float(weight @ share) - target, whole, float(variances.sum() ** 2 / (variances**2 / freedom).sum())
        )

    def _near(self, users: int) -> list[_Level]:
        """The levels that speak for a load, moved to it."""
        objective = self.curve.objective
        limit = math.log(objective.bound) if objective.bound > 0 else -math.inf
        away = [abs(math.log(each.users / users)) for each in self.curve.levels]
        reach = max(REACH, 1.5 * min(away))
        found = []
        for level, far in zip(self.curve.levels, away, strict=True):
            if far > reach:
                continue
            move = self._move(level.users, users)
            share, error, freedom = _alone(level, limit - move)
            # What a wrong move is worth in attainment: the share of values between both bounds.
            wrong = BENT * abs(move) + 0.2 * BENT * far
            bent = 0.0
            if wrong > 0:
                bent = max(0.5 * level.near(limit - move, wrong), wrong * max(share * (1 - share), 1 / level.logs.size))
            found.append(_Level(share, bent, error, freedom, level.logs.size))
        return found

    def _move(self, level: int, users: int) -> float:
        """By how much the logarithms of a level's values are larger with so many users; 0 where no tail is finite."""
        if not self._tails:
            return 0.0
        return self.curve.location(users) - self.curve.location(level)

    @cached_property
    def _tails(self) -> bool:
        share = self.curve.objective.share or 0.5
        return any(math.isfinite(each.quantile(share)) for each in self.curve.levels)

    @cached_property
    def _design(self) -> float:
        """The variance of shares over that of single requests, over all levels; at least 1."""
        objective = self.curve.objective
        limit = math.log(objective.bound) if objective.bound > 0 else -math.inf
        total, weights = 0.0, 0
        for level in self.curve.levels:
            n = level.logs.size
            share, error, _ = _alone(level, limit)
            smooth = (share * n + 0.5) / (n + 1)
            total += n * error**2 * n / (smooth * (1 - smooth))
            weights += n
        return max(1.0, total / weights)

    def _mean(self, users: int, times: float) -> Margin:
        """Of a mean: read between the levels'; its error is the larger of the neighbours'."""
        import numpy as np

        levels = self.curve.levels
        x = np.log([each.users for each in levels])
        y = np.maximum.accumulate([each.mean for each in levels])
        at = math.log(users)
        mean = float(np.interp(at, x, y))
        right = min(int(np.searchsorted(x, at)), len(levels) - 1)
        near = {right} if x[right] == at else {max(0, right - 1), right}
        error, freedom = max(mean_error(levels[k]) for k in near)
        if not (mean > 0 and math.isfinite(mean) and math.isfinite(error)):
            return Margin(-1.0, 0.0, freedom)
        ratio = self.curve.objective.bound / mean
        return Margin(ratio - 1.0, ratio * error / math.sqrt(times), times * freedom)


def _alone(level: Level, limit: float) -> tuple[float, float, float]:
    """A level's share with its standard error, as if requests were independent where batches do not tell otherwise."""
    found = share_within(level, limit, design=1.0)
    return found.value, found.error, found.freedom
