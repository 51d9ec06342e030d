"""What a target carries of requests that come at random, from closed loops: a queue as fast as these were.

The target is taken for one flow-equivalent server (Chandy, Herzog and Woo 1975; Lazowska et al., Quantitative System
Performance, 1984, chapter 8). With n in flight it answers X(n) requests/s, the throughput of the closed loop of n, so
that for Poisson arrivals of rate r the number in flight is a birth-death process:

    p(n) = p(0) r^n / (X(1) X(2) ... X(n))

An arrival finds n in flight with p(n) (PASTA, Wolff 1982), and keeps the SLO as the requests of the closed loop of
n + 1 did: by their share, straight between levels, and not at all from one request beyond the largest level that says
something. A mean goes on there in proportion to the number in flight.

A target m times as large has m X(n / m). Many replicas behind one router even out what one cannot, so that the larger
the load, the busier they may be. A router that picks at random evens out nothing: each target of the tested size then
gets Poisson arrivals of its own (splitting, Kingman 1993), and m of them carry m times what one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
LARGEST: Final = 1e9
"""Times the tested target: larger ones are not looked for."""
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ArrivalsAtRandom:
    """A target as a queue.

    Attributes:
        users: requests in flight of its closed loops, ascending.
        rates: what they answered per second.
        loads: requests in flight of the levels that say something of the SLO, and its edge, ascending.
        kept: how they keep it: the share of the requests that do, or 1 less the mean over its bound; non-increasing.
        enough: that share, or 0 of a mean.
        mean: whether it is a mean.
        capacity: throughput of the closed loop at the edge of the SLO, requests per second.
        apart: whether a larger target is several of this one, each with a queue of its own.
    """

    users: tuple[float, ...]
    rates: tuple[float, ...]
    loads: tuple[float, ...]
    kept: tuple[float, ...]
    enough: float
    mean: bool
    capacity: float
    apart: bool = False

    @classmethod
    def of(
        cls,
        throughput: Sequence[tuple[float, float]],
        levels: Sequence[LevelData],
        slo: Slo,
        capacity: float,
        edge: float | None,
        *,
        apart: bool = False,
    ) -> ArrivalsAtRandom | None:
        """From closed-loop levels of one count.

        Args:
            throughput: requests in flight and per second of its levels, ascending by the former.
            levels: these.
            slo: what is to be kept.
            capacity: requests per second at the SLO's edge.
            edge: requests in flight there; None where every level keeps it.
            apart: whether the router picks among such targets at random.

        Returns:
            None where no level says how many requests keep the SLO.
        """
        found = kept_by_load(levels, slo)
        if not found:
            return None
        mean = slo.kind == "mean"
        enough = 0.0 if mean else slo.share
        if edge is not None:
            # Shares between stated percentiles are a guess; on which side of the edge a level lies is known.
            below = [(load, max(kept, enough)) for load, kept in found if load < edge]
            found = [*below, (edge, enough), *((load, min(kept, enough)) for load, kept in found if load > edge)]
        loads, kept = zip(*found, strict=True)
        users, rates = zip(*throughput, strict=True)
        return cls(users, rates, loads, kept, enough, mean, capacity, apart)

    def most(self, times: float = 1.0) -> float:
        """The highest rate of Poisson arrivals, per second, that a target ``times`` as large carries within the SLO.

        At most what it answers in a closed loop; 0 where none is carried.
        """
        sized = 1.0 if self.apart else min(times, self.largest)
        return _most(self, sized) * times / sized if sized > 0 else 0.0

    def closed_rate(self, rate: float) -> float:
        """The throughput, at the SLO's edge in a closed loop, of the smallest target that carries ``rate`` at random.

        inf where none does.
        """
        if self.apart:
            most = self.most()
            return rate * self.capacity / most if most > 0 else math.inf
        return _closed_rate(self, rate)

    @property
    def largest(self) -> float:
        """Times this target: a larger one is taken to be as busy as one of that size."""
        return MOST_STATES / self.users[-1]

    def keeps(self, rate: float, times: float) -> bool:
        """Whether a target ``times`` as large, and no larger than can be looked at, carries this rate at random."""
        import numpy as np

        top = max(1, math.ceil(times * max(self.users[-1], self.loads[-1])))
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
        return np.interp(flight, [0.0, *self.loads, self.loads[-1] + 1], [1.0, *self.kept, 0.0])

    def _mean_kept(self, flight: NDArray[np.float64]) -> NDArray[np.float64]:
        """1 less a mean over its bound beyond the largest level, in proportion to the number in flight."""
        return 1 - (1 - self.kept[-1]) * flight / self.loads[-1]


@lru_cache(maxsize=256)
def _most(queue: ArrivalsAtRandom, times: float) -> float:
    low, high = 0.0, times * queue.capacity
    if queue.keeps(high * (1 - ROUNDING), times):
        return high
    for _ in range(STEPS):
        rate = (low + high) / 2
        low, high = (rate, high) if queue.keeps(rate, times) else (low, rate)
    return low


@lru_cache(maxsize=256)
def _closed_rate(queue: ArrivalsAtRandom, rate: float) -> float:
    low, high = rate / queue.capacity, queue.largest
    if low >= high or not queue.keeps(rate, high):
        # Larger ones carry in proportion.
        most = queue.most(high)
        times = rate * high / most if most > 0 else math.inf
        return times * queue.capacity if times <= LARGEST else math.inf
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if queue.keeps(rate, middle) else (middle, high)
    return high * queue.capacity
