"""Questions with an answer that was measured: the fewest replicas whose raw records keep an SLO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Answer", "Asked", "Question", "Truth", "draw", "holds", "right"]

SHARES = (0.5, 0.9, 0.95)
"""Shares of the requests that must meet a limit: p50, p90 and p95. A level has too few requests for p99."""
EDGE = 0.15
"""A limit lies at least this part of the way from what either count did, so that the truth does not hang on noise."""
LEAST_GAP = 1.1
"""Between two counts whose quantiles are nearer, no limit is drawn: nobody could tell there which one is enough."""
BEYOND = (1.1, 1.5)
"""How far limits lie beyond the fewest and the most replicas that were measured, as a factor."""


@dataclass(frozen=True)
class Asked:
    """A load: users who pause so long after an answer, or requests per second."""

    amount: float
    per_second: bool = False
    think_s: float = 0.0

    def __str__(self) -> str:
        if self.per_second:
            return f"{self.amount:g}/s"
        return f"{self.amount:g} users" + (f", pauses of {self.think_s:g} s" if self.think_s else "")


@dataclass(frozen=True)
class Question:
    """Which count carries a load within an SLO.

    Attributes:
        workload: what is sent.
        asked: how much of it.
        metric: of a request, in seconds: ``runtime`` or ``ttft``.
        share: of the requests that must be within the limit.
        limit_s: the limit.
    """

    workload: str
    asked: Asked
    metric: str
    share: float
    limit_s: float

    @property
    def slo(self) -> str:
        """As gpusize reads it."""
        return f"p{100 * self.share:g} {self.metric} <= {self.limit_s:.6g}s"


@dataclass(frozen=True)
class Truth:
    """What was measured.

    Attributes:
        attained: shares of the requests within the limit, by count of replicas.
        alone: the same of one request at a time.
        share: that is asked for.
    """

    attained: Mapping[int, float]
    alone: float
    share: float

    @property
    def count(self) -> int:
        """The fewest replicas that keep it; one more than were measured where none does."""
        return next((n for n, found in sorted(self.attained.items()) if found >= self.share), max(self.attained) + 1)

    @property
    def beyond(self) -> bool:
        """Whether none of those measured keeps it."""
        return self.count > max(self.attained)

    @property
    def never(self) -> bool:
        """Whether not even a request alone keeps it, so that no count does."""
        return self.beyond and self.alone < self.share


@dataclass(frozen=True)
class Answer:
    """What a method said: a count with the ends of its interval, each None where it said none."""

    count: int | None
    low: int | None = None
    high: int | None = None


def draw(
    workload: str,
    times: Mapping[int, Mapping[Asked, np.ndarray]],
    alone: np.ndarray,
    metric: str,
    many: int,
    seed: int,
) -> list[tuple[Question, Truth]]:
    """Questions whose answers are each count in turn, and one more than was measured.

    Args:
        workload: its name.
        times: seconds of each request, infinite where it failed, by count of replicas and load.
        alone: the same of one request at a time.
        metric: what the times are of.
        many: questions to draw.
        seed: of loads, shares and limits.

    Raises:
        ValueError: no two counts differ enough for a limit between them.
    """
    rng = np.random.default_rng(seed)
    counts = sorted(times)
    loads = sorted(times[counts[0]], key=lambda each: each.amount)
    wanted = [*counts, counts[-1] + 1]
    found: list[tuple[Question, Truth]] = []
    for tries in range(100 * many):
        if len(found) == many:
            return found
        asked, share = loads[rng.integers(len(loads))], float(rng.choice(SHARES))
        limit_s = _limit(times, asked, share, wanted[(len(found) + tries // many) % len(wanted)], rng)
        if limit_s is not None:
            attained = {n: float(np.mean(times[n][asked] <= limit_s)) for n in counts}
            truth = Truth(attained, float(np.mean(alone <= limit_s)), share)
            found.append((Question(workload, asked, metric, share, limit_s), truth))
    raise ValueError(f"{workload}: only {len(found)} of {many} questions have an answer that can be told")


def _limit(
    times: Mapping[int, Mapping[Asked, np.ndarray]], asked: Asked, share: float, answer: int, rng: np.random.Generator
) -> float | None:
    """A limit that so many replicas keep and one less does not, to three digits; None where they hardly differ."""

    def quantile(n: int) -> float:
        return float(np.quantile(times[n][asked], share, method="inverted_cdf"))

    low = quantile(answer) if answer in times else quantile(max(times)) / BEYOND[1]
    high = quantile(answer - 1) if answer - 1 in times else quantile(min(times)) * BEYOND[1]
    if answer not in times:
        high /= BEYOND[0]
    if answer - 1 not in times:
        low *= BEYOND[0]
    if not (math.isfinite(low) and low * LEAST_GAP < high):
        return None
    high = min(high, 10 * low)
    return float(f"{low * (high / low) ** rng.uniform(EDGE, 1 - EDGE):.3g}")


def right(answer: Answer, truth: Truth) -> bool:
    """Whether the count is the very one; beyond those measured any larger one is, or that none is enough."""
    if answer.count is None:
        return truth.never
    return answer.count >= truth.count if truth.beyond else answer.count == truth.count


def holds(answer: Answer, truth: Truth) -> bool:
    """Whether the interval has the truth in it. An end that is not said is open."""
    low, high = answer.low or 1, answer.high or math.inf
    return high >= truth.count if truth.beyond else low <= truth.count <= high
