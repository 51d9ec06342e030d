"""The right answer to a scenario, by simulation over a stated horizon.

n is right when its attainment over at least 8 independent seeds exceeds every target by three standard errors while
that of n - 1 falls short of one by three. Numbers of which neither can be said are ties, and each of them counts as
right. Seeds are spent in turn: one finds the neighbourhood, eight judge it, more are taken where it is undecided.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.estimates.question import attainments, targets
from benches.estimates.scenarios import Scenario, horizon

__all__ = ["Edge", "Truth", "cache_folder", "edge_of", "truth"]

MODEL_VERSION = 2
"""Raised when a mechanism or a rule changes what is true: truths of other versions in the cache are not used."""

SEEDS = 8
MOST_SEEDS = 128
MOST_REQUESTS = 600_000
"""Counted requests over all seeds beyond which an undecided number stays a tie; 8 seeds are always taken."""
ERRORS = 3.0
EDGE_REQUESTS = (40_000, 600_000)
"""Counted requests of each point of an edge over all its seeds: on the way, and at most for the last two."""
EDGE_ERROR = 0.003
"""Relative error of an edge that is small enough."""
FIRST_SEED = 7_000
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Edge:
    """How much load so many replicas carry within every SLO, interpolated, and how well that is known.

    Attributes:
        load: users or requests per second.
        error: standard error of it, relative.
    """

    load: float
    error: float


@dataclass(frozen=True)
class Truth:
    """The answer.

    Attributes:
        n: the smallest number of replicas that is right; None where no number is.
        right: all numbers that count as right: ``n``, and those that are tied with it.
        gpus_raw: the unrounded number: n times the load over the load that n replicas carry.
        raw_error: its standard error, relative.
        edge: users or rate that the smallest measurable number of replicas carries.
        monotone: whether n + 1 is right and n - 2 is not, as far as can be told.
        shares: attainments by number of replicas, means over seeds.
        seeds: how many seeds the judgement took.
    """

    n: int | None
    right: tuple[int, ...]
    gpus_raw: float | None
    raw_error: float | None
    edge: float | None
    monotone: bool
    shares: Mapping[str, list[float]]
    seeds: int

    @property
    def tie(self) -> bool:
        """Whether more than one number counts as right."""
        return len(self.right) > 1


class _Judge:
    """Attainments at numbers of replicas, as many seeds as were asked for."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.load = scenario.visible.load
        self.targets = np.array(targets(scenario.visible))
        self.found: dict[int, list[list[float]]] = {}

    def shares(self, replicas: int, seeds: int) -> NDArray[np.float64]:
        """Attainments, shape (seeds, SLOs)."""
        rows = self.found.setdefault(replicas, [])
        while len(rows) < seeds:
            rows.append(_attained(self.scenario, replicas, self.load, FIRST_SEED + len(rows)))
        return np.array(rows)

    def margin(self, replicas: int, seeds: int) -> float:
        """The least of the means less their targets, as normal quantiles; -inf without any replica."""
        if replicas < 1:
            return -math.inf
        counted, _ = horizon(self.scenario, self.load)
        return _margin(self.shares(replicas, seeds), targets(self.scenario.visible), counted)[0]

    def crossing(self, near: int) -> Edge:
        """Where the line through the margins of all numbers within a tenth of ``near`` crosses zero: replicas."""
        numbers = [n for n in self.found if abs(n / near - 1) <= 0.1]
        x = np.array([n / near - 1 for n in numbers])
        y = np.array([self.margin(n, 1) for n in numbers])
        weight = np.array([float(len(self.found[n])) for n in numbers])
        middle = float(np.average(x, weights=weight))
        level = float(np.average(y, weights=weight))
        slope = max(float((weight * (x - middle) * (y - level)).sum() / (weight * (x - middle) ** 2).sum()), 1e-6)
        at = near * (1 + float(np.clip(middle - level / slope, -0.1, 0.1)))
        counted, _ = horizon(self.scenario, self.load)
        best = np.array(self.found[max(numbers, key=lambda n: len(self.found[n]))])
        _, error = _margin(best, targets(self.scenario.visible), counted)
        return Edge(at, error * math.sqrt(len(best) / weight.sum()) / slope)

    def leans(self, replicas: int, seeds: int) -> bool:
        """Whether the means meet all targets."""
        return replicas >= 1 and bool((self.shares(replicas, seeds).mean(axis=0) >= self.targets).all())

    def surely(self, replicas: int, most: int) -> bool | None:
        """Whether it is right, by three standard errors; None when that cannot be said with so many seeds."""
        if replicas < 1:
            return False
        seeds = SEEDS
        while True:
            found = self._verdict(self.shares(replicas, seeds))
            if found is not None or seeds >= most:
                return found
            seeds *= 2

    def _verdict(self, shares: NDArray[np.float64]) -> bool | None:
        mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
        if (mean - ERRORS * error >= self.targets).all():
            return True
        return False if (mean + ERRORS * error < self.targets).any() else None


