"""Kaplan and Meier's estimate, held against scipy's and against counting."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

from gpusize.cluster.phases.survival import kaplan_meier


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 300))
    values = draw.exponential(3.0, n)
    if seed % 3 == 0:
        values = np.round(values)  # ties, of ends with ends and with last looks
    if seed % 5 == 0:
        values = values - 1.5  # negative ones
    return values, draw.random(n) < draw.uniform(0.2, 1.0)


@pytest.mark.parametrize("seed", range(60))
def test_as_scipy_has_it(seed: int) -> None:
    values, ended = drawn(seed)
    if not ended.any():
        ended[0] = True
    ours = kaplan_meier(values, ended)
    theirs = ecdf(CensoredData(uncensored=values[ended], right=values[~ended])).sf
    at = np.searchsorted(theirs.quantiles, ours.times)
    np.testing.assert_allclose(ours.left, theirs.probabilities[at], atol=1e-9)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its interval is not known where nobody is left
        band = theirs.confidence_interval(0.95, method="log-log")
    inside = (ours.left > 1e-9) & (ours.left < 1 - 1e-12)
    np.testing.assert_allclose(ours.low[inside], band.low.probabilities[at][inside], atol=1e-9)
    np.testing.assert_allclose(ours.high[inside], band.high.probabilities[at][inside], atol=1e-9)


@given(
    st.lists(st.floats(-100, 1e6, allow_nan=False), min_size=1, max_size=80),
    st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0]),
)
@settings(max_examples=200, deadline=None)
def test_without_censoring_it_is_the_inverted_distribution(values: list[float], share: float) -> None:
    found = kaplan_meier(values, [True] * len(values)).percentile(share)
    assert found.value == np.quantile(values, share, method="inverted_cdf")
    assert found.low <= found.value <= found.high


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=60), st.integers(0, 30), st.sampled_from([0.5, 0.9, 0.99]))
@settings(max_examples=200, deadline=None)
def test_what_never_ends_counts_as_endless(values: list[float], never: int, share: float) -> None:
    """All watched to the same far end: the estimate is the plain share of all, those that never ended included."""
    found = kaplan_meier([*values, *[1e9] * never], [True] * len(values) + [False] * never)
    every = sorted([*values, *[math.inf] * never])
    assert found.percentile(share).value == every[math.ceil(share * len(every) - 1e-9) - 1]


def test_intervals_hold_as_often_as_they_say() -> None:
    """Exponential times, cut off at random: the interval of the median holds the true one in about 95 of 100."""
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(600):
        times, cuts = draw.exponential(1.0, 120), draw.uniform(0, 4, 120)
        found = kaplan_meier(np.minimum(times, cuts), times <= cuts).percentile(0.5)
        held += found.low <= math.log(2) <= found.high
    assert 0.92 <= held / 600 <= 0.98


def test_nothing_ended() -> None:
    found = kaplan_meier([1.0, 2.0], [False, False])
    assert (found.n, found.ended, found.percentile(0.5).reached) == (2, 0, False)
    assert found.ended_by(5.0) == 0.0


def test_by_hand() -> None:
    """1, 2+, 3, 3, 4+: left after 1 is 4/5, after 3 it is 4/5 * 1/3."""
    found = kaplan_meier([3, 1, 2, 4, 3], [True, True, False, False, True])
    assert found.times.tolist() == [1.0, 3.0]
    np.testing.assert_allclose(found.left, [0.8, 0.8 / 3])
    assert found.percentile(0.5).value == 3.0
    assert not found.percentile(0.9).reached
    assert found.ended_by(2.9) == pytest.approx(0.2)


def test_what_rests_on_the_last_one_that_was_looked_at_is_not_reached() -> None:
    """Eighty ended, one after 60 s, and twenty had waited for 10 to 30 s: nobody knows when these will."""
    values = [5.0] * 79 + [60.0] + [10.0 + k for k in range(20)]
    found = kaplan_meier(values, [True] * 80 + [False] * 20)
    assert found.left[-1] == 0
    assert [found.percentile(share).value for share in (0.5, 0.79, 0.8)] == [5.0, 5.0, 60.0]
    for share in (0.81, 0.9, 0.99, 1.0):
        assert not found.percentile(share).reached
        assert found.percentile(share).low <= 60
    # With nothing left open the largest is reached, as few as there are.
    assert kaplan_meier(values[:80], [True] * 80).percentile(1.0).value == 60.0


@pytest.mark.parametrize("seed", range(5))
def test_a_tail_that_enough_are_looked_at_for_is_reached(seed: int) -> None:
    """Two of a hundred were asked for a moment ago: they say nothing, and take nothing from what the others say."""
    draw = np.random.default_rng(seed)
    values = np.append(draw.exponential(5.0, 1000), [0.01] * 20)
    found = kaplan_meier(values, [True] * 1000 + [False] * 20)
    low, high = np.quantile(values[:1000], (0.988, 0.992))
    assert low <= found.percentile(0.99).value <= high
