"""The right answer to a scenario, by simulation over a stated horizon.

n is right when its attainment over at least 8 independent seeds exceeds every target by three standard errors while
that of n - 1 falls short of one by three. Numbers of which neither can be said are ties, and each of them counts as
right. Seeds are spent in turn: one finds the neighbourhood, eight judge it, more are taken where it is undecided.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.estimates.edges import FIRST_SEED, Edge, attained, edge_of, margin_of
from benches.estimates.question import targets
from benches.estimates.scenarios import Scenario, horizon

__all__ = ["NoTruth", "Truth", "cache_folder", "truth"]

MODEL_VERSION = 2
"""Raised when a mechanism or a rule changes what is true: truths of other versions in the cache are not used."""

SEEDS = 8
MOST_SEEDS = 128
MOST_REQUESTS = 600_000
"""Counted requests over all seeds beyond which an undecided number stays a tie; 8 seeds are always taken."""
ERRORS = 3.0


class NoTruth(Exception):
    """A scenario turned out not to be what it was drawn as: nobody can be judged by it."""


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
            rows.append(attained(self.scenario, replicas, self.load, FIRST_SEED + len(rows)))
        return np.array(rows)

    def margin(self, replicas: int, seeds: int) -> float:
        """The least of the means less their targets, as normal quantiles; -inf without any replica."""
        if replicas < 1:
            return -math.inf
        counted, _ = horizon(self.scenario, self.load)
        return margin_of(self.shares(replicas, seeds), targets(self.scenario.visible), counted)[0]

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
        _, error = margin_of(best, targets(self.scenario.visible), counted)
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


def truth(scenario: Scenario) -> Truth:
    """The answer to a scenario, from the cache where it is known.

    Raises:
        NoTruth: it has none that could be found.
    """
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
            raise NoTruth(f"{judge.scenario.name}: no number up to {most} is enough")
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
        raise NoTruth(f"{scenario.name} should be {scenario.expects}: {enough} of {tried} are enough")
    shares = {str(n): judge.shares(n, 1)[0].tolist() for n in tried}
    return Truth(None, (), None, None, None, monotone=True, shares=shares, seeds=1)
