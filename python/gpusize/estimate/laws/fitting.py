"""Laws of scaling through measured capacities: weighted, bounded least squares, with profile-likelihood intervals.

Written as n / X(n) = d + b n + c n (n - 1), every law is linear in d, b, c >= 0, and

    l = 1 / (d + b)        s = b / (d + b)        k = c / (d + b)

so that s lies in [0, 1] and k >= 0 by themselves (linear: only d; Amdahl: d and b). What is minimised is the sum of
((X_i - X(n_i)) / se_i)^2, by Gauss-Newton steps on this form; each step is a least-squares problem with
non-negative unknowns, solved exactly by trying all sets of unknowns that are not 0.

An interval holds every value at which that sum, minimised over all else, exceeds its minimum by no more than 3.84 (the
95 % quantile of chi-squared with one degree of freedom; Venzon and Moolgavkar 1988). All of s, k, l and X(n) at any n
are fixed by an equation that is linear in d, b, c, which makes those minima exact too. Where the points scatter about
the curve by more than their standard errors and chance allow (5 %), the errors are widened by that (Birge 1932).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.estimate.laws.bounded_least_squares import least_squares
from gpusize.estimate.laws.laws import AMDAHL, LAWS, LINEAR, USL, Law

__all__ = ["CUTOFF", "Point", "ScalingFit", "fit"]

CUTOFF: Final = 3.841458820694124
"""95 % quantile of chi-squared with one degree of freedom."""

LEAST_SHARE: Final = 1e-9
"""An s or k below this is none."""
MOST_TIMES: Final = 1e9
"""An interval that reaches this many times its value is open."""
PRECISION: Final = 1e-5
"""Relative precision of an interval's ends."""
STEPS: Final = 60
CONVERGED: Final = 1e-9
_COLUMNS: Final = {LINEAR: 1, AMDAHL: 2, USL: 3}


@dataclass(frozen=True, slots=True)
class Point:
    """A measured capacity.

    Attributes:
        count: GPUs, instances or replicas, at least 1.
        capacity: load that they carry, above 0, in one unit for all points.
        se: its standard error, above 0, in the same unit.

    Raises:
        UsageError: a number is none of that.
    """

    count: int
    capacity: float
    se: float

    def __post_init__(self) -> None:
        if self.count < 1 or not all(math.isfinite(x) and x > 0 for x in (self.capacity, self.se)):
            raise UsageError(
                f"invalid capacity: {self.capacity:g} +- {self.se:g} with {self.count}",
                None,
                "give counts from 1, and capacities and standard errors above 0",
            )


@dataclass(frozen=True)
class ScalingFit:
    """A law through points.

    Attributes:
        law: the best curve.
        points: what it was laid through, by count.
        chi2: sum of squared residuals over standard errors.
        freedom: points beyond the parameters that are not at a bound.
        widened: factor by which the standard errors were widened, at least 1.
    """

    law: Law
    points: tuple[Point, ...]
    chi2: float
    freedom: int
    widened: float

    @cached_property
    def _solver(self) -> _Solver:
        return _Solver(self.points, _COLUMNS[self.law.name])

    @cached_property
    def sigma(self) -> tuple[float, float]:
        """95 % profile-likelihood interval of s; (0, 0) for the linear law."""
        if self.law.name == LINEAR:
            return 0.0, 0.0
        return self._profile(self.law.sigma, lambda s: ((-s, 1 - s, 0.0), 0.0), (0.0, 1.0))

    @cached_property
    def kappa(self) -> tuple[float, float]:
        """The same of k; (0, 0) but for the USL."""
        if self.law.name != USL:
            return 0.0, 0.0
        return self._profile(self.law.kappa, lambda k: ((-k, -k, 1.0), 0.0))

    @cached_property
    def one(self) -> tuple[float, float]:
        """The same of l, the capacity of one."""
        return self.capacity(1)

    def capacity(self, n: int) -> tuple[float, float]:
        """The same of X(n)."""
        return self._profile(self.law.at(n), lambda x: (_row(n), n / x if x else math.inf))

    def possible(self, n: int, capacity: float) -> bool:
        """Whether X(n) = ``capacity`` lies within the 95 % interval of X(n)."""
        return self._within(_row(n), n / capacity)

    def _within(self, row: Sequence[float], value: float) -> bool:
        found = self._solver.solve(row, value)
        return found is not None and found[1] - self._least <= CUTOFF * self.widened**2

    @cached_property
    def _least(self) -> float:
        found = self._solver.solve()
        return self.chi2 if found is None else min(self.chi2, found[1])

    def _profile(
        self,
        best: float,
        equation: Callable[[float], tuple[Sequence[float], float]],
        ends: tuple[float, float] = (0.0, math.inf),
    ) -> tuple[float, float]:
        """Both ends of the interval around ``best``, by doubling and bisection; ``ends`` is what may be at all."""

        def within(value: float) -> bool:
            return self._within(*equation(value))

        first = best if best > 0 else LEAST_SHARE
        low, high = best, first
        # At a bound of 0 one look is enough; a capacity has none there, and is never 0.
        nothing = math.isfinite(equation(0.0)[1]) and within(0.0)
        while low > LEAST_SHARE and not nothing and within(low / 2):
            low /= 2
        low = 0.0 if nothing or low <= LEAST_SHARE else _boundary(within, low, low / 2)
        while high < ends[1] and within(min(high * 2, ends[1])):
            high = min(high * 2, ends[1])
            if high > first * MOST_TIMES:
                return max(low, ends[0]), ends[1]
        return max(low, ends[0]), high if high >= ends[1] else _boundary(within, high, high * 2)


