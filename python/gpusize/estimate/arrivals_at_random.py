"""What a target carries of requests that come at random, from closed loops: a queue as fast as these were.

The target is taken for one flow-equivalent server (Chandy, Herzog and Woo 1975; Lazowska et al., Quantitative System
Performance, 1984, chapter 8). With n in flight it answers X(n) requests/s, the throughput of the closed loop of n, so
that for Poisson arrivals of rate r the number in flight is a birth-death process:

    p(n) = p(0) r^n / (X(1) X(2) ... X(n))

An arrival finds n in flight with p(n) (PASTA, Wolff 1982), and keeps the SLO as the requests of the closed loop of
n + 1 did: by their share, straight between levels, and not at all beyond the largest level that says something. A mean
goes on there in proportion to the number in flight.

A target m times as large has m X(n / m). Many replicas behind one router even out what one cannot, so that the larger
the load, the busier they may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.estimate.slo_limit import kept_by_load

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["ArrivalsAtRandom"]

MOST_STATES: Final = 20_000
"""Numbers in flight that are looked at one by one; a larger target may be as busy as one of that size."""
STEPS: Final = 40
"""Halvings of a gap."""
LARGEST: Final = 1e6
"""Times the tested target: larger ones are not looked for."""


@dataclass(frozen=True, slots=True)
class ArrivalsAtRandom:
    """A target as a queue.

    Attributes:
        users: requests in flight of its closed loops, ascending.
        rates: what they answered per second, non-decreasing.
        loads: requests in flight of the levels that say something of the SLO, ascending.
        kept: how they keep it: the share of the requests that do, or 1 less the mean over its bound.
        enough: that share, or 0 of a mean.
        mean: whether it is a mean.
        capacity: throughput of the closed loop at the edge of the SLO, requests per second.
    """

    users: tuple[float, ...]
    rates: tuple[float, ...]
    loads: tuple[float, ...]
    kept: tuple[float, ...]
    enough: float
    mean: bool
    capacity: float

    @classmethod
    def of(
        cls, users: Sequence[float], rates: Sequence[float], levels: Sequence[LevelData], slo: Slo, capacity: float
    ) -> ArrivalsAtRandom | None:
        """From closed-loop levels of one count; None where none says how many requests keep the SLO."""
        found = kept_by_load(levels, slo)
        if not found:
            return None
        mean = slo.kind == "mean"
        loads, kept = zip(*found, strict=True)
        return cls(tuple(users), tuple(rates), loads, kept, 0.0 if mean else slo.share, mean, capacity)

    def most(self, times: float = 1.0) -> float:
        """The highest rate of Poisson arrivals, per second, that a target ``times`` as large carries within the SLO.

        0 where none is carried.
        """
        sized = min(times, MOST_STATES / self.users[-1])
        low, high = 0.0, sized * self.rates[-1]
        for _ in range(STEPS):
            rate = (low + high) / 2
            low, high = (rate, high) if self._keeps(rate, sized) else (low, rate)
        return low * times / sized

    def closed_rate(self, rate: float) -> float:
        """The throughput, at the SLO's edge in a closed loop, of the smallest target that carries ``rate`` at random.

        inf where none does.
        """
        low = high = rate / self.rates[-1]
        while self.most(high) < rate:
            if high > LARGEST:
                return math.inf
            low, high = high, 2 * high
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.most(middle) >= rate else (middle, high)
        return high * self.capacity

    def _keeps(self, rate: float, times: float) -> bool:
        import numpy as np

        top = max(1, math.ceil(times * self.users[-1]))
        flight = np.arange(1, top + 1)
        speed = times * np.interp(flight / times, [0.0, *self.users], [0.0, *self.rates])
        # With more in flight than at the largest level nothing is faster: from there the chances fall geometrically.
        ratio = rate / float(speed[-1])
        if not 0 < ratio < 1:
            return False
        logs = np.concatenate([[0.0], np.cumsum(math.log(rate) - np.log(speed))])
        chance = np.exp(logs - logs.max())
        beyond = float(chance[-1]) * ratio / (1 - ratio)
        kept = float(chance @ self._kept((np.arange(top + 1) + 1) / times))
        if self.mean:
            kept += beyond * float(self._mean_kept(np.array((top + 1 + 1 / (1 - ratio)) / times)))
        return kept / (float(chance.sum()) + beyond) >= self.enough

    def _kept(self, flight: NDArray[np.float64]) -> NDArray[np.float64]:
        """How requests keep the SLO that have so many in flight with them, per target that was tested."""
        import numpy as np

        # A request has itself in flight, however many targets there are.
        flight = np.maximum(flight, 1.0)
        if self.mean:
            inside = np.interp(flight, self.loads, self.kept)
            return np.where(flight > self.loads[-1], self._mean_kept(flight), inside)
        return np.interp(flight, [0.0, *self.loads], [1.0, *self.kept], right=0.0)

    def _mean_kept(self, flight: NDArray[np.float64]) -> NDArray[np.float64]:
        """1 less a mean over its bound beyond the largest level, in proportion to the number in flight."""
        return 1 - (1 - self.kept[-1]) * flight / self.loads[-1]
