"""What the measured levels allow, and what becomes of an answer that they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.level_quality import LevelFindings
from gpusize.estimate.measured_bounds import Bracket, MeasuredBounds
from gpusize.estimate.methods import METHODS, Question, estimate
from gpusize.estimate.question import Estimate
from gpusize.estimate.twin.sizing_result import Sized, consistent
from tests.estimate import worlds

SLO = Slo.parse("p95 runtime <= 505ms")
LOADS = (1, 2, 4, 8, 12, 16, 20, 24)


@pytest.fixture(scope="module")
def levels():
    return worlds.levels(worlds.Server(lambda at_work: 0.2 + 0.025 * at_work), LOADS)


@pytest.fixture
def held(levels):
    return MeasuredBounds(levels, LevelFindings())


def said(gpus, low=None, high=None, *, at=None, users=100.0, method="twin"):
    return Estimate(method, 1, users, str(SLO), gpus, gpus - 0.5, low, high, at)


def test_the_levels_allow_what_they_show(held):
    assert held.brackets(Question(100, [SLO]), [SLO]) == [Bracket(1, 12.0, 16.0)]


def test_an_answer_that_the_levels_allow_stays(held):
    fine = said(9, 8, 9, at=12.05)
    assert held.apply(fine, Question(100, [SLO])) == fine


def test_an_answer_far_from_what_was_measured_is_refused_with_the_reason(held):
    many = held.apply(said(26, 17, 37), Question(100, [SLO]))
    assert (many.gpus, many.gpus_low, many.gpus_high, many.details["refusal"]) == (None, None, None, "measured")
    assert many.reason == (
        "26 GPUs would be against what was measured, as 1 GPU surely meets the SLO with 12 in flight: 9 GPUs or fewer"
    )
    assert many.details["refused"]["gpus"] == 26
    few = held.apply(said(3, 2, 4), Question(100, [SLO]))
    assert few.reason.endswith("1 GPU surely misses the SLO with 16 in flight: 7 GPUs or more")


def test_an_answer_whose_interval_reaches_what_was_measured_is_moved_there(held):
    found = held.apply(said(11, 8, 12), Question(100, [SLO]))
    assert (found.gpus, found.gpus_raw) == (9, 9.0)
    assert "by itself the method says 11 GPUs" in found.warnings[0]
    assert (found.gpus_low, found.gpus_high) == (8, 9)


def test_an_interval_ends_where_the_levels_do(held):
    """Users 100: with 16 on each a GPU surely misses the SLO, with 12 it surely meets it."""
    hundred = Question(100, [SLO])
    for low, high, ends in (
        (3, 20, (7, 9)),
        (8, 9, (8, 9)),
        (1, 8, (7, 8)),
        (None, None, (None, None)),
        (4, None, (7, None)),
    ):
        found = held.apply(said(8, low, high), hundred)
        assert (found.gpus, found.gpus_low, found.gpus_high) == (8, *ends)
        assert found.warnings == ()
    # Behind another router more may be needed than the levels show, and never fewer.
    random = held.apply(said(8, 3, 20), replace(hundred, router="random"))
    assert (random.gpus_low, random.gpus_high) == (7, 20)


def test_a_capacity_lies_between_the_levels_around_it(held):
    found = held.apply(said(9, 8, 9, at=16.4), Question(100, [SLO]))
    assert found.capacity_concurrency == 15
    # The unrounded count stays what the capacity says.
    apart = replace(said(9, 5, 9, at=16.4), gpus_raw=100 / 16.4)
    assert held.apply(apart, Question(100, [SLO])).gpus_raw == pytest.approx(100 / 15)
    assert held.apply(said(9, 8, 9, at=11.0), Question(100, [SLO])).capacity_concurrency == 12
    # A line has no interval that could reach so far.
    assert held.apply(said(9, at=16.4), Question(100, [SLO])).gpus is None


def test_who_is_carried_by_the_tested_gpus_needs_no_more(held):
    for users in (10, 12):
        assert held.apply(said(2, 1, 3, at=13.0, users=users), Question(users, [SLO])).gpus == 1
    assert held.apply(said(2, 1, 3, at=13.0, users=13), Question(13, [SLO])).gpus == 1
    assert held.apply(said(2, 1, 3, at=13.0, users=14), Question(14, [SLO])).gpus == 2


def test_users_who_pause_need_no_more_than_those_who_do_not(held):
    pausing = Question(12, [SLO], think="fixed", think_s=5.0)
    assert held.apply(said(2, 1, 3, users=12), pausing).gpus == 1
    # That they are carried where others are not says nothing.
    assert held.apply(said(1, 1, 3, users=20), replace(pausing, users=20)).gpus == 1


def test_another_router_than_the_tests_may_need_more(held):
    even = Question(100, [SLO])
    assert held.apply(said(11, 8, 12), replace(even, router="random")).gpus == 11


def test_replicas_that_share_a_queue_are_not_so_many_times_one(held):
    shared = Question(100, [SLO], router="shared")
    for gpus in (7, 8, 11):
        assert held.apply(said(gpus, 6, 12), shared).gpus == gpus
    # What the tested ones carried and missed, they carry and miss.
    assert held.apply(said(2, 1, 3, users=12), replace(shared, users=12)).gpus == 1
    assert held.apply(said(1, 1, 3, users=30), replace(shared, users=30)).gpus == 2


def test_a_level_that_contradicts_its_neighbours_allows_everything(levels):
    odd = [
        replace(lv, records=lv.records.with_columns(end_ns="due_ns")) if lv.concurrency == 20 else lv for lv in levels
    ]
    assert MeasuredBounds(odd, LevelFindings()).brackets(Question(100, [SLO]), [SLO]) == [Bracket(1, 12.0, 24.0)]


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("users", [1, 10, 12, 13, 100])
def test_every_method_agrees_with_a_server_whose_times_rise_in_a_line(levels, method, users):
    [found] = estimate(levels, Question(users, [SLO]), method)
    assert found.gpus == -(-users // 12)


def test_the_capacity_is_the_one_that_the_count_rests_on():
    """The capacity said 82.7 users, the unrounded count 114: one is read off the measured curve, one is simulated."""
    server = worlds.Server(lambda at_work: 0.13 + 0.004 * at_work, slots=26, noise=0.1)
    ladder = (5, 20, 40, 60, 80, 100)
    slo = Slo.parse("p95 runtime <= 800ms")
    levels = worlds.levels(server, ladder, requests=600, seed=99)
    [found] = estimate(levels, Question(100, [slo]), "twin")
    assert found.capacity_concurrency * found.gpus_raw == pytest.approx(100, rel=1e-6)
    assert found.capacity_concurrency == pytest.approx(83, rel=0.03)


def test_a_model_that_contradicts_what_it_was_fitted_to_gives_no_number():
    found = Sized(26, 24.7, 17, 37, 16.5, 36.9, 12.05, model="static")
    odd = consistent(found, 100)
    assert (odd.replicas, odd.details["refusal"]) == (None, "measured")
    assert odd.reason == (
        "the static model says that 4.049 in flight are carried, but the measured levels cross at 12.05, further off "
        "than its interval allows"
    )
    # The levels say no more than that 4 in flight are carried and 16 are not, and 100 / 36.9 < 4 < 100 / 16.5.
    assert consistent(replace(found, between=(4, 16)), 100).replicas == 26
    apart = consistent(replace(found, between=(8, 16)), 100)
    assert apart.reason is not None
    assert "cross between 8 and 16" in apart.reason
    assert consistent(replace(found, between=(1, 2)), 100).replicas is None
    fine = consistent(replace(found, replicas=9, raw=8.4, raw_low=8.0, raw_high=9.1), 100)
    assert fine.capacity == pytest.approx(100 / 8.4)
    assert (
        consistent(replace(found, replicas=1, raw=1 / 64, raw_low=0.0, raw_high=1.0, capacity=500.0), 1).raw == 1 / 500
    )
