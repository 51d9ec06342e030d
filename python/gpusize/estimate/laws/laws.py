"""Three laws of scaling, each a case of the next.

    linear   X(n) = l n
    Amdahl   X(n) = l n / (1 + s (n - 1))                         Amdahl 1967
    USL      X(n) = l n / (1 + s (n - 1) + k n (n - 1))           Gunther 1993, 2007

l is the capacity of one, s (sigma) the share of the work that all have to wait for, k (kappa) what each pays to keep
up with each other. With k > 0 there is a peak at n* = sqrt((1 - s) / k); beyond it more carry less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["AMDAHL", "LAWS", "LINEAR", "USL", "Law"]

LINEAR: Final = "linear"
AMDAHL: Final = "amdahl"
USL: Final = "usl"
LAWS: Final = (LINEAR, AMDAHL, USL)
"""The laws by name, from the fewest parameters to the most."""

FUZZ: Final = 1e-9
"""Relative rounding error of the arithmetic: a capacity short by less meets what is wanted."""


@dataclass(frozen=True, slots=True)
class Law:
    """A curve of capacity against the count.

    Attributes:
        name: ``linear``, ``amdahl`` or ``usl``.
        one: capacity of one, in any unit of load.
        sigma: 0 to 1.
        kappa: 0 or more.
    """

    name: str
    one: float
    sigma: float = 0.0
    kappa: float = 0.0

    def at(self, n: float) -> float:
        """Capacity of n, n >= 1."""
        return self.one * n / (1 + self.sigma * (n - 1) + self.kappa * n * (n - 1))

    def efficiency(self, n: float) -> float:
        """Capacity of n over n times that of one: 1 without any loss."""
        return self.at(n) / (n * self.one)

    @property
    def peak(self) -> float:
        """The count of largest capacity, at least 1; infinite where the curve rises forever, or is flat."""
        if self.kappa <= 0:
            return math.inf
        return max(1.0, math.sqrt((1 - self.sigma) / self.kappa))

    @property
    def limit(self) -> float:
        """What no count exceeds: the capacity at the peak, Amdahl's l / s, or infinite."""
        if self.kappa > 0:
            return self.at(self.peak)
        return self.one / self.sigma if self.sigma > 0 else math.inf

    def smallest(self, wanted: float) -> int | None:
        """The smallest whole count whose capacity is at least ``wanted`` (> 0); None where there is none.

        X(n) >= W is  k W n^2 + (s W - k W - l) n + W (1 - s) <= 0: the count is the smaller root, rounded up.
        """
        target = wanted * (1 - FUZZ)
        square = self.kappa * target
        slope = self.sigma * target - square - self.one
        rest = target * (1 - self.sigma)
        if slope >= 0:
            return 1 if self.at(1) >= target else None
        inside = slope * slope - 4 * square * rest
        if inside < 0:
            return None
        root = 2 * rest / (-slope + math.sqrt(inside))
        if root > 1e15:
            return None
        # The formula is exact but for rounding; its neighbours settle that.
        near = max(1, math.ceil(root) - 1)
        return next((n for n in (near, near + 1, near + 2) if self.at(n) >= target), None)