def fit(points: Sequence[Point], law: str = USL) -> ScalingFit:
    """Lay a law through points.

    Args:
        points: at least one; several of one count count each.
        law: ``linear``, ``amdahl`` or ``usl``. Of a law with more parameters than there are counts, the curve is the
            one with the smallest k, then s, and its intervals tell how little is known.

    Raises:
        UsageError: no point, or no such law.
    """
    if law not in LAWS:
        raise UsageError(f"unknown law {law!r}", None, f"use one of {', '.join(LAWS)}")
    if not points:
        raise UsageError("a law needs a point to go through", None, "give a count and its capacity")
    ordered = tuple(sorted(points, key=lambda p: (p.count, p.capacity)))
    counts = len({p.count for p in ordered})
    found = _Solver(ordered, min(_COLUMNS[law], counts)).solve()
    if found is None:
        raise UsageError("no curve goes through these points", None, "look at the capacities")
    (d, b, c), chi2 = found
    freedom = len(ordered) - sum(each > 0 for each in (d, b, c))
    widened = math.sqrt(chi2 / freedom) if freedom > 0 and chi2 > _chance(freedom) else 1.0
    one = 1 / (d + b)
    return ScalingFit(Law(law, one, b * one, c * one), ordered, chi2, freedom, widened)


def _chance(freedom: int) -> float:
    """95 % quantile of chi-squared, after Wilson and Hilferty (1931)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + 1.6448536269514722 * math.sqrt(part)) ** 3


def _row(n: float) -> tuple[float, float, float]:
    return 1.0, float(n), float(n * (n - 1))


def _boundary(within: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where a condition that holds at ``inside`` and not at ``outside`` ends."""
    for _ in range(60):
        middle = (inside + outside) / 2
        if within(middle):
            inside = middle
        else:
            outside = middle
        if abs(outside - inside) <= PRECISION * max(abs(inside), abs(outside), 1e-9):
            break
    return (inside + outside) / 2


class _Solver:
    """Least squares through points with the first so many of the unknowns d, b, c."""

    def __init__(self, points: Sequence[Point], columns: int) -> None:
        self._points = tuple(points)
        self._rows = [_row(p.count)[:columns] for p in points]
        self._columns = columns

    def solve(
        self, row: Sequence[float] | None = None, value: float = 0.0
    ) -> tuple[tuple[float, float, float], float] | None:
        """The best (d, b, c) and its chi-squared, perhaps with row . (d, b, c) = value; None where nothing fits."""
        equation = None if row is None else (row[: self._columns], value)
        beta = self._step([p.count / p.capacity for p in self._points], equation)
        if beta is None:
            return None
        least = self._chi2(beta)
        for _ in range(STEPS):
            step = self._step(self._values(beta), equation, around=True)
            if step is None:
                break
            better, chi2 = self._shortened(beta, step, least)
            done = least - chi2 <= CONVERGED * max(1.0, least)
            beta, least = better, chi2
            if done:
                break
        full = [*beta, 0.0, 0.0][:3]
        return (full[0], full[1], full[2]), least

    def _values(self, beta: Sequence[float]) -> list[float]:
        return [sum(map(mul, row, beta)) for row in self._rows]

    def _step(
        self, y: Sequence[float], equation: tuple[Sequence[float], float] | None, *, around: bool = False
    ) -> list[float] | None:
        """Solve for n / X = y, or with X(n) drawn as a straight line around y: n / (y + e) is n / y - n e / y^2."""
        rows, aim = [], []
        for p, row, at in zip(self._points, self._rows, y, strict=True):
            weight = p.count / (at * at * p.se)
            rows.append([weight * each for each in row])
            aim.append(weight * (at + (1 - p.capacity * at / p.count) * at if around else at))
        found = least_squares(rows, aim, equation)
        return found if found is not None and min(self._values(found)) > 0 else None

    def _shortened(self, beta: list[float], step: list[float], least: float) -> tuple[list[float], float]:
        """The step, or the largest of its halves that makes things no worse."""
        part = 1.0
        for _ in range(20):
            tried = [b + part * (s - b) for b, s in zip(beta, step, strict=True)]
            chi2 = self._chi2(tried)
            if chi2 <= least:
                return tried, chi2
            part /= 2
        return beta, least

    def _chi2(self, beta: Sequence[float]) -> float:
        y = self._values(beta)
        if min(y) <= 0:
            return math.inf
        return sum([((p.capacity - p.count / at) / p.se) ** 2 for p, at in zip(self._points, y, strict=True)])
