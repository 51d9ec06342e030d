"""How many are needed for a wanted load: the smallest count by a law, its interval, and what to measure next.

The law by the number of counts that were measured:

    one             linear, which is an assumption and nothing else
    two             Amdahl's; it lies above every USL through the same two points beyond them, so the count is a lower
                    bound and the upper end is open
    three or more   any

A parameter has to lower chi-squared by 2 (AIC; Akaike 1974), else it is 0: through few and noisy points the full law
finds a loss, or a peak, in the noise.

The interval of the count is that of the USL in every case: ``low`` is the smallest count whose capacity may be enough,
``high`` the smallest whose capacity surely is, where may and surely mean the ends of the 95 % interval of X(n).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.estimate.isotonic import Z_95
from gpusize.estimate.laws.fitting import Point, ScalingFit, fit
from gpusize.estimate.laws.laws import AMDAHL, LAWS, USL, Law

__all__ = ["MOST", "Count", "count_for", "hosts_for", "next_counts", "worst"]

MOST: Final = 100_000
"""Counts beyond this are not looked for."""
GROWTH: Final = 1.05
"""Ratio of the counts that are tried one after the other."""


@dataclass(frozen=True, slots=True)
class Count:
    """An answer.

    Attributes:
        law: the curve that it comes from.
        fit: the USL's fit that gives the interval.
        n: the smallest count whose capacity by ``law`` is enough; None where no count is.
        low: fewer are not enough; None where no count at all can be.
        high: more are not needed; None where the end is open.
        measured: the largest count that was measured.
        next: counts worth measuring.
    """

    law: Law
    fit: ScalingFit
    n: int | None
    low: int | None
    high: int | None
    measured: int
    next: tuple[int, ...] = ()

    @property
    def beyond(self) -> bool:
        """Whether the answer lies above every count that was measured."""
        return self.n is None or self.n > self.measured


def count_for(points: Sequence[Point], wanted: float) -> Count:
    """The smallest count whose capacity is at least ``wanted`` (> 0, in the unit of the points).

    Raises:
        UsageError: no point, or a wanted load that is not above 0.
    """
    if not (math.isfinite(wanted) and wanted > 0):
        raise UsageError(f"a load must be positive, not {wanted:g}")
    counts = sorted({p.count for p in points})
    family = fit(points, USL)
    law = _simplest(points, LAWS[: len(counts)], family.widened)
    if len(counts) == 2:
        law = replace(law, name=AMDAHL)
    n = law.smallest(wanted)
    start = n if n is not None and n <= MOST else None
    low, high = _low(family, wanted, start), None
    if start is not None and (len(counts) > 2 or start <= counts[-1]):
        high = _high(family, wanted, start)
    found = Count(law, family, n, low, high, counts[-1])
    return replace(found, next=next_counts(counts, found))


def _simplest(points: Sequence[Point], laws: Sequence[str], widened: float) -> Law:
    """The law of least AIC; of equals the one with fewer parameters."""
    fits = [fit(points, law) for law in laws]
    return min(enumerate(fits), key=lambda each: each[1].chi2 / widened**2 + 2 * each[0])[1].law


def worst(points: Sequence[Point]) -> Law:
    """The USL through two counts that falls soonest: all that is lost between them is lost by k, and s is 0.

    Raises:
        UsageError: not two different counts.
    """
    ordered = sorted(points, key=lambda p: p.count)
    first, last = ordered[0], ordered[-1]
    if len({p.count for p in points}) != 2:
        raise UsageError(
            "the worst case needs points of exactly two counts", None, "keep two counts, as those of 1 and of 4 GPUs"
        )
    low, high = first.count / first.capacity, last.count / last.capacity
    c = max(0.0, (high - low) / (last.count * (last.count - 1) - first.count * (first.count - 1)))
    d = low - c * first.count * (first.count - 1)
    if d <= 0:  # so much is lost that even s = 0 needs more than all of it at the smaller count
        d, c = 1e-12 * low, low / (first.count * (first.count - 1))
    return Law(USL, 1 / d, 0.0, c / d)


def hosts_for(capacity: float, se: float, wanted: float) -> tuple[int, int, int | None]:
    """Hosts that share nothing, each of a measured capacity: (hosts, fewer are not enough, more are not needed).

    The interval is that of the capacity, 95 % of a normal distribution; its upper end is None where the capacity may be
    nothing.
    """
    surely = capacity - Z_95 * se
    return (
        _whole(wanted / capacity),
        _whole(wanted / (capacity + Z_95 * se)),
        _whole(wanted / surely) if surely > 0 else None,
    )


def next_counts(counts: Sequence[int], found: Count) -> tuple[int, ...]:
    """Which counts to measure next, two at most.

    An answer between measured counts is checked itself, with the count below it. Beyond them a law is an extrapolation:
    the next doubling, or the answer where that is nearer; with two counts also one between, which tells Amdahl's law
    from the USL, or the next doubling but one.
    """
    known = sorted(set(counts))
    top = known[-1]
    if not found.beyond and found.n is not None:
        return tuple(n for n in (found.n - 1, found.n) if n >= 1 and n not in known)
    further = 2 * top if found.n is None else min(2 * top, max(found.n, top + 1))
    if len(known) > 2:
        return (further,)
    low = known[-2] if len(known) > 1 else top
    between = round(math.sqrt(low * top))
    other = between if low < between < top else 2 * further
    return tuple(sorted({further, other}))


def _whole(raw: float) -> int:
    nearest = round(raw)
    return max(1, nearest if abs(raw - nearest) <= 1e-9 * max(1.0, raw) else math.ceil(raw))


def _low(family: ScalingFit, wanted: float, start: int | None) -> int | None:
    """The smallest n at which X(n) >= wanted is possible."""

    def possible(n: int) -> bool:
        return family.law.at(n) >= wanted or family.possible(n, wanted)

    if start is not None:
        return _first(possible, 1, start)
    top = MOST
    at = 1
    while at <= top:
        if possible(at):
            return _first(possible, max(1, math.floor(at / GROWTH) - 1), at)
        at = max(at + 1, math.floor(at * GROWTH))
    return None


def _high(family: ScalingFit, wanted: float, start: int) -> int | None:
    """The smallest n at which X(n) < wanted is not possible."""

    def sure(n: int) -> bool:
        return family.law.at(n) >= wanted and not family.possible(n, wanted)

    at, before = start, start
    while at <= MOST:
        if sure(at):
            return _first(sure, before, at)
        if family.law.at(at) < wanted and at > family.law.peak:
            return None
        before, at = at, max(at + 1, math.floor(at * GROWTH))
    return None


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest n of low..high at which a condition holds that holds from some n on, and at ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
