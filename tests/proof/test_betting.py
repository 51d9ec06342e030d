"""Bets: capital by another way, ends of intervals that are where it says, and errors over all looks together."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpusize.analysis.proof.betting import STAKES, Bets

SHARES = st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=1, max_size=40)


def log_capital(values: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """The logarithm of the capital of who doubts that the mean is at most ``mean``, after each value; shape (n,)."""
    grown = np.log1p(np.array(STAKES)[:, None] * (values[None, :] / mean - 1.0)).cumsum(axis=1)
    return np.asarray(np.logaddexp.reduce(grown, axis=0) - math.log(len(STAKES)))


def capital(values: list[float], mean: float) -> Fraction:
    """By exact arithmetic, one bet after another."""
    pots = [Fraction(1) for _ in STAKES]
    for value in values:
        pots = [
            pot * (1 + Fraction(stake) * (Fraction(value) / Fraction(mean) - 1))
            for pot, stake in zip(pots, STAKES, strict=True)
        ]
    return sum(pots, Fraction(0)) / len(STAKES)


@given(SHARES, st.sampled_from([0.1, 0.5, 0.9, 0.95, 0.999]))
def test_capital_is_that_of_betting_one_after_another(values: list[float], mean: float) -> None:
    wanted = math.log(capital(values, mean))
    assert Bets(values).above(mean) == pytest.approx(wanted, abs=1e-9)
    assert log_capital(np.array(values), mean)[-1] == pytest.approx(wanted, abs=1e-9)
    mirrored = math.log(capital([1 - value for value in values], 1 - mean))
    assert Bets(values).below(mean) == pytest.approx(mirrored, rel=1e-6, abs=1e-6)


@given(SHARES, st.sampled_from([0.001, 0.05, 0.3]))
def test_the_ends_are_where_the_capital_reaches_one_over_the_error(values: list[float], error: float) -> None:
    bets, wanted = Bets(values), -math.log(error)
    low, high = bets.low(error), bets.high(error)
    assert 0 <= low <= high <= 1
    for just_inside, just_outside in ((low + 1e-6, low - 1e-6),):
        if 1e-5 < low < 1 - 1e-5:
            assert bets.above(just_inside) < wanted <= bets.above(just_outside)
    if 1e-5 < high < 1 - 1e-5:
        assert bets.below(high - 1e-6) < wanted <= bets.below(high + 1e-6)


@given(SHARES)
def test_the_mean_lies_inside(values: list[float]) -> None:
    bets, mean = Bets(values), sum(values) / len(values)
    assert bets.low(0.05) <= mean + 1e-9
    assert bets.high(0.05) >= mean - 1e-9


@pytest.mark.parametrize("share, size", [(0.95, 1), (0.95, 10), (0.99, 5), (0.5, 1)])
def test_whoever_looks_after_every_number_is_wrong_as_seldom_as_stated(share: float, size: int) -> None:
    """400 streams of binomial shares whose mean is exactly what is doubted; both doubts, at each of 2,000 looks."""
    rng = np.random.default_rng([7, size, round(1000 * share)])
    above = below = 0
    for _ in range(400):
        values = rng.binomial(size, share, 2000) / size
        above += log_capital(values, share).max() >= math.log(20)
        below += log_capital(1 - values, 1 - share).max() >= math.log(20)
    # 5 % of 400 give or take 3 standard errors is 33; a test of one look each that is repeated would be near 200.
    assert above <= 33
    assert below <= 33


def test_it_is_not_so_careful_as_to_see_nothing() -> None:
    rng = np.random.default_rng(3)
    found = [Bets(rng.binomial(1, 0.98, 1500)).low(0.05) >= 0.95 for _ in range(60)]
    assert sum(found) >= 55
    assert sum(Bets(rng.binomial(1, 0.9, 1500)).high(0.05) < 0.95 for _ in range(60)) >= 55


def test_nothing_says_nothing() -> None:
    assert (Bets([]).low(0.05), Bets([]).high(0.05)) == (0.0, 1.0)
