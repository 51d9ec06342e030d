"""The fewest replicas that keep every objective, and what they carry: a search over simulated clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpusize.estimate.twin.calibration import stretch_of
from gpusize.estimate.twin.contention import Contention
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Replica, Trial, horizon, in_system
from gpusize.estimate.twin.visit_data import tightest

__all__ = ["MOST_REPLICAS", "ROUGHLY", "Counter", "Seen", "mean_field"]

MOST_REPLICAS: Final = 100_000
STEPS: Final = 16
JUDGED: Final = 24_000
"""Requests that decide about one number of replicas: short horizons are run with several seeds."""
MOST_TOGETHER: Final = 4_000
"""With more in the system, a part of the replicas with their part of the load tells how all fare."""
FAR: Final = 64.0
"""What replicas carry is not looked for beyond so many times the load, nor below such a part of it."""
CLOSE: Final = 0.002
"""The load that replicas carry is searched to this share."""
ROUGHLY: Final = 0.005
"""Ends of intervals are searched to this share: what they rest on is known less well."""
FURTHEST: Final = 64
"""More than so many times the guess are not tried."""
AWAY, NEAR = 16, 64
"""The first step of a search is such a part of the guess, and of one that comes from an answer nearby."""
BEYOND: Final = 1.2
"""A step to where the answer seems to be goes so much further, so that it lies between two loads."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A load simulated on so many replicas, to be judged by bounds of any width.

    Attributes:
        trials: the same with several seeds.
        factors: on the bounds of each objective.
        part: the share of the replicas, and of the load, that was simulated.
    """

    trials: Sequence[Trial]
    factors: Sequence[float]
    part: float

    def shares(self, stretch: float) -> tuple[float, ...]:
        """Attainment of each objective, its bounds multiplied by ``stretch``."""
        return tuple(
            sum(each.share(number, stretch * factor) for each in self.trials) / len(self.trials)
            for number, factor in enumerate(self.factors)
        )

    def needs(self, targets: Sequence[float]) -> float:
        """Logarithm of the factor on all bounds with which every objective is just kept."""
        return max(
            stretch_of(self.trials, number, target, math.log(factor)) - math.log(factor)
            for number, (target, factor) in enumerate(zip(targets, self.factors, strict=True))
        )

    @property
    def in_flight(self) -> float:
        """Mean number of requests in flight, on all replicas."""
        return self.trials[0].in_flight / self.part

    @property
    def runtime_s(self) -> float:
        """Mean."""
        return self.trials[0].runtime_s


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
    _runs: dict[tuple[int, float], Seen] = field(default_factory=dict)
    _needs: dict[int, dict[float, float]] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Simulated questions so far."""
        return len(self._runs)

    def run(self, load: float, replicas: int) -> Seen:
        """A simulated run; the same is not done twice."""
        key = (replicas, load)
        if key not in self._runs:
            # All times longer by a factor are the same as load and bounds in a time that runs as much faster.
            slow = self.loss.slowness(replicas)
            asked = self.asked.of(load).quickened(slow)
            residence_s, patience_s = self.replica.at_work_s(asked, replicas), self.replica.patience_s
            crowd = max(1.0, in_system(asked, residence_s, patience_s) / MOST_TOGETHER)
            some = math.ceil(replicas / crowd)
            asked = asked.of(asked.load * some / replicas)
            drawn = horizon(asked, residence_s, patience_s)
            seeds = 1 if self.replica.certain else max(1, round(JUDGED / drawn))
            trials = [self.replica.run(asked, some, seed=seed) for seed in range(1, seeds + 1)]
            factors = [factor / slow for factor in self.replica.factors]
            self._runs[key] = Seen(trials, factors, some / replicas)
        return self._runs[key]

    def margin(self, load: float, replicas: int) -> float:
        """By how much the worst objective is above its target, in shares.

        -1 where more comes than can ever be served: the queue would only show how long the run is.
        """
        if self.overrun(load, replicas):
            return -1.0
        shares = self.run(load, replicas).shares(1.0)
        return min(found - target for found, target in zip(shares, self.targets, strict=True))

    def needs(self, load: float, replicas: int) -> float:
        """Logarithm of the factor on the bounds with which so many replicas just keep them; infinite likewise."""
        known = self._needs.setdefault(replicas, {})
        if load not in known:
            over = self.overrun(load, replicas)
            known[load] = math.inf if over else self.run(load, replicas).needs(self.targets)
        return known[load]

    def overrun(self, load: float, replicas: int) -> bool:
        """Whether more comes than so many replicas can ever serve."""
        if self.asked.users is not None:
            return False
        return load * self.loss.slowness(replicas) > replicas * self.replica.most_per_s

    def fewest(self, guess: float, lighter: float = 0.0, *, near: bool = False, close: float = 0.0) -> int | None:
        """The fewest replicas; a bracket from the guess by doubling, then within it. None when no number is enough.

        Args:
            guess: where to begin.
            lighter: the load is taken for smaller by a factor, this is its logarithm.
            near: whether the guess comes from an answer nearby, and is off by little.
            close: by which share of them there may be too many.
        """
        load = self.asked.load * math.exp(-lighter)

        def enough(replicas: int) -> bool:
            return self.margin(load, replicas) >= 0

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
            middle = self._on_line(load, low, high) if straight else (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
            # Where the margin is bent the line comes near from one side only.
            straight = not straight or high - low <= width / 2
        return high

    def _on_line(self, load: float, low: int, high: int) -> int:
        """Between replicas that are too few and enough: where the line meets the bounds, else half way."""
        below = math.inf if low == 0 else self.needs(load, low)
        above = self.needs(load, high)
        if math.isfinite(below) and below > above:
            at = math.log(low) + math.log(high / low) * min(1.0, max(0.0, below / (below - above)))
            return min(high - 1, max(low + 1, math.ceil(math.exp(at))))
        return (low + high) // 2

    def raw(self, replicas: int) -> float:
        """Replicas times the load over the load that they carry, which is not much more than the load.

        Args:
            replicas: that are enough.
        """
        carried = self.carried(replicas, 0.0)
        return replicas if carried is None else replicas * self.asked.load / carried

    def carried(self, replicas: int, reach: float) -> float | None:
        """The load with which so many replicas just keep the bounds; None where none is light enough.

        The factor on the bounds that a load needs grows with it in nearly a straight line, both as logarithms. Each
        simulated load is judged by bounds of any width, so what was found for one width serves the others.

        Args:
            replicas: that carry it.
            reach: logarithm of a factor on the bounds.
        """
        self.needs(self.asked.load, replicas)
        known = self._needs[replicas]
        low, high = self._bracket(replicas, reach)
        if low is None or high is None:
            return low
        straight = True
        for _ in range(STEPS):
            if high - low <= CLOSE * low or (self.asked.users is not None and high - low <= 1):
                break
            width = math.log(high / low)
            middle = self._crossing(known, low, high, reach) if straight else math.sqrt(low * high)
            middle = min(high * math.exp(-0.05 * width), max(low * math.exp(0.05 * width), middle))
            if self.asked.users is not None:
                middle = min(high - 1, max(low + 1, round(middle)))
            kept = self.needs(middle, replicas) <= reach
            low, high = (middle, high) if kept else (low, middle)
            there = self._crossing(known, low, high, reach)
            if straight and abs(math.log(there / middle)) <= CLOSE:
                return there
            # Where the line is bent it comes near from one side only.
            straight = not straight or math.log(high / low) <= width / 2
        return self._crossing(known, low, high, reach)

    @staticmethod
    def _crossing(known: Mapping[float, float], low: float, high: float, reach: float) -> float:
        """Where the line through both loads meets the bounds; half way where it is none."""
        at_low, at_high = known[low], known[high]
        part = (reach - at_low) / (at_high - at_low) if math.isfinite(at_high) and at_high > at_low else 0.5
        return low * math.exp(min(1.0, max(0.0, part)) * math.log(high / low))

    def _bracket(self, replicas: int, reach: float) -> tuple[float | None, float | None]:
        """A load that is kept and a heavier one that is not, from what is known and by steps beyond it."""
        known = self._needs[replicas]
        step = math.log1p(1 / replicas)
        while True:
            loads = sorted(known)
            first = next((place for place, load in enumerate(loads) if known[load] > reach), len(loads))
            if 0 < first < len(loads):
                return loads[first - 1], loads[first]
            up = first > 0
            edge = loads[-1] if up else loads[0]
            # By the slope of the two loads that are nearest to it.
            pair = loads[-2:] if up else loads[:2]
            rise = known[pair[-1]] - known[pair[0]]
            slope = rise / math.log(pair[-1] / pair[0]) if len(pair) == 2 and math.isfinite(rise) and rise > 0 else 1.0
            away = BEYOND * abs(reach - known[edge]) / slope if math.isfinite(known[edge]) else step
            # From one end of what is looked at to the other, at most: slopes may be as small as chance makes them.
            move = max(2 * CLOSE, min(step, away, 2 * math.log(FAR)))
            step *= 2
            load = edge * math.exp(move if up else -move)
            if self.asked.users is not None:
                load = max(edge + 1, math.ceil(load)) if up else min(edge - 1, math.floor(load))
            least = max(self.asked.load / FAR, 0.0 if self.asked.users is None else 1.0)
            load = min(FAR * self.asked.load, max(least, load))
            if load in known:
                return (edge, None) if up else (None, edge)
            self.needs(load, replicas)

    def sides(self, replicas: int, reach: float) -> list[float]:
        """Halves of the interval of the count's logarithm, below and above, where the bounds may be off by ``reach``.

        So many replicas would carry so much more and less. A half is infinite where no load is light enough.

        Args:
            replicas: that are enough.
            reach: logarithm of a factor on the bounds.
        """
        carried = [self.carried(replicas, each) for each in (reach, 0.0, -reach)]
        if carried[1] is None:
            return [math.inf, math.inf]
        found = [math.inf if each is None else abs(math.log(each / carried[1])) for each in (carried[0], carried[2])]
        if all(math.isfinite(each) for each in found):
            # Near saturation one side may be seen as nothing; both are estimates of one error.
            found = [math.sqrt(0.5 * (found[0] ** 2 + found[1] ** 2))] * 2
        return found

    def binding(self, replicas: int) -> int:
        """The objective that is nearest to being missed."""
        return tightest(self.run(self.asked.load, replicas).shares(1.0), self.targets)


def mean_field(asked: ClusterLoad, in_flight: float, residence_s: float) -> int:
    """A first guess: replicas that have ``in_flight`` requests each, with users who also think."""
    if asked.users is not None:
        return max(1, math.ceil(asked.users / (in_flight * (1 + asked.think_s / residence_s))))
    return max(1, math.ceil((asked.rate or 0.0) * residence_s / in_flight))
