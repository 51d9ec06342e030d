"""A line that the crossing method contradicts, or that was stretched, says so beside its number."""

from __future__ import annotations

from dataclasses import replace

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate, with_second_opinion
from tests.analysis.synthetic import percentile_level


def ask(levels, bound_s, users=20):
    slo = Slo.parse(f"p95 runtime <= {bound_s}s")
    """What slope and crossing say, in this order."""
    answers = {each.method: each for each in estimate(levels, Question(users=users, slos=[slo]), "all")}
    return [answers["slope"], answers["crossing"]]


def straight(*concurrencies):
    return [percentile_level(c, 1.0 + 0.5 * c) for c in concurrencies]


def test_a_line_that_is_confirmed_has_no_doubts():
    slope, crossing = ask(straight(1, 2, 3, 4, 5), 3.0)
    assert slope.gpus == crossing.gpus == 40
    assert not any("crossing" in text for text in slope.warnings)


def test_another_number_is_named_first():
    levels = [*straight(1, 2, 3, 4, 5, 6), percentile_level(7, 4.4)]
    slope, crossing = ask(levels, 4.35)
    assert slope.gpus != crossing.gpus
    assert slope.warnings[0].startswith(
        f"the crossing method, which assumes no line, answers {crossing.gpus} GPUs ({crossing.capacity_concurrency:.3g}"
    )
    assert not any("which assumes no line" in text for text in crossing.warnings)


def test_an_extrapolated_line_stands_beside_what_is_known():
    slope, crossing = ask(straight(1, 2, 4), 8.0, users=2)
    assert slope.outside_tested_range
    assert slope.gpus == 2
    assert crossing.gpus is None
    assert slope.warnings[0] == f"the crossing method, which assumes no line, gives no number: {crossing.reason}"


def test_a_method_that_has_seen_less_says_nothing():
    answers = ask(straight(1, 2, 4), 8.0, users=2)
    blind = replace(answers[1], details={"points": answers[1].details["points"][:1]})
    assert with_second_opinion([replace(answers[0], warnings=()), blind])[0].warnings == ()


def test_a_pruned_line_that_is_confirmed_says_that_too():
    levels = [*straight(2, 4, 6, 8, 10, 12, 14, 16, 18), percentile_level(20, 30.0)]
    slope, crossing = ask(levels, 7.0, users=12)
    assert slope.details["fit"]["outliers_removed"] == [20]
    assert slope.gpus == crossing.gpus
    assert slope.warnings[0] == f"the crossing method, which assumes no line, answers {slope.gpus} GPUs as well"


def test_one_gpu_is_not_many():
    levels = [percentile_level(c, 1.0, gpus=1) for c in (1, 2)]
    _slope, crossing = ask(levels, 2.0, users=1)
    assert crossing.reason.endswith("at most 1 GPU is needed")
    _slope, crossing = ask(levels, 2.0, users=4)
    assert crossing.reason.endswith("at most 2 GPUs are needed")


def test_far_beyond_the_largest_level_the_next_ones_are_steps():
    near, _ = ask(straight(1, 2, 4), 8.0)
    assert near.next_levels == (14, 18)
    far, _ = ask(straight(1, 2, 4), 100.0)
    assert far.next_levels == (8, 16)
