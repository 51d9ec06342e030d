"""A test of a mean that may be looked at as often as one likes, by betting, and the interval that belongs to it.

Whoever doubts that the mean of numbers in [0, 1] is at most m bets against it: capital grows by 1 + c (x / m - 1) with
each number x. If the mean is at most m, given all before, no bet of this kind is worth anything, so that the capital
ever reaches 1/alpha with a probability of at most alpha (Ville's inequality). Nothing is assumed of the distribution,
and there is no number of looks to be planned. Capital is spread over several stakes c; it is their mean.

Source: Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting, J. R. Stat. Soc. B 86(1),
sections 4 and 5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["STAKES", "Bets"]

STAKES: Final = (0.01, 0.03, 0.08, 0.2, 0.4, 0.65, 0.9)
"""Shares of the capital that are at stake with each number, beside each other: for small gaps and for large ones."""
_STEPS: Final = 60
"""Halvings of [0, 1] in the search for an end of the interval: to the last bit."""


class Bets:
    """Both doubts about the mean of numbers in [0, 1], after all of them: it is too low, and it is too high.

    The order of the numbers does not matter for what is true after the last of them.

    Args:
        values: in [0, 1], shape (n,).
    """

    def __init__(self, values: ArrayLike) -> None:
        import numpy as np

        # Few different values come again and again: blocks without a miss above all.
        self._values, self._counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
        self._stakes = np.array(STAKES)[:, None]

    def above(self, mean: float) -> float:
        """Log capital against "the mean is at most ``mean``"."""
        return self._log(self._values, mean)

    def below(self, mean: float) -> float:
        """Log capital against "the mean is at least ``mean``"."""
        return self._log(1.0 - self._values, 1.0 - mean)

    def low(self, error: float) -> float:
        """The highest mean that is ruled out as too low; at any time wrong with a probability of at most ``error``.

        Args:
            error: in (0, 1).
        """
        return self._end(self._values, error)

    def high(self, error: float) -> float:
        """The lowest mean that is ruled out as too high, likewise."""
        return 1.0 - self._end(1.0 - self._values, error)

    def _log(self, values: NDArray[np.float64], mean: float) -> float:
        import numpy as np

        if mean <= 0.0:
            return math.inf if (values > 0).any() else 0.0
        grown = (np.log1p(self._stakes * (values / mean - 1.0)[None, :]) * self._counts).sum(axis=1)
        top = float(grown.max())
        return top + float(np.log(np.exp(grown - top).mean()))

    def _end(self, values: NDArray[np.float64], error: float) -> float:
        wanted = -math.log(error)
        low, high = 0.0, 1.0
        # The capital falls as the mean that is doubted grows.
        if not values.size or self._log(values, 1e-12) < wanted:
            return 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._log(values, middle) >= wanted else (low, middle)
        return low
