"""The crossing method: monotone regression and its properties, bounds instead of extrapolation, an honest interval."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.pooling import pool
from gpusize.analysis.slo import Slo
from gpusize.estimate.crossing import effective_n
from gpusize.estimate.isotonic import crossing_point, decreasing, wilson
from gpusize.estimate.methods import Question, estimate
from tests.analysis.synthetic import MS, level

SLO = Slo.parse("p90 runtime <= 100ms")

SHARES = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 1000)), min_size=1, max_size=12)


@settings(deadline=None)
@given(SHARES)
def test_monotone_regression_is_scipys(points):
    values, weights = [p[0] for p in points], [float(p[1]) for p in points]
    oracle = scipy.optimize.isotonic_regression(values, weights=weights, increasing=False).x
    assert decreasing(values, weights) == pytest.approx(list(oracle), abs=1e-9)


@settings(deadline=None)
@given(SHARES)
def test_monotone_regression_falls_keeps_the_mean_and_is_idempotent(points):
    values, weights = [p[0] for p in points], [float(p[1]) for p in points]
    found = decreasing(values, weights)
    assert all(a >= b for a, b in itertools.pairwise(found))
    assert np.average(found, weights=weights) == pytest.approx(np.average(values, weights=weights))
    assert decreasing(found, weights) == pytest.approx(found)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=10), st.floats(0.01, 0.99))
def test_the_crossing_lies_where_the_curve_does(values, wanted):
    falling = sorted(values, reverse=True)
    x = [float(2**k) for k in range(len(falling))]
    at = crossing_point(x, falling, wanted)
    assert (at is None) == (falling[0] < wanted or falling[-1] >= wanted)
    if at is not None:
        assert np.interp(at, x, falling) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("good,n", [(0, 10), (10, 10), (95, 100), (949, 1000)])
def test_wilson_is_scipys(good, n):
    oracle = scipy.stats.binomtest(good, n).proportion_ci(method="wilson")
    assert wilson(good / n, n) == pytest.approx((oracle.low, oracle.high), abs=1e-9)


def share_level(c, share, n=1000, *, failed=False, **more):
    """A level where ``share`` of the requests take 50 ms and the rest 200 ms, well mixed in time."""
    due = [k * MS for k in range(n)]
    late = [int((k + 1) * (1 - share) + 1e-9) > int(k * (1 - share) + 1e-9) for k in range(n)]
    end = [d + (200 if bad else 50) * MS for d, bad in zip(due, late, strict=True)]
    outcome = [3 if bad and failed else 0 for bad in late]
    columns = {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": end, "outcome": outcome}
    return level(c, columns, visit=c, passes=1, **more)


def ask(levels, users=100, slos=(SLO,), **more):
    return estimate(levels, Question(users, slos, **more), "crossing")[0]


def test_linear_interpolation_between_the_bracketing_levels():
    found = ask([share_level(4, 1.0), share_level(8, 0.95), share_level(16, 0.85), share_level(32, 0.1)])
    assert found.capacity_concurrency == pytest.approx(12)
    assert found.gpus_raw == pytest.approx(100 / 12 * 8)
    assert found.gpus == 67
    assert found.details["bracket"] == [8, 16]
    assert found.reason is None


def test_the_interval_comes_from_levels_that_are_sure():
    found = ask([share_level(4, 1.0), share_level(8, 0.91), share_level(16, 0.89), share_level(32, 0.1)])
    assert found.capacity_concurrency == pytest.approx(12)
    # 0.91 and 0.89 of 1000 are both too near to 0.9 to be sure of.
    assert (found.gpus_low, found.gpus_high) == (25, 200)
    assert found.gpus_low <= found.gpus <= found.gpus_high


def test_a_level_at_the_share_keeps_it():
    found = ask([share_level(8, 0.9), share_level(16, 0.5)])
    assert found.capacity_concurrency == pytest.approx(8)


def test_noise_is_pooled_not_followed():
    found = ask([share_level(4, 1.0), share_level(8, 0.88), share_level(16, 0.94), share_level(32, 0.5)])
    # 8 and 16 become 0.91 each, so the curve crosses between 16 and 32.
    assert found.capacity_concurrency == pytest.approx(16 + 16 * 0.01 / 0.41)


def test_levels_that_surely_contradict_each_other_are_named():
    found = ask([share_level(4, 1.0), share_level(8, 0.8), share_level(16, 0.99, n=4000), share_level(32, 0.5)])
    assert found.capacity_concurrency > 16
    assert any(text.startswith("concurrency 8 surely contradicts") for text in found.warnings)
    assert found.gpus_low <= found.gpus <= found.gpus_high


def test_beyond_the_largest_level_there_is_a_bound_only():
    found = ask([share_level(4, 1.0), share_level(8, 0.99)])
    assert (found.gpus, found.gpus_raw, found.capacity_concurrency) == (None, None, None)
    assert found.gpus_high == 100
    assert "beyond what was measured" in found.reason
    assert "at most 100 GPUs" in found.reason
    assert found.next_levels == (16, 32)
    assert found.outside_tested_range


def test_below_the_smallest_level_there_is_a_bound_only():
    found = ask([share_level(8, 0.2), share_level(16, 0.1)])
    assert found.gpus is None
    assert found.gpus_low == 100
    assert "at least 100 GPUs" in found.reason
    assert found.next_levels == (2, 4)


def test_when_one_request_alone_misses_no_number_of_gpus_helps():
    found = ask([share_level(1, 0.2), share_level(2, 0.1)])
    assert "no number of GPUs" in found.reason
    assert found.gpus_low is None


def test_an_interrupted_level_bounds_from_above_only():
    levels = [share_level(4, 1.0), share_level(8, 1.0)]
    timed_out = share_level(16, 0.5, n=20, failed=True, state="interrupted")
    lucky = share_level(16, 1.0, n=20, state="interrupted")
    found = ask([*levels, timed_out])
    assert found.gpus is not None
    assert any("16 was interrupted; it bounds the answer" in text for text in found.warnings)
    withheld = ask([*levels, lucky])
    assert withheld.gpus is None
    assert any("interrupted before it could miss" in text for text in withheld.warnings)


def test_a_complete_level_wins_over_an_interrupted_one_of_the_same_concurrency():
    broken = share_level(8, 0.5, n=20, failed=True, state="interrupted")
    levels = [share_level(4, 1.0), share_level(16, 0.5)]
    expected = ask([*levels, share_level(8, 1.0)]).capacity_concurrency
    assert ask([*levels, broken, share_level(8, 1.0)]).capacity_concurrency == expected
    assert ask([*levels, share_level(8, 1.0), broken]).capacity_concurrency == expected


def test_cancelled_and_partial_levels_are_left_out():
    levels = [
        share_level(4, 1.0),
        share_level(8, 0.5),
        share_level(6, 0.1, state="cancelled"),
        share_level(7, 0.1, state="partial"),
    ]
    assert ask(levels).capacity_concurrency == ask(levels[:2]).capacity_concurrency


def test_few_requests_are_warned_about():
    found = ask([share_level(4, 1.0, n=8), share_level(8, 0.5, n=8)])
    assert "too few requests at concurrency 4, 8" in found.warnings[0]
    assert found.gpus_high is None


def test_shares_can_be_crossed_and_means_cannot():
    levels = [share_level(4, 1.0), share_level(8, 0.5, failed=True)]
    share_ok = ask(levels, slos=[Slo.parse("share ok >= 90%")])
    assert share_ok.capacity_concurrency == pytest.approx(4 + 4 * 0.1 / 0.5)
    assert "no attainment" in ask(levels, slos=[Slo.parse("mean runtime <= 1s")]).reason


def test_an_slo_that_nothing_was_measured_for():
    found = ask([share_level(4, 1.0)], slos=[Slo.parse("p95 ttft <= 1s")])
    assert "no level has data" in found.reason


def test_an_slo_that_only_imports_can_know_is_a_reason_not_a_crash():
    for method in ("slope", "crossing"):
        question = Question(10, [Slo.parse("p95 llm_latency <= 1s")])
        (found,) = estimate([share_level(4, 1.0), share_level(8, 1.0)], question, method)
        assert found.gpus is None
        assert found.reason


def test_independent_requests_keep_their_number():
    rng = np.random.default_rng(7)
    due = [k * MS for k in range(4000)]
    end = [d + (200 if bad else 50) * MS for d, bad in zip(due, rng.random(4000) < 0.1, strict=True)]
    lv = level(8, {"due_ns": due, "sent_ns": due, "fired_ns": due, "end_ns": end}, passes=1)
    share, n = lv.attainment(SLO)
    assert n / 2.5 < effective_n(lv, SLO, share, n) <= n


def test_requests_that_fail_together_count_for_less():
    due = [k * MS for k in range(4000)]
    end = [d + (200 if (k // 500) % 2 else 50) * MS for k, d in enumerate(due)]
    lv = level(8, {"due_ns": due, "sent_ns": due, "fired_ns": due, "end_ns": end}, passes=1)
    share, n = lv.attainment(SLO)
    assert effective_n(lv, SLO, share, n) < n / 50
    (pooled,) = pool([lv, lv])
    assert effective_n(pooled, SLO, share, 2 * n) < 2 * n / 50


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 1), st.sampled_from([1, 20, 1000])),
        min_size=1,
        max_size=5,
        unique_by=lambda p: p[0],
    )
)
def test_every_answer_is_a_number_or_a_reason(points):
    found = ask([share_level(c, share, n=n) for c, share, n in points])
    assert (found.gpus is None) == (found.reason is not None)
    if found.capacity_concurrency is not None:
        tested = [c for c, _, _ in points]
        assert min(tested) <= found.capacity_concurrency <= max(tested)
        assert (found.gpus_low or 0) <= found.gpus <= (found.gpus_high or found.gpus)
    json.dumps(found.to_json(), allow_nan=False)
