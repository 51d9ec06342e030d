"""Statistics of alternating pairs: a median and the interval that the bootstrap puts around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "bootstrap_median", "paired", "plain"]

RESAMPLES = 10_000
CONFIDENCE = 0.95


def plain(number: float) -> str:
    """Four significant digits, and never an exponent for large numbers: people and scripts read both."""
    return f"{number:.0f}" if abs(number) >= 10_000 else f"{number:.4g}"


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval."""

    value: float
    lo: float
    hi: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A number that one reading settles, a peak of memory for instance."""
        return cls(value, value, value)

    def __str__(self) -> str:
        return f"{plain(self.value)} [{plain(self.lo)}, {plain(self.hi)}]"


def bootstrap_median(values: Sequence[float], seed: int = 1) -> Interval:
    """The median of ``values`` with its percentile bootstrap interval (Efron 1979), 95 %.

    The seed is fixed, so that the same measurements always give the same interval.
    Raises ValueError without values.
    """
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        raise ValueError("a median needs at least one value")
    rng = np.random.default_rng(seed)
    medians = np.median(data[rng.integers(0, data.size, size=(RESAMPLES, data.size))], axis=1)
    tail = (1 - CONFIDENCE) / 2
    lo, hi = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(np.median(data)), float(lo), float(hi))


def paired(
    ours: Sequence[float], peers: Sequence[float], combine: Callable[[float, float], float] = lambda a, b: a / b
) -> Interval:
    """The median over pairs of ``combine(ours, peers)``, by default their ratio; whole pairs are drawn again.

    A pair ran back to back, so what the neighbours of the machine did to one side they did to both.
    Raises ValueError when the sides differ in length.
    """
    return bootstrap_median([combine(a, b) for a, b in zip(ours, peers, strict=True)])