def _attained(scenario: Scenario, replicas: int, load: float, seed: int) -> list[float]:
    counted, warmup = horizon(scenario, load)
    asked = scenario.visible.world_load(load, counted, warmup)
    rows = scenario.world.run(asked, gpus=replicas, seed=seed)
    return attainments(rows, scenario.visible)


def truth(scenario: Scenario) -> Truth:
    """The answer to a scenario, from the cache where it is known."""
    path = cache_folder() / f"{scenario.digest()}-{MODEL_VERSION}.json"
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Truth(**{**stored, "right": tuple(stored["right"])})
    found = _found(scenario)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(found)), encoding="utf-8")
    part.replace(path)
    return found


def cache_folder() -> Path:
    """Where truths are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gpusize-estimates"


def _found(scenario: Scenario) -> Truth:
    judge = _Judge(scenario)
    if scenario.expects != "answer":
        return _without(judge)
    n, raw = _few(judge) if scenario.hint <= 20 else _many(judge)
    # Beyond 20 one replica is a few per mille of the load: more seeds would not tell it from the next.
    affordable = MOST_REQUESTS // horizon(scenario, judge.load)[0]
    most = min(MOST_SEEDS, affordable) if n <= 20 else SEEDS
    right = [n]
    if judge.surely(n - 1, most) is not False:
        right.insert(0, n - 1)
    if judge.surely(n, most) is not True:
        right.append(n + 1)
    monotone = judge.leans(n + 1, 2) and (n < 3 or not judge.leans(n - 2, 2))
    measured = edge_of(scenario, scenario.visible.replicas[0])
    return Truth(
        n=n,
        right=tuple(right),
        gpus_raw=raw.load,
        raw_error=raw.error,
        edge=measured.load,
        monotone=monotone,
        shares={str(n): judge.shares(n, 1).mean(axis=0).tolist() for n in sorted(judge.found)},
        seeds=max(len(rows) for rows in judge.found.values()),
    )


def _few(judge: _Judge) -> tuple[int, Edge]:
    """The smallest number that is enough by the means of all seeds, while the one before is not; and unrounded."""
    n = _bracket(judge, judge.scenario.hint)[1]
    most = _most(judge.scenario)
    while not judge.leans(n, SEEDS):
        n += 1
        if n > most:
            raise AssertionError(f"{judge.scenario.name}: no number up to {most} is enough")
    while n > 1 and judge.leans(n - 1, SEEDS):
        n -= 1
    edge = edge_of(judge.scenario, n)
    return n, Edge(n * judge.load / edge.load, edge.error)


def _many(judge: _Judge) -> tuple[int, Edge]:
    """The same where one replica more or less is hardly seen: by the line through the margins of all numbers tried."""
    n = _guess(judge)
    for _ in range(4):
        if math.ceil(_crossing_near(judge, n).load) == n:
            break
        n = max(2, math.ceil(_crossing_near(judge, n).load))
    return n, _crossing_near(judge, n)


def _crossing_near(judge: _Judge, n: int) -> Edge:
    for each in (n - 1, n):
        judge.margin(each, SEEDS)
    return judge.crossing(n)


def _most(scenario: Scenario) -> int:
    """Replicas at which the search gives up: the draw has seen to it that the answer is near its hint."""
    return 2 * scenario.hint + 8


def _bracket(judge: _Judge, hint: int) -> tuple[int, int]:
    """(falls short, is enough), next to each other, by one seed."""
    low, high = hint - 1, hint
    step, most = 1, _most(judge.scenario)
    while high <= most and not judge.leans(high, 1):
        low, high, step = high, high + step, 2 * step
    step = 1
    while low > 0 and judge.leans(low, 1):
        high, low, step = low, max(0, low - step), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if judge.leans(middle, 1) else (middle, high)
    return low, high


def _guess(judge: _Judge) -> int:
    """Where the straight line through the margins of two numbers, three seeds each, crosses zero."""
    near, most = judge.scenario.hint, _most(judge.scenario)
    for _ in range(4):
        a = judge.margin(near, 3)
        other = max(near + 1, round(near * 1.03)) if a < 0 else min(near - 1, round(near * 0.97))
        b = judge.margin(other, 3)
        if a == b:
            return near
        crossing = near + (other - near) * a / (a - b)
        found = int(np.clip(math.ceil(crossing), max(1, 0.8 * near), min(most, 1.25 * near)))
        if abs(found - near) <= 0.05 * near:
            return found
        near = found
    return near


def _without(judge: _Judge) -> Truth:
    """Checks that the question has no answer, at numbers around which it would have to be; a flat curve's is 1."""
    scenario = judge.scenario
    if scenario.expects == "flat":
        tried = [1]
    elif scenario.expects == "never":
        tried = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32]
    else:
        tried = [scenario.hint, 4 * scenario.hint]
    enough = [n for n in tried if judge.leans(n, 1)]
    if bool(enough) != (scenario.expects == "flat"):
        raise AssertionError(f"{scenario.name} should be {scenario.expects}: {enough} of {tried} are enough")
    shares = {str(n): judge.shares(n, 1)[0].tolist() for n in tried}
    return Truth(None, (), None, None, None, monotone=True, shares=shares, seeds=1)


