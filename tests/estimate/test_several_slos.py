"""Answers for several SLOs: all must hold, so the largest of every field decides and the unknown beats the known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.question import Estimate, binding
from gpusize.report.summary.words import answer, interval_text
from tests.estimate import worlds

EASY = Estimate(
    "crossing", 1, 100, "p95 runtime <= 9s", gpus_low=None, gpus_high=50, reason="the largest level keeps it"
)
HARD = Estimate("crossing", 1, 100, "p99 ttft <= 1s", 163, 162.4, 150, 170, 0.6, outside_tested_range=True)
MILD = replace(
    HARD, slo="p50 ttft <= 1s", gpus=40, gpus_raw=39.5, gpus_low=35, gpus_high=None, capacity_concurrency=2.5
)


def test_what_needs_no_more_than_another_slo_takes_decides_nothing():
    for both in (binding([EASY, HARD]), binding([HARD, EASY])):
        assert (both.gpus, both.gpus_raw, both.gpus_low, both.gpus_high) == (163, 162.4, 150, 170)
        assert (both.slo, both.capacity_concurrency) == (HARD.slo, 0.6)
        assert both.reason is None
        assert interval_text(both) == "150 to 170 GPUs"
    assert both.to_json()["gpus_high"] == 170


@pytest.mark.parametrize("high", [None, 164, 400])
def test_what_may_need_more_than_another_slo_takes_leaves_the_whole_without_a_number(high):
    for both in (binding([replace(EASY, gpus_high=high), HARD]), binding([HARD, replace(EASY, gpus_high=high)])):
        assert (both.gpus, both.gpus_raw, both.gpus_low) == (None, None, 150)
        assert both.gpus_high == (None if high is None else max(high, 170))
        assert both.capacity_concurrency is None
        assert answer(both).endswith("the largest level keeps it; p99 ttft <= 1s alone takes 163 GPUs")


def test_the_unknown_beats_the_known():
    both = binding([HARD, MILD])
    assert (both.gpus, both.gpus_raw, both.gpus_low, both.gpus_high) == (163, 162.4, 150, None)
    assert both.capacity_concurrency == 0.6
    assert both.outside_tested_range
    assert binding([MILD, replace(EASY, gpus_high=None)]).gpus_high is None


def test_a_warning_stands_under_the_slo_that_it_is_about():
    about_all, one = "requests failed at concurrency 8", "the line is short"
    both = binding([replace(HARD, warnings=(about_all, one)), replace(MILD, warnings=(about_all,))])
    assert both.warnings == (about_all, "p99 ttft <= 1s: the line is short")


@pytest.mark.parametrize("method", ["crossing", "slope", "scaling"])
def test_two_slos_need_what_the_harder_one_needs(method):
    levels = worlds.levels(worlds.Server(lambda at_work: 0.2 + 0.025 * at_work), (1, 2, 4, 8, 12, 16, 20, 24))
    easy, hard = Slo.parse("p95 runtime <= 2s"), Slo.parse("p95 runtime <= 505ms")
    [alone] = estimate(levels, Question(100, [hard]), method)
    [both] = estimate(levels, Question(100, [easy, hard]), method)
    assert alone.gpus == 9
    # Every load keeps the easier one: what it needs is bounded by far less than the harder one needs.
    # The scaling method knows no number of GPUs that is surely enough for a load which was never missed.
    assert both.gpus == (None if method == "scaling" else 9)
