"""Intervals and verdicts against SciPy's tests, and their rates of error over seeded repeats."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpusize.analysis.compare.differences import Difference, difference, with_verdicts
from gpusize.analysis.compare.figures import Figure, Measured

P95 = Figure("p95 runtime", "s", "less", "ratio", lambda level: Measured(math.nan))
RATE = Figure("achieved rate", "requests/s", "more", "ratio", lambda level: Measured(math.nan))
ERRORS = Figure("error share", "share", "less", "share", lambda level: Measured(math.nan))
one = st.integers(100, 10_000).map(lambda value: value / 1000)
values = st.lists(one, min_size=2, max_size=12, unique=True)


def of(a: Sequence[float], b: Sequence[float], figure: Figure = P95, **more: Any) -> Difference:
    return difference("b", "16 users", figure, [Measured(v) for v in a], [Measured(v) for v in b], **more)


def drawn(rnd: random.Random, runs: int, spread: float) -> list[float]:
    """A figure of as many runs whose logarithm varies by ``spread``."""
    return [math.exp(rnd.gauss(0, spread)) for _ in range(runs)]


def judged(*given: Difference, **more: Any) -> list[str]:
    return [each.verdict for each in with_verdicts(given, **more)]


@given(values, values)
def test_runs_are_held_together_by_welchs_test(a: list[float], b: list[float]) -> None:
    found = of(a, b)
    wanted = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    low, high = wanted.confidence_interval(0.95)
    assert found.design == "runs"
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)
    assert found.low == pytest.approx(math.expm1(low), rel=1e-5, abs=1e-6)
    assert math.log1p(found.high) == pytest.approx(min(high, 700), rel=1e-5, abs=1e-6)


@given(st.lists(st.tuples(one, one), min_size=2, max_size=12, unique=True))
def test_runs_made_in_turns_are_held_together_by_pairs(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    if len({round(y / x, 9) for x, y in pairs}) < 2:
        return
    found = of(a, b, paired=True)
    wanted = stats.ttest_rel(np.log(b), np.log(a))
    assert found.design == "pairs"
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-4, abs=1e-9)
    assert found.low == pytest.approx(math.expm1(wanted.confidence_interval(0.95).low), rel=1e-4, abs=1e-6)


def test_single_runs_get_an_interval_and_no_verdict() -> None:
    found = difference("b", "16 users", P95, [Measured(1.0, 0.01, 400)], [Measured(1.2, 0.01, 400)])
    assert judged(found) == ["within these two runs"]
    assert found.design == "within"
    assert math.log1p(found.low) == pytest.approx(math.log(1.2) - 1.96 * 0.01 * math.sqrt(2), rel=1e-2)
    blind = difference("b", "16 users", P95, [Measured(1.0)], [Measured(1.2)])
    assert math.isnan(blind.low)
    assert blind.change == pytest.approx(0.2)


def test_fewer_blocks_widen_the_interval() -> None:
    def width(blocks: float) -> float:
        found = difference("b", "16 users", P95, [Measured(1.0, 0.01, blocks)], [Measured(1.0, 0.01, blocks)])
        return found.high - found.low

    assert width(6) > 1.1 * width(20) > 1.1 * width(1000) * 0.95


def test_a_side_without_values_has_no_difference() -> None:
    found = difference("b", "16 users", P95, [Measured(math.nan)], [Measured(1.0), Measured(1.1)])
    assert (found.runs, judged(found)) == ((0, 2), ["within these two runs"])
    assert math.isnan(found.change)


def test_directions() -> None:
    slower, faster = (1.0, 1.01, 0.99), (1.5, 1.51, 1.49)
    assert judged(of(slower, faster), of(slower, faster, RATE)) == ["worse", "better"]
    assert judged(of(faster, slower), of(faster, slower, RATE)) == ["better", "worse"]


def test_equivalent_is_an_interval_inside_the_margin() -> None:
    a, b = (1.0, 1.001, 0.999, 1.0005), (1.004, 1.005, 1.003, 1.0045)
    # Surely slower, by 0.4 %, which does not matter.
    assert of(a, b).p < 1e-3
    assert judged(of(a, b)) == ["equivalent"]
    assert judged(of(a, b), margin=0.001) == ["worse"]
    assert judged(of((1.0, 1.1, 0.9), (1.0, 1.1, 0.9))) == ["no evidence"]


def test_shares_have_a_tenth_of_the_margin() -> None:
    a, b = (0.0, 0.0004, 0.0002), (0.0001, 0.0003, 0.0005)
    assert judged(of(a, b, ERRORS)) == ["equivalent"]
    assert judged(of(a, [v + 0.01 for v in b], ERRORS)) == ["worse"]


def test_no_failure_in_few_requests_is_not_equivalent_to_none() -> None:
    few = [Measured(0.0, 0.01, 20)] * 3
    many = [Measured(0.0, 1e-5, 20)] * 3
    assert judged(difference("b", "1 user", ERRORS, few, few)) == ["no evidence"]
    assert judged(difference("b", "1 user", ERRORS, many, many)) == ["equivalent"]


def test_runs_that_are_equal_to_the_last_digit_are_not_sure_for_ever() -> None:
    """Simulated runs of one seed are all the same: what varies inside them is all that is known."""
    same = [Measured(1.0, 0.02, 50)] * 3
    apart = [Measured(value, 0.02, 50) for value in (0.99, 1.0, 1.01)]
    assert difference("b", "1 user", P95, same, same).high > 0.02
    assert math.isnan(of((1.0,) * 3, (1.0,) * 3).high)
    assert difference("b", "1 user", P95, apart, apart).high < 0.025


def test_holm_takes_the_least_first_and_stops() -> None:
    """p of 0.02 is enough alone, and not beside nine others that say nothing."""
    rnd = random.Random(2)
    sure = of((1.0, 1.02, 0.98, 1.01), (1.06, 1.08, 1.03, 1.10))
    assert 0.004 < sure.p < 0.03
    noise = [of([rnd.gauss(1, 0.1) for _ in range(4)], [rnd.gauss(1, 0.1) for _ in range(4)]) for _ in range(9)]
    assert judged(sure) == ["worse"]
    assert judged(sure, *noise)[0] == "no evidence"


def test_equal_systems_are_seldom_called_different() -> None:
    """400 comparisons of twelve figures of one system with itself: a wrong verdict in at most 5 of 100 of them."""
    rnd = random.Random(5)
    wrong = 0
    for _ in range(400):
        runs = 2 + rnd.randrange(5)
        several = [of(drawn(rnd, runs, 0.03), drawn(rnd, runs, 0.03)) for _ in range(12)]
        wrong += any(verdict in ("better", "worse") for verdict in judged(*several))
    # The upper 99 % end of a binomial with 5 %.
    assert wrong <= stats.binom.ppf(0.99, 400, 0.05)


def test_what_could_have_been_seen_is_seen_in_four_of_five() -> None:
    rnd = random.Random(9)
    runs, spread = 8, 0.03
    typical = np.median([of(drawn(rnd, runs, spread), drawn(rnd, runs, spread)).detectable for _ in range(200)])
    seen = 0
    for _ in range(600):
        slower = [(1 + typical) * value for value in drawn(rnd, runs, spread)]
        seen += of(drawn(rnd, runs, spread), slower).p < 0.05
    assert 0.74 < seen / 600 < 0.86


def test_a_bound_has_a_probability_of_its_own() -> None:
    found = of((1.0, 1.01, 0.99), (1.10, 1.11, 1.09))
    assert found.above(0.0) == pytest.approx(found.p / 2)
    assert found.above(found.change) == pytest.approx(0.5)
    assert found.above(0.2) > 0.99
    assert found.above(-1.0) == 0.0
    assert math.isnan(of((1.0,), (1.1,)).above(0.05))
