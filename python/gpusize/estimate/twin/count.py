"""The fewest replicas that keep every objective, and what they carry: a search over simulated clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gpusize.estimate.twin.simulated import Asked, Judged, Replica

__all__ = ["Count", "Counter"]

MOST_REPLICAS: Final = 100_000
STEPS: Final = 12
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
        calibration: all bounds are multiplied by it: 1 where the model says what was measured.
    """

    replica: Replica
    asked: Asked
    targets: Sequence[float]
    calibration: float = 1.0
    _runs: dict[tuple[float, int, float], Judged] = field(default_factory=dict)

    def run(self, load: float, replicas: int, stretch: float) -> Judged:
        """A simulated run; the same is not done twice."""
        key = (load, replicas, stretch)
        if key not in self._runs:
            self._runs[key] = self.replica.run(self.asked.of(load), replicas, stretch=stretch * self.calibration)
        return self._runs[key]

    def margin(self, load: float, replicas: int, stretch: float) -> float:
        """By how much the worst objective is above its target, in shares."""
        return min(
            found - target for found, target in zip(self.run(load, replicas, stretch).shares, self.targets, strict=True)
        )

    def fewest(self, stretch: float, guess: int) -> int | None:
        """The fewest replicas; a bracket from the guess by doubling, then bisection. None when no number is enough."""
        load = self.asked.load

        def enough(replicas: int) -> bool:
            return self.margin(load, replicas, stretch) >= 0

        high = max(1, guess)
        low = 0
        step = max(1, high // 16)
        if enough(high):
            while high - step > 0 and enough(high - step):
                high -= step
                step *= 2
            low = max(0, high - step)
        else:
            while not enough(high):
                low = high
                high += step
                step *= 2
                if high > MOST_REPLICAS or high > 64 * max(guess, 16):
                    return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def raw(self, replicas: int, stretch: float) -> float:
        """Replicas times the load over the load that they carry, which lies between the load and that of one more."""
        load = self.asked.load
        low, high = load, load * (replicas + 1) / replicas if replicas > 1 else 2 * load
        at_low = self.margin(low, replicas, stretch)
        at_high = self.margin(high, replicas, stretch)
        while at_high >= 0 and high < 1e4 * load:
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
        shares = self.run(self.asked.load, replicas, stretch).shares
        margins = [(found - target) / max(1e-9, 1 - target) for found, target in zip(shares, self.targets, strict=True)]
        return margins.index(min(margins))


def mean_field(asked: Asked, in_flight: float, residence_s: float) -> int:
    """A first guess: replicas that have ``in_flight`` requests each, with users who also think."""
    if asked.users is not None:
        return max(1, math.ceil(asked.users / (in_flight * (1 + asked.think_s / residence_s))))
    return max(1, math.ceil((asked.rate or 0.0) * residence_s / in_flight))