# ------------------------------------------------------------------------------------------------ edges


def edge_of(scenario: Scenario, replicas: int) -> Edge:
    """The load at which so many replicas just keep every SLO, between whole numbers of users where there are users.

    The attainments (as normal quantiles, less the target's) of loads around it are joined by straight lines; the least
    over the SLOs decides. The same seeds serve all loads.
    """
    points = _Points(scenario, replicas)
    low, high = points.around(points.rounded(scenario.edge * replicas))
    if low == 0 or math.isinf(high):
        return Edge(high * 0.5 if low == 0 else low, math.inf)
    low, high = points.narrowed(low, high)
    while True:
        (a, ea), (b, eb) = points.at(low), points.at(high)
        slope = (a - b) / (high - low)
        load = low + a / slope
        error = math.hypot(ea, eb) / math.sqrt(2) / slope / load
        if error <= EDGE_ERROR or points.requests >= EDGE_REQUESTS[1]:
            return Edge(load, error)
        points.requests *= 3
        if not points.at(low)[0] >= 0 > points.at(high)[0]:
            # More seeds have moved the edge out of the stretch.
            low, high = points.narrowed(*points.around(low))


class _Points:
    """Margins of one number of replicas at several loads: attainments less targets as normal quantiles, and errors."""

    def __init__(self, scenario: Scenario, replicas: int) -> None:
        self.scenario = scenario
        self.replicas = replicas
        self.whole = scenario.visible.users is not None
        self.least = 1.0 if self.whole else 0.0
        self.requests = EDGE_REQUESTS[0]
        self._found: dict[float, list[list[float]]] = {}

    def rounded(self, load: float) -> float:
        return float(max(1, round(load))) if self.whole else load

    def at(self, load: float) -> tuple[float, float]:
        """The least margin over the SLOs, and its standard error."""
        counted, _ = horizon(self.scenario, load)
        seeds = max(3, math.ceil(self.requests / counted))
        rows = self._found.setdefault(load, [])
        while len(rows) < seeds:
            rows.append(_attained(self.scenario, self.replicas, load, FIRST_SEED + len(rows)))
        return _margin(np.array(rows), targets(self.scenario.visible), counted)

    def keeps(self, load: float) -> bool:
        return self.at(load)[0] >= 0

    def around(self, start: float) -> tuple[float, float]:
        """A load that is kept and a larger one that is not; 0 and infinity where there is none."""
        factor = 1.03
        if self.keeps(start):
            low, high = start, self.rounded(max(start * factor, start + self.least))
            while self.keeps(high):
                factor = factor**1.7
                low, high = high, self.rounded(max(high * factor, high + self.least))
                if high > 1000 * start:
                    return low, math.inf
            return low, high
        low, high = self.rounded(min(start / factor, start - self.least)), start
        while low < high and not self.keeps(low):
            factor = factor**1.7
            high, low = low, self.rounded(min(low / factor, low - self.least))
            if low < start / 1000:
                return 0.0, high
        return (low, high) if low < high else (0.0, high)

    def narrowed(self, low: float, high: float) -> tuple[float, float]:
        """The same, closer together: by the line between the ends, not too near either of them."""
        for _ in range(6):
            # Closer than this the difference of the ends would be noise.
            if high - low <= max(self.least, 0.03 * high):
                break
            a, b = self.at(low)[0], self.at(high)[0]
            middle = self.rounded(low + float(np.clip(a / (a - b), 0.15, 0.85)) * (high - low))
            if not low < middle < high:
                break
            low, high = (middle, high) if self.keeps(middle) else (low, middle)
        return low, high


def _margin(shares: NDArray[np.float64], wanted: Sequence[float], counted: int) -> tuple[float, float]:
    mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    least = 0.5 / (counted * len(shares))
    inside = [min(max(float(p), least), 1 - least) for p in mean]
    margins = [_NORMAL.inv_cdf(p) - _NORMAL.inv_cdf(q) for p, q in zip(inside, wanted, strict=True)]
    k = margins.index(min(margins))
    return margins[k], float(error[k]) / _NORMAL.pdf(_NORMAL.inv_cdf(inside[k]))
