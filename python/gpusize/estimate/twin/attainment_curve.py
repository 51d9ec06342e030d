"""Attainment of one target against requests in flight, with all measured levels brought to bear on each number.

Between neighbouring loads the values of requests keep their shape and move as a whole: twice the iteration time makes
every answer take twice as long. So a level at 30 says what 32 would show once its values are moved by the distance of
the levels' tails. Attainment at c is the mean over the levels near c, each moved to c, weighted by its precision and
its nearness:

    A(c) = sum_j w_j A_j(c) / sum_j w_j,  A_j(c) = mean_i [ log v_ij + l(c) - l(c_j) <= log bound ]
    w_j = 1 / (s_j^2 + b_j^2)
    l(c) = log of the quantile that is asked for, from a weighted straight line through the levels near c

with s_j the standard error of A_j, never below that of as many requests at the levels' common share, and b_j the
attainment that a move which is 30 % wrong would be off by.

A mean is moved likewise, by the distance of the levels' means. The uncertainty comes from batches of time (Law,
Simulation Modeling and Analysis, 5th ed., section 9.5.3: batch means), each at least two residence times long, never
from single requests: requests of one batch share their iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.level_shares import FEWEST_BATCHES, Level, Moved, Share, mean_error, share_within
from gpusize.estimate.twin.visit_data import judged, mean_kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Curve"]

NEAR: Final = 0.15
"""Bandwidth in log c of the line through the levels' means."""
REACH: Final = 0.35
"""Levels up to so far in log c speak for a load, the less the further they are moved."""
FLAT: Final = 0.01
"""Quantiles are never taken for more precise than this."""
BENT: Final = 0.3
"""A moved bound is off by this share of the move: shapes are not quite the same at other loads."""
LEAST_DESIGN: Final = 60
"""Requests of a level without which it says nothing of the design effect."""
BATCH_RESIDENCES: Final = 2.0
MOST_BATCHES: Final = 20
FAILED: Final = 100.0
"""Of a mean over its bound where requests failed at every level near: far from kept, and finite in sums."""
BESIDE: Final = 0.3
"""Visits without a steady part do not count where two that have one are so near, in log c."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One objective over the levels of one target.

    Attributes:
        objective: what is judged.
        number: its row in ``Observed.values``.
        visits: closed loops; where the objective is about calls, those inside their requests are judged.
        near: bandwidth in log c.
    """

    objective: Objective
    number: int
    visits: Sequence[Observed]
    near: float = NEAR
    _seen: dict[float, Share] = field(default_factory=dict, init=False)
    _stretched: dict[tuple[int, float], float] = field(default_factory=dict, init=False)
    _means: dict[int, Share] = field(default_factory=dict, init=False)
    _far: dict[int, float] = field(default_factory=dict, init=False)
    _weighed: dict[int, list[tuple[float, float, NDArray[np.float64]]]] = field(default_factory=dict, init=False)

    @cached_property
    def levels(self) -> list[Level]:
        """One entry per number of users, ascending; those without a judged request are left out."""
        import numpy as np

        found = []
        known = judged(self.visits, self.objective)
        settled = [each for each in known if each.settled]
        for users in sorted({each.users for each in known}):
            if sum(abs(math.log(each.users / users)) < BESIDE for each in settled) >= 2:
                visits = [each for each in settled if each.users == users]
            else:
                visits = [each for each in known if each.users == users]
            if not visits:
                continue
            parts = [self._part(each) for each in visits]
            logs = np.concatenate([part for part, _ in parts])
            if not logs.size:
                continue
            offsets = np.cumsum([0, *(part.size for part, _ in parts[:-1])])
            edges = np.concatenate([edge[:-1] + offset for (_, edge), offset in zip(parts, offsets, strict=True)])
            finite = logs[np.isfinite(logs)]
            mean = float(np.exp(finite).mean()) if finite.size == logs.size else math.inf
            mean_log = float(finite.mean()) if finite.size else math.inf
            found.append(Level(users, mean_log, mean, logs, np.append(edges, logs.size), visits[0].settled))
        return found

    def _part(self, visit: Observed) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Logarithms of a visit's values and the edges of its batches."""
        import numpy as np

        values = visit.values[self.number]
        order = visit.by_end[~np.isnan(values[visit.by_end])]
        with np.errstate(divide="ignore"):
            logs = np.log(values[order])
        length_s = visit.window[1] - visit.window[0]
        fits = length_s / (BATCH_RESIDENCES * visit.residence_s) if visit.residence_s > 0 else 1.0
        batches = int(min(MOST_BATCHES, max(1.0, fits if math.isfinite(fits) else 1.0)))
        times = visit.left_s[order] - visit.window[0]
        bounds = np.linspace(0.0, length_s, batches + 1)[1:-1]
        edges = np.concatenate([[0], np.searchsorted(times, bounds), [logs.size]])
        return logs, np.unique(edges)

    @cached_property
    def _places(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of users, and of the quantile that is asked for, and its weight, by level."""
        import numpy as np

        rows = []
        for each in self.levels:
            if self.objective.share is None:
                if math.isfinite(each.mean) and each.mean > 0:
                    rows.append((math.log(each.users), math.log(each.mean), 1 / (mean_error(each)[0] ** 2 + FLAT**2)))
                continue
            own, share = self.own(each), self.objective.share
            around = [max(share - own.error, 0.01), share, min(share + own.error, 1.0)]
            low, at, high = (each.quantile(one) for one in around)
            if math.isfinite(at):
                # Of a level that nearly misses by its failures the upper end is one: it is as far as the lower.
                high = high if math.isfinite(high) else 2 * at - low
                rows.append((math.log(each.users), at, 1 / (0.25 * (high - low) ** 2 + FLAT**2)))
        found = np.array(rows).reshape(len(rows), 3)
        return found[:, 0], found[:, 1], found[:, 2]

    @property
    def fails(self) -> bool:
        """Whether no level has the quantile that is asked for, or the mean, as too many of its requests failed."""
        return bool(self.levels) and all(self._at(level) == math.inf for level in self.levels)

    def _at(self, level: Level) -> float:
        """Logarithm of the quantile that is asked for, infinite for a miss; of a mean the mean."""
        return level.mean if self.objective.share is None else level.quantile(self.objective.share)

    def location(self, users: float) -> float:
        """Logarithm of the quantile that is asked for, or of the mean, at so many requests in flight.

        From a weighted straight line through the levels near it (Cleveland 1979, local regression), as far around as
        two levels reach, never falling. Infinite where no level has it, as of a share, which is no time.
        """
        return self._line(users)[0]

    def elasticity(self, users: float) -> float:
        """By how many percent that time grows per percent more requests in flight; 0 where one load was measured."""
        return self._line(users)[1]

    def _line(self, users: float) -> tuple[float, float]:
        """Height and slope of the line at so many requests in flight."""
        import numpy as np

        x, y, n = self._places
        at = math.log(users)
        if not x.size:
            return math.inf, 0.0
        if x.size == 1:
            return float(y[0]), 0.0
        away = np.abs(x - at)
        width = max(self.near, float(np.sort(away)[1]))
        weight = n * np.exp(-0.5 * (away / width) ** 2)
        middle = float(weight @ x / weight.sum())
        level = float(weight @ y / weight.sum())
        spread = float(weight @ (x - middle) ** 2)
        slope = max(0.0, float(weight @ ((x - middle) * (y - level))) / spread) if spread > 0 else 0.0
        return level + slope * (at - middle), slope

    @property
    def range(self) -> tuple[int, int]:
        """Fewest and most users measured."""
        return self.levels[0].users, self.levels[-1].users

    def at(self, users: float) -> Share:
        """Attainment with so many requests in flight; a real number is a mixture of both neighbouring whole ones.

        Of a mean 2 less the mean over its bound (``mean_kept``), so that it holds from 1 on.
        """
        whole = math.floor(users)
        if whole == users:
            return self._whole(int(users))
        low, high = self._whole(max(1, whole)), self._whole(whole + 1)
        part = (users - whole) * (whole + 1) / users
        return Share(
            low.value + part * (high.value - low.value),
            low.error + part * (high.error - low.error),
            min(low.freedom, high.freedom),
        )

    def _whole(self, users: int) -> Share:
        if users not in self._seen:
            self._seen[users] = self._mean(users) if self.objective.share is None else self._moved(users)
        return self._seen[users]

    def own(self, level: Level) -> Share:
        """What one level alone says."""
        return share_within(
            level, math.log(self.objective.bound) if self.objective.bound > 0 else -math.inf, self._design
        )

    def tail(self, level: Level, share: float, *, least: float = FLAT) -> tuple[float, float, float] | None:
        """Logarithm of one level's quantile, its standard error, and degrees of freedom; of a mean's curve of the mean.

        The error is that of the share at the quantile, by the quantiles as far around it, or the ``least``. None where
        a miss may lie within it, or nothing has a logarithm there.
        """
        if self.objective.share is None:
            if not math.isfinite(level.mean) or level.mean <= 0:
                return None
            error, freedom = mean_error(level)
            return math.log(level.mean), max(least, error), freedom
        at = level.quantile(share)
        if not math.isfinite(at):
            return None
        own = share_within(level, at, self._design)
        low, high = level.quantile(max(share - own.error, 0.01)), level.quantile(min(share + own.error, 1.0))
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        return at, max(least, 0.5 * (high - low)), own.freedom

    @cached_property
    def _design(self) -> float:
        """Design effect (Kish, Survey Sampling, 1965, section 8.2): the variance of shares over single requests' one.

        From shares above the upper quartile and the upper tenth, which every level has, also one that misses nothing.
        """
        import numpy as np

        found, weights = [], []
        for each in self.levels:
            sizes = each.sizes
            if sizes.size < FEWEST_BATCHES or sizes.sum() < LEAST_DESIGN:
                continue
            for share in (0.75, 0.9):
                sums = sizes - each.within(each.quantile(share))
                p = float(sums.sum() / sizes.sum())
                if 0 < p < 1:
                    off = sums - p * sizes
                    k = sizes.size
                    found.append(float(off @ off) * k / (k - 1) / (p * (1 - p) * sizes.sum()))
                    weights.append(k - 1.0)
        return max(1.0, float(np.average(found, weights=weights))) if found else 1.0

    def mixed(self, users: float, stretch: float) -> float:
        """As ``at`` for a real number of users, with the bound multiplied by ``stretch``."""
        whole = math.floor(users)
        low = self.stretched(max(1, whole), stretch)
        if whole == users:
            return low
        part = (users - whole) * (whole + 1) / users
        return low + part * (self.stretched(whole + 1, stretch) - low)

    def stretched(self, users: int, stretch: float) -> float:
        """Attainment with so many requests in flight and the bound multiplied by ``stretch``."""
        key = (users, stretch)
        if key not in self._stretched:
            found = self._mean if self.objective.share is None else self._moved
            self._stretched[key] = found(users, stretch).value if stretch > 0 else 0.0
        return self._stretched[key]

    def stretches(self, users: int, stretch: NDArray[np.float64]) -> NDArray[np.float64]:
        """As ``stretched`` for many bounds at once, shape (n,); levels weigh as they do for the bound itself."""
        import numpy as np

        if self.objective.share is None:
            return mean_kept(self.mean_over_bound(users).value / stretch)
        if users not in self._weighed:
            here = self.location(users)
            near = self._rows(users, 1.0, here)
            self._weighed[users] = [
                (float(w), here - self.location(each.users) if math.isfinite(here) else 0.0, each.ordered)
                for w, each in zip(near.weights(self._design)[0], near.levels, strict=True)
            ]
        with np.errstate(divide="ignore"):
            limits = math.log(self.objective.bound) + np.log(stretch)
        found = np.zeros(limits.size)
        for weight, move, logs in self._weighed[users]:
            found += weight * np.searchsorted(logs, limits - move, "right") / logs.size
        return found

    def mean_over_bound(self, users: int) -> Share:
        """Of a mean's curve: the mean over its bound with so many requests in flight, from the levels near, moved."""
        if users not in self._means:
            self._means[users] = self._moved_mean(users)
        return self._means[users]

    def _moved_mean(self, users: int) -> Share:
        import numpy as np

        rows = []
        for each in self.levels:
            far = abs(math.log(each.users / users))
            if far > self._reach(users) or not (math.isfinite(each.mean) and each.mean > 0):
                continue
            move = self.location(users) - self.location(each.users)
            rows.append((each.mean * math.exp(move), *mean_error(each), BENT * abs(move) + BENT * 0.2 * far))
        if not rows or self.objective.bound <= 0:
            return Share(FAILED, 0.0, 1.0)
        mean, error, freedom, bent = np.array(rows).T
        weight = 1 / (np.maximum(error, FLAT) ** 2 + bent**2)
        weight /= weight.sum()
        ratio = float(weight @ mean) / self.objective.bound
        spread = float(np.sqrt((weight**2 * (error**2 + bent**2)).sum()))
        variances = (weight * np.maximum(error, 1e-9)) ** 2
        return Share(ratio, ratio * spread, float(variances.sum() ** 2 / (variances**2 / freedom).sum()))

    def _mean(self, users: int, stretch: float = 1.0) -> Share:
        found = self.mean_over_bound(users)
        return Share(mean_kept(found.value / stretch), found.error / stretch, found.freedom)

    def _moved(self, users: int, stretch: float = 1.0) -> Share:
        """The levels' moved attainments, weighted by what their batches and the distance of the move say."""
        import numpy as np

        here = self.location(users) if self._places[0].size else math.inf
        near = self._rows(users, stretch, here)
        weight, error = near.weights(self._design)
        spread = float(np.sqrt((weight**2 * (error**2 + near.bent**2)).sum()))
        variances = (weight * error) ** 2
        freedom = float(variances.sum() ** 2 / (variances**2 / near.freedom).sum())
        return Share(float(weight @ near.share), spread, freedom)

    def _rows(self, users: int, stretch: float, here: float) -> Moved:
        """The levels near enough, moved."""
        import numpy as np

        limit = math.log(self.objective.bound * stretch) if self.objective.bound > 0 else -math.inf
        levels, rows = [], []
        for each in self.levels:
            if abs(math.log(each.users / users)) > self._reach(users):
                continue
            move = here - self.location(each.users) if math.isfinite(here) else 0.0
            moved = share_within(each, limit - move, self._design)
            share = moved.value
            # What a wrong move is worth in attainment: the share of values between both bounds.
            wrong = BENT * abs(move) + BENT * 0.2 * abs(math.log(each.users / users))
            bent = 0.0
            if wrong > 0:
                between = 0.5 * each.near(limit - move, max(wrong, 1e-9))
                bent = max(between, wrong * max(share * (1 - share), 1 / each.logs.size))
            levels.append(each)
            rows.append((share, moved.error, moved.freedom, bent, float(each.logs.size)))
        return Moved(levels, *np.array(rows).T)

    def _reach(self, users: int) -> float:
        """How far, in log c, levels are brought to bear: at least as far as the nearest one."""
        key = -users
        if key not in self._far:
            away = sorted(abs(math.log(each.users / users)) for each in self.levels)
            self._far[key] = max(REACH, 1.5 * away[0] if away[0] > 0 else 0.0)
        return self._far[key]
