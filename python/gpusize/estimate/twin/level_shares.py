"""What single levels say of a share of their requests, or of their mean, and how sure it is.

Errors come from batches of time, never from single requests: requests of one batch share their iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DESIGN", "FEWEST_BATCHES", "Level", "Moved", "Share", "mean_error", "share_within"]

FEWEST_BATCHES: Final = 4
DESIGN: Final = 1.9
"""Where there are fewer batches: the root of the median design effect of requests near the capacity, 3.5."""


@dataclass(frozen=True, slots=True)
class Share:
    """An attainment and its standard error, with the degrees of freedom that the error rests on."""

    value: float
    error: float
    freedom: float


FARTHEST: Final = 750.0
"""Beyond the logarithm of every positive double."""


@dataclass(frozen=True, eq=False)
class Level:
    """Values of one number of users, of all its visits.

    Shares are asked for hundreds of times, at as many bounds: values are put in order once.
    """

    users: int
    mean_log: float
    mean: float
    logs: NDArray[np.float64]
    """Logarithms of the values in order of due times; infinite for misses."""
    edges: NDArray[np.intp]
    """Where batches begin and end."""
    settled: bool = True
    """Whether a visit had a steady part; times of the others hold their beginning too."""

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """Values of each batch."""
        import numpy as np

        return np.diff(self.edges).astype(float)

    @cached_property
    def ordered(self) -> NDArray[np.float64]:
        """The logarithms, ascending."""
        import numpy as np

        return np.sort(self.logs)

    @cached_property
    def _batches(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Every batch in order, each moved beyond the one before it; and by how much: one search then finds all."""
        import numpy as np

        moved = 3 * FARTHEST * np.arange(self.sizes.size, dtype=np.float64)
        finite = np.clip(self.logs, -FARTHEST, FARTHEST)
        return np.sort(finite + np.repeat(moved, np.diff(self.edges))), moved

    def within(self, limit: float) -> NDArray[np.float64]:
        """How many values of each batch are at most so large: ``limit`` is a logarithm."""
        import numpy as np

        ordered, moved = self._batches
        found = np.searchsorted(ordered, moved + min(max(limit, -FARTHEST), FARTHEST), "right")
        return (found - self.edges[:-1]).astype(float)

    def near(self, limit: float, reach: float) -> float:
        """The share of values whose logarithms are at most so far from a limit."""
        import numpy as np

        low = int(np.searchsorted(self.ordered, limit - reach, "left"))
        high = int(np.searchsorted(self.ordered, limit + reach, "right"))
        return (high - low) / self.logs.size

    def quantile(self, share: float) -> float:
        """The least logarithm that so large a share of the values is at most (the inverse of their distribution)."""
        return float(self.ordered[max(0, math.ceil(self.logs.size * share - 1))])


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Levels near a load, moved to it: arrays of shape (n,)."""

    levels: Sequence[Level]
    share: NDArray[np.float64]
    error: NDArray[np.float64]
    """Of the shares, by each level's own batches."""
    freedom: NDArray[np.float64]
    bent: NDArray[np.float64]
    """What the move may be wrong by."""
    sizes: NDArray[np.float64]
    """Requests."""

    def weights(self, design: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How much each level counts, all together 1, and the standard errors of their shares."""
        error = _errors(self, design)
        weight = 1 / (error**2 + self.bent**2)
        return weight / weight.sum(), error


def share_within(level: Level, limit: float, design: float) -> Share:
    """How many of a level's values are at most so large: ``limit`` is a logarithm."""
    kept = level.within(limit)
    return Share(float(kept.sum() / level.sizes.sum()), *_error(kept, level.sizes, design))


def _errors(near: Moved, design: float) -> NDArray[np.float64]:
    """Standard errors of the levels' moved shares, none below what so many requests scatter by at the common share.

    A level of a hundred requests that all keep the bound does not know that better than one of a thousand, of which one
    in three misses it: what is rare in few requests is not seen. Hence levels are weighed by how many requests they
    have (as in a test that their shares are one), and not by the share that they found.
    """
    import numpy as np

    independent = design / near.sizes
    weight = 1 / (0.25 * independent + near.bent**2)
    share = min(1.0, max(0.0, float(weight @ near.share / weight.sum())))
    return np.maximum(near.error, np.sqrt(share * (1 - share) * independent))


def mean_error(level: Level) -> tuple[float, float]:
    """Standard error of a level's mean as a share of it, from batches, and its degrees of freedom.

    Never below that of independent requests; infinite where a request failed.
    """
    import numpy as np

    values, sizes = np.exp(level.logs), level.sizes
    if not math.isfinite(level.mean) or level.mean <= 0:
        return math.inf, float(FEWEST_BATCHES)
    k, n = sizes.size, values.size
    floor = float(values.std()) / math.sqrt(n) / level.mean
    if k < FEWEST_BATCHES:
        return DESIGN * floor, float(FEWEST_BATCHES)
    off = np.add.reduceat(values, level.edges[:-1]) - level.mean * sizes
    return max(floor, math.sqrt(float(off @ off) * k / (k - 1)) / n / level.mean), float(k - 1)


def _error(goods: NDArray[np.float64], sizes: NDArray[np.float64], design: float) -> tuple[float, float]:
    """Standard error of a ratio from batches, and its degrees of freedom.

    Never below that of requests with the curve's design effect, and half a miss and half a hit more: where all batches
    agree, they do not prove that the share is 0 or 1.
    """
    k, total = sizes.size, float(sizes.sum())
    share = float(goods.sum()) / total
    smooth = (share * total + 0.5) / (total + 1)
    floor = math.sqrt(design * smooth * (1 - smooth) / total)
    if k < FEWEST_BATCHES:
        return max(DESIGN, math.sqrt(design)) / math.sqrt(design) * floor, float(FEWEST_BATCHES)
    off = goods - share * sizes
    error = math.sqrt(float(off @ off) * k / (k - 1)) / total
    return max(error, floor), float(k - 1)
