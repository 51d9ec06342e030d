"""How long things take where some had not ended when last looked at: Kaplan and Meier's estimate.

Leaving out what had not ended makes an overloaded cluster look fast. Here a duration that had lasted t and not ended
says that it is longer than t, and no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Percentile", "Survival", "kaplan_meier"]

LEVEL: Final = 0.95
_SLACK: Final = 1e-9
"""Products of shares miss a percentile by a rounding."""


class Percentile(NamedTuple):
    """A percentile and its interval; infinite where it is not reached."""

    value: float
    low: float
    high: float

    @property
    def reached(self) -> bool:
        """Whether so many had ended by the last look."""
        return math.isfinite(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Which share had not ended after which time.

    Attributes:
        times: at which something ended, ascending; shape (m,).
        left: share that had not ended just after each; shape (m,).
        low, high: interval of that share, at 95 %: the logarithm of the logarithm is taken for normal, with
            Greenwood's variance; shape (m,).
        n: durations.
        ended: of them.
    """

    times: NDArray[np.float64]
    left: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: int
    ended: int

    def percentile(self, share: float) -> Percentile:
        """The time by which a share of all had ended.

        The smallest time after which at most ``1 - share`` are left, so with nothing censored the inverted empirical
        distribution. Its interval has the times at which the interval of the share left crosses the same (Brookmeyer
        and Crowley 1982).

        Not reached is also what rests on the few that were looked at for longest: fewer than ``share`` of all had
        ended, and the interval has no upper end.

        Args:
            share: above 0, at most 1.
        """
        left = 1 - share
        value, low, high = (self._first(curve, left) for curve in (self.left, self.low, self.high))
        surely = self.ended >= share * self.n * (1 - _SLACK) or math.isfinite(high)
        return Percentile(value if surely else math.inf, low, high)

    def _first(self, curve: NDArray[np.float64], left: float) -> float:
        import numpy as np

        below = np.flatnonzero(curve <= left + _SLACK)
        return float(self.times[below[0]]) if below.size else math.inf

    def ended_by(self, time: float) -> float:
        """The share that had ended by a time."""
        import numpy as np

        place = int(np.searchsorted(self.times, time, side="right"))
        return 0.0 if place == 0 else 1 - float(self.left[place - 1])


def kaplan_meier(values: ArrayLike, ended: ArrayLike) -> Survival:
    """The share left over time.

    Args:
        values: how long each lasted, or had lasted when last looked at; shape (n,), any unit, negative ones too.
        ended: whether it had ended; shape (n,). What ended at a time at which something else was last looked at, ended
            before that.

    Returns:
        Empty arrays where nothing had ended.
    """
    import numpy as np

    given = np.asarray(values, dtype=np.float64)
    over = np.asarray(ended, dtype=bool)
    times, counts = np.unique(given[over], return_counts=True)
    ascending = np.sort(given)
    at_risk = given.size - np.searchsorted(ascending, times, side="left")
    left = np.cumprod(1 - counts / at_risk) if times.size else np.empty(0)
    # Where nobody is left there is no variance; the interval ends with the one before.
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(counts / (at_risk * (at_risk - counts)))
        logs = np.log(left)
        spread = NormalDist().inv_cdf((1 + LEVEL) / 2) * np.sqrt(variance) / np.abs(logs)
        low = np.nan_to_num(left ** np.exp(spread), nan=1.0)
        high = np.nan_to_num(left ** np.exp(-spread), nan=1.0)
    last = left <= _SLACK
    low[last] = 0.0
    high[last] = high[~last][-1] if (~last).any() else 1.0
    return Survival(times, np.where(last, 0.0, left), low, high, int(given.size), int(over.sum()))
