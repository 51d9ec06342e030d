"""The fewest replicas that keep every objective, and what they carry: a search over simulated clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpusize.estimate.twin.contention import Contention
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Judged, Replica, horizon
from gpusize.estimate.twin.visit_data import tightest

__all__ = ["Count", "Counter"]

MOST_REPLICAS: Final = 100_000
STEPS: Final = 12
JUDGED: Final = 24_000
"""Requests that decide about one number of replicas: short horizons are run with several seeds."""
OVERRUN: Final = 1.1
"""Rates from so many times the largest that was measured are not simulated."""
MOST_LIGHTER: Final = 64.0
"""What replicas carry beyond so many times the load is not looked for."""
CLOSE: Final = 0.002
"""The capacity is searched to this share."""


@dataclass(frozen=True, slots=True)
class Count:
    """An answer.

    Attributes:
        replicas: the fewest that keep all objectives; None when no number does.
        raw: replicas times load over the load that they carry.
        binding: number of the objective that decides.
    """

    replicas: int | None
    raw: float | None
    binding: int


@dataclass(eq=False)
class Counter:
    """Searches for one question.

    Attributes:
        replica: what is simulated.
        asked: the load.
        targets: the share that each objective asks for.
        loss: what replicas cost each other.
    """

    replica: Replica
    asked: ClusterLoad
    targets: Sequence[float]
    loss: Contention = field(default_factory=Contention)
    _runs: dict[tuple[float, int, float], Judged] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Simulated questions so far."""
        return len(self._runs)

    def run(self, load: float, replicas: int, stretch: float) -> Judged:
        """A simulated run; the same is not done twice."""
        key = (load, replicas, stretch)
        if key not in self._runs:
            # All times longer by a factor are the same as load and bounds in a time that runs as much faster.
            slow = self.loss.slowness(replicas)
            asked = self.asked.of(load).quickened(slow)
            drawn = horizon(asked, self.replica.at_work_s(asked, replicas))
            seeds = 1 if self.replica.certain else max(1, round(JUDGED / drawn))
            found = [
                self.replica.run(asked, replicas, stretch=stretch / slow, seed=seed) for seed in range(1, seeds + 1)
            ]
            shares = zip(*(each.shares for each in found), strict=True)
            self._runs[key] = replace(found[0], shares=tuple(sum(each) / seeds for each in shares))
        return self._runs[key]

    def margin(self, load: float, replicas: int, stretch: float) -> float:
        """By how much the worst objective is above its target, in shares.

        -1 where more comes than can ever be served: the queue would only show how long the run is.
        """
        if self.overrun(load, replicas):
            return -1.0
        return min(
            found - target for found, target in zip(self.run(load, replicas, stretch).shares, self.targets, strict=True)
        )

    def overrun(self, load: float, replicas: int) -> bool:
        """Whether more comes than so many replicas can ever serve."""
        most = self.replica.most_per_s
        return self.asked.users is None and load * self.loss.slowness(replicas) > OVERRUN * replicas * most

    def fewest(self, stretch: float, guess: int, lighter: float = 0.0) -> int | None:
        """The fewest replicas; a bracket from the guess by doubling, then bisection. None when no number is enough.

        Args:
            stretch: on all bounds.
            guess: where to begin.
            lighter: the load is taken for smaller by a factor, this is its logarithm.
        """
        load = self.asked.load * math.exp(-lighter)

        def enough(replicas: int) -> bool:
            return self.margin(load, replicas, stretch) >= 0

        most = self.loss.most
        high = max(1, guess) if most is None else min(max(1, guess), most)
        low = 0
        step = max(1, high // 16)
        if enough(high):
            while high - step > 0 and enough(high - step):
                high -= step
                step *= 2
            low = max(0, high - step)
        else:
            while not enough(high):
                if high == most:
                    return None
                low = high
                high = high + step if most is None else min(high + step, most)
                step *= 2
                if high > MOST_REPLICAS or high > 64 * max(guess, 16):
                    return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def raw(self, replicas: int, stretch: float, lighter: float = 0.0) -> float:
        """Replicas times the load over the load that they carry, which lies between the load and that of one more."""
        load = self.asked.load * math.exp(-lighter)
        low, high = load, load * (replicas + 1) / replicas if replicas > 1 else 2 * load
        at_low = self.margin(low, replicas, stretch)
        at_high = self.margin(high, replicas, stretch)
        while at_high >= 0 and high < MOST_LIGHTER * load:
            low, at_low, high = high, at_high, high * 1.5
            at_high = self.margin(high, replicas, stretch)
        for _ in range(STEPS):
            if high - low <= CLOSE * low or (self.asked.users is not None and high - low <= 1):
                break
            # The margin is steep and bent: between bisection and the chord.
            chord = at_low / (at_low - at_high) if at_low > at_high else 0.5
            middle = low + (high - low) * min(0.9, max(0.1, 0.5 * (chord + 0.5)))
            if self.asked.users is not None:
                middle = min(high - 1, max(low + 1, round(middle)))
            found = self.margin(middle, replicas, stretch)
            if found >= 0:
                low, at_low = middle, found
            else:
                high, at_high = middle, found
        carried = low + (high - low) * (at_low / (at_low - at_high) if at_low > at_high else 0.0)
        return replicas * load / carried

    def binding(self, replicas: int, stretch: float) -> int:
        """The objective that is nearest to being missed."""
        return tightest(self.run(self.asked.load, replicas, stretch).shares, self.targets)


def mean_field(asked: ClusterLoad, in_flight: float, residence_s: float) -> int:
    """A first guess: replicas that have ``in_flight`` requests each, with users who also think."""
    if asked.users is not None:
        return max(1, math.ceil(asked.users / (in_flight * (1 + asked.think_s / residence_s))))
    return max(1, math.ceil((asked.rate or 0.0) * residence_s / in_flight))
