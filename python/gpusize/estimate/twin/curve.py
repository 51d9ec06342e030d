"""Attainment of one target against requests in flight, with all measured levels brought to bear on each number.

Between neighbouring loads the values of requests keep their shape and move as a whole: twice the iteration time makes
every answer take twice as long. So a level at 30 says what 32 would show once its values are moved by the distance of
the levels' means. Attainment at c is the mean over the levels near c, each moved to c, weighted by its requests and its
nearness:

    A(c) = sum_j w_j(c) sum_i [ log v_ij + l(c) - l(c_j) <= log bound ] / sum_j w_j(c) n_j
    l(c) = mean log value, straight in log c between levels, made non-decreasing (isotonic regression)
    w_j(c) = exp(-(log(c / c_j) / h)^2 / 2)

A mean needs no tail: it is read from the levels' means. The uncertainty comes from batches of time (Law, Simulation
Modeling and Analysis, 5th ed., section 9.5.3: batch means), each at least two residence times long, never from single
requests: requests of one batch share their iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.observed import Objective, Observed

__all__ = ["Curve", "Share"]

NEAR: Final = 0.15
"""Bandwidth h in log c: levels within some 15 % of a load speak for it."""
BATCH_RESIDENCES: Final = 2.0
MOST_BATCHES: Final = 20
BESIDE: Final = 0.3
"""Visits without a steady part do not count where two that have one are so near, in log c."""


@dataclass(frozen=True, slots=True)
class Share:
    """An attainment and its standard error, with the degrees of freedom that the error rests on."""

    value: float
    error: float
    freedom: float


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    users: int
    mean_log: float
    mean: float
    logs: NDArray[np.float64]
    """Logarithms of the values in order of due times; infinite for misses."""
    edges: NDArray[np.intp]
    """Where batches begin and end."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One objective over the levels of one target.

    Attributes:
        objective: what is judged.
        number: its row in ``Observed.values``.
        visits: closed loops without pauses.
        near: bandwidth in log c.
    """

    objective: Objective
    number: int
    visits: Sequence[Observed]
    near: float = NEAR
    _seen: dict[float, Share] = field(default_factory=dict, init=False)
    _stretched: dict[tuple[int, float], float] = field(default_factory=dict, init=False)

    @cached_property
    def levels(self) -> list[_Level]:
        """One entry per number of users, ascending; those without a judged request are left out."""
        import numpy as np

        found = []
        settled = [each for each in self.visits if each.settled]
        for users in sorted({each.users for each in self.visits}):
            if sum(abs(math.log(each.users / users)) < BESIDE for each in settled) >= 2:
                visits = [each for each in settled if each.users == users]
            else:
                visits = [each for each in self.visits if each.users == users]
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
            found.append(_Level(users, mean_log, mean, logs, np.append(edges, logs.size)))
        return found

    def _part(self, visit: Observed) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Logarithms of a visit's values and the edges of its batches."""
        import numpy as np

        values = visit.values[self.number]
        kept = visit.steady & ~np.isnan(values)
        with np.errstate(divide="ignore"):
            logs = np.log(values[kept])
        length_s = visit.window[1] - visit.window[0]
        fits = length_s / (BATCH_RESIDENCES * visit.residence_s) if visit.residence_s > 0 else 1.0
        batches = int(min(MOST_BATCHES, max(1.0, fits if math.isfinite(fits) else 1.0)))
        times = visit.due_s[kept] - visit.window[0]
        bounds = np.linspace(0.0, length_s, batches + 1)[1:-1]
        edges = np.concatenate([[0], np.searchsorted(times, bounds), [logs.size]])
        return logs, np.unique(edges)

    @cached_property
    def _means(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Logarithm of users, mean logarithm of values (non-decreasing) and requests, by level."""
        import numpy as np

        levels = [each for each in self.levels if math.isfinite(each.mean_log)]
        weights = [float(each.logs.size) for each in levels]
        return np.log([each.users for each in levels]), np.array([each.mean_log for each in levels]), np.array(weights)

    def location(self, users: float) -> float:
        """Mean logarithm of the values at so many requests in flight: a weighted straight line through the levels near it.

        Never falling (Cleveland 1979, local regression), as far around as two levels reach.
        """
        import numpy as np

        x, y, n = self._means
        at = math.log(users)
        if x.size == 1:
            return float(y[0])
        away = np.abs(x - at)
        width = max(self.near, float(np.sort(away)[1]))
        weight = n * np.exp(-0.5 * (away / width) ** 2)
        middle = float(weight @ x / weight.sum())
        level = float(weight @ y / weight.sum())
        spread = float(weight @ (x - middle) ** 2)
        slope = max(0.0, float(weight @ ((x - middle) * (y - level))) / spread) if spread > 0 else 0.0
        return level + slope * (at - middle)

    @property
    def range(self) -> tuple[int, int]:
        """Fewest and most users measured."""
        return self.levels[0].users, self.levels[-1].users

    def at(self, users: float) -> Share:
        """Attainment with so many requests in flight; a real number is a mixture of both neighbouring whole ones.

        For a mean, its bound over the mean, cut at 1, so that 1 is where it holds.
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

    def stretched(self, users: int, stretch: float) -> float:
        """Attainment with so many requests in flight and the bound multiplied by ``stretch``."""
        key = (users, stretch)
        if key not in self._stretched:
            self._stretched[key] = self._moved(users, stretch).value if stretch > 0 else 0.0
        return self._stretched[key]

    def _mean(self, users: int) -> Share:
        import numpy as np

        x = np.log([each.users for each in self.levels])
        y = np.maximum.accumulate([each.mean for each in self.levels])
        mean = float(np.interp(math.log(users), x, y))
        return Share(min(1.0, self.objective.bound / mean) if mean > 0 else 1.0, 0.0, 1.0)

    def _moved(self, users: int, stretch: float = 1.0) -> Share:
        import numpy as np

        x = math.log(users)
        nearest = min(abs(math.log(each.users) - x) for each in self.levels)
        total = good = 0.0
        pieces: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        here = self.location(users) if self._means[0].size else math.inf
        limit = math.log(self.objective.bound * stretch) if self.objective.bound > 0 else -math.inf
        for each in self.levels:
            far = (math.log(each.users) - x) / max(self.near, nearest)
            weight = math.exp(-0.5 * far * far)
            if weight < 1e-3:
                continue
            move = here - self.location(each.users) if math.isfinite(each.mean_log) else 0.0
            within = each.logs + move <= limit
            sums = np.add.reduceat(within, each.edges[:-1], dtype=float)
            sizes = np.diff(each.edges).astype(float)
            pieces.append((weight * sums, weight * sizes))
            good += float(weight * sums.sum())
            total += float(weight * sizes.sum())
        share = good / total
        return Share(share, *_error(pieces, share, total))


def _error(
    pieces: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], share: float, total: float
) -> tuple[float, float]:
    """Standard error of a ratio from batches (weighted), and its degrees of freedom by their weights.

    Never below that of independent requests with half a miss and half a hit more: where all batches agree, they do
    not prove that the share is 0 or 1.
    """
    import numpy as np

    goods = np.concatenate([good for good, _ in pieces])
    sizes = np.concatenate([size for _, size in pieces])
    k = sizes.size
    smooth = (share * total + 0.5) / (total + 1)
    floor = math.sqrt(smooth * (1 - smooth) / total)
    if k < 2:
        return 2 * floor, 1.0
    off = goods - share * sizes
    error = math.sqrt(float(off @ off) * k / (k - 1)) / total
    squares = sizes * sizes
    freedom = max(1.0, float(squares.sum()) ** 2 / float((squares * squares).sum()) - 1)
    return max(error, floor), freedom
