"""The judge's figures, on outcomes made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benches.estimates.judge import ORACLE, Outcome, _right_reason
from benches.estimates.table import Figures, bars, groups, wilson
from gpusize.estimate.methods import Estimate
from tests.estimates_suite.simple import turns

BASE = Outcome(
    scenario="1/1",
    method="m",
    kind="own",
    traits=("trace",),
    expects="answer",
    n=10,
    right=(10,),
    raw=9.5,
    raw_error=0.001,
    answer=10,
    answer_raw=9.6,
    low=9,
    high=11,
    raw_low=9.0,
    raw_high=10.0,
    reason=None,
    right_reason=False,
    spent=10,
    budget=10,
    cpu_s=0.0,
)
NONE = replace(BASE, answer=None, answer_raw=None, low=None, high=None, raw_low=None, raw_high=None)


def test_wilson_is_the_score_interval() -> None:
    # Brown, Cai and DasGupta 2001, table of examples: 8 of 10.
    found = wilson(8, 10)
    assert (found.lo, found.hi) == pytest.approx((0.490, 0.943), abs=1e-3)
    assert wilson(0, 10).lo == 0
    assert math.isnan(wilson(0, 0).value)


def test_unanswered_questions_are_not_exact() -> None:
    found = Figures.of([BASE, NONE])
    assert (found.exact.value, found.within_one.value, found.answered.value) == (0.5, 0.5, 0.5)
    assert found.too_few.value == 0


def test_ties_count_as_exact_and_errors_by_the_nearest() -> None:
    tied = replace(BASE, right=(9, 10))
    assert Figures.of([replace(tied, answer=9)]).exact.value == 1
    off = [replace(tied, answer=answer).off for answer in (7, 8, 9, 12)]
    assert off == [-2, -1, 0, 2]
    assert Figures.of([replace(tied, answer=8)]).within_one.value == 1


def test_too_few_is_beyond_two_percent() -> None:
    large = replace(BASE, n=200, right=(200,), raw=199.5)
    assert Figures.of([replace(large, answer=197)]).too_few.value == 0
    assert Figures.of([replace(large, answer=195)]).too_few.value == 1
    assert Figures.of([replace(large, answer=195)]).near.value == 1
    assert Figures.of([replace(large, answer=250)]).near.value == 0


def test_intervals_cover_or_do_not() -> None:
    found = Figures.of([BASE, replace(BASE, raw_high=9.4, low=11, high=12)])
    assert found.raw_covered.value == 0.5
    assert found.covered.value == 0.5
    assert found.raw_width.value == pytest.approx((1 / 9.5 + 0.4 / 9.5) / 2)


def test_an_open_end_covers_and_a_missing_interval_does_not() -> None:
    open_end = replace(BASE, raw_high=None, high=None)
    bare = replace(BASE, raw_low=None, raw_high=None, low=None, high=None)
    assert Figures.of([open_end]).raw_covered.value == 1
    assert Figures.of([open_end]).raw_width.value == math.inf
    assert Figures.of([BASE, bare]).raw_covered.value == 0.5
    assert Figures.of([BASE, bare]).covered.value == 0.5
    assert math.isnan(Figures.of([bare]).raw_covered.value)


def test_bars_take_the_oracle_where_it_is_lower() -> None:
    ours = [BASE] * 400
    best = [replace(BASE, method=ORACLE, answer=11 if k % 2 else 10, answer_raw=10.9) for k in range(400)]
    found = {bar.name: bar for bar in bars({"m": ours, ORACLE: best}, "m")}
    assert found["estimate_exact_up_to_20"].bound == 0.5
    assert found["estimate_raw_error_p90"].bound == pytest.approx(10.9 / 9.5 - 1)
    assert found["estimate_exact_up_to_20"].ok
    assert not found["estimate_raw_error_median"].ok


def test_groups_are_by_mechanism_and_trait() -> None:
    known, unknown = replace(BASE, kind="fixed batches"), replace(BASE, kind="sharing", traits=("goodput", "trace"))
    found = groups([BASE, known, unknown])
    assert {name: len(each) for name, each in found.items()} == {
        "all": 3,
        "own mechanism": 1,
        "foreign mechanisms": 2,
        "foreign, no model of the twin's": 1,
        "fixed batches": 1,
        "sharing": 1,
        "goodput": 1,
        "trace": 3,
    }


@pytest.mark.parametrize(
    "reason, details, expected",
    [
        ("a single request in flight already misses the SLO", {}, True),
        ("there is no closed-loop level to estimate from", {}, False),
        ("whatever", {"refusal": "single"}, True),
        ("a single request misses it", {"refusal": "flat"}, False),
    ],
)
def test_refusals_have_to_say_why(reason: str, details: dict[str, str], expected: bool) -> None:
    scenario = turns(12, "p95 runtime <= 900ms", expects="single")
    assert _right_reason(scenario, Estimate("m", 1, 12, reason=reason, details=details)) is expected
    assert not _right_reason(scenario, Estimate("m", 1, 12, gpus=3, reason=reason, details=details))
