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

__all__ = ["ROUGHLY", "Counter", "mean_field"]

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
ROUGHLY: Final = 0.005
"""Ends of intervals are searched to this share: what they rest on is known less well."""
STRAIGHT: Final = 0.05
"""An attainment this near its target goes with the replicas in a straight line."""
FURTHEST: Final = 64
"""More than so many times the guess are not tried."""
AWAY, NEAR = 16, 64
"""The first step of a search is such a part of the guess, and of one that comes from an answer nearby."""


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
        shares = self.run(load, replicas, stretch).shares
        return min(found - target for found, target in zip(shares, self.targets, strict=True))

    def overrun(self, load: float, replicas: int) -> bool:
        """Whether more comes than so many replicas can ever serve."""
        most = self.replica.most_per_s
        return self.asked.users is None and load * self.loss.slowness(replicas) > OVERRUN * replicas * most

    def fewest(
        self, stretch: float, guess: float, lighter: float = 0.0, *, near: bool = False, close: float = 0.0
    ) -> int | None:
        """The fewest replicas; a bracket from the guess by doubling, then within it. None when no number is enough.

        Args:
            stretch: on all bounds.
            guess: where to begin.
            lighter: the load is taken for smaller by a factor, this is its logarithm.
            near: whether the guess comes from an answer nearby, and is off by little.
            close: by which share of them there may be too many.
        """
        load = self.asked.load * math.exp(-lighter)

        def enough(replicas: int) -> bool:
            return self.margin(load, replicas, stretch) >= 0

        begin = max(1, math.ceil(min(guess, MOST_REPLICAS)))
        most = min(MOST_REPLICAS, FURTHEST * max(begin, 16), self.loss.most or MOST_REPLICAS)
        high = min(begin, most)
        low = 0
        step = max(1, high // (NEAR if near else AWAY))
        if enough(high):
            while high - step > 0 and enough(high - step):
                high -= step
                step *= 2
            low = max(0, high - step)
        else:
            while not enough(high):
                if high == most:
                    return None
                low, high = high, min(high + step, most)
                step *= 2
        straight = True
        while (width := high - low) > max(1, close * high):
            middle = self._on_line(load, low, high, stretch) if straight else (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
            # Where the margin is bent the line comes near from one side only.
            straight = not straight or high - low <= width / 2
        return high

    def _on_line(self, load: float, low: int, high: int, stretch: float) -> int:
        """Between replicas that are too few and enough: where the line meets the target, else half way."""
        if low > 0:
            below, above = self.margin(load, low, stretch), self.margin(load, high, stretch)
            if max(-below, above) <= STRAIGHT:
                return min(high - 1, max(low + 1, math.ceil(low + (high - low) * below / (below - above))))
        return (low + high) // 2

    def raw(self, replicas: int, stretch: float, lighter: float = 0.0, *, close: float = CLOSE) -> float:
        """Replicas times the load over the load that they carry, which lies between the load and that of one more.

        Args:
            replicas: that are enough.
            stretch: on all bounds.
            lighter: the load is taken for smaller by a factor, this is its logarithm.
            close: the load that they carry is searched to this share.
        """
        load = self.asked.load * math.exp(-lighter)
        more = 1.0
        low, high = load, load * (1 + more / replicas)
        at_low = self.margin(low, replicas, stretch)
        at_high = self.margin(high, replicas, stretch)
        while at_high >= 0 and high < MOST_LIGHTER * load:
            more *= 2
            low, at_low, high = high, at_high, load * (1 + more / replicas)
            at_high = self.margin(high, replicas, stretch)
        for _ in range(STEPS):
            if high - low <= close * low or (self.asked.users is not None and high - low <= 1):
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

    def sides(self, raw: float, reach: float) -> list[float]:
        """Halves of the interval of the count's logarithm, below and above, where the bounds may be off by ``reach``.

        A half is infinite where no number of replicas is enough.

        Args:
            raw: the count, not rounded.
            reach: logarithm of a factor on the bounds.
        """
        found: list[float] = []
        for sign in (1, -1):
            stretch = math.exp(sign * reach)
            # What a longer bound saves, a shorter one costs.
            guess = raw * math.exp(found[0] if found and math.isfinite(found[0]) else -sign * reach)
            count = self.fewest(stretch, guess, near=True, close=ROUGHLY)
            # The count leans by these halves, so what they rest on is searched as closely as itself.
            there = None if count is None else self.raw(count, stretch)
            found.append(math.inf if there is None else max(0.0, -sign * math.log(there / raw)))
        if all(math.isfinite(each) for each in found):
            # Near saturation one side may be seen as nothing; both are estimates of one error.
            found = [math.sqrt(0.5 * (found[0] ** 2 + found[1] ** 2))] * 2
        return found

    def binding(self, replicas: int, stretch: float) -> int:
        """The objective that is nearest to being missed."""
        return tightest(self.run(self.asked.load, replicas, stretch).shares, self.targets)


def mean_field(asked: ClusterLoad, in_flight: float, residence_s: float) -> int:
    """A first guess: replicas that have ``in_flight`` requests each, with users who also think."""
    if asked.users is not None:
        return max(1, math.ceil(asked.users / (in_flight * (1 + asked.think_s / residence_s))))
    return max(1, math.ceil((asked.rate or 0.0) * residence_s / in_flight))
