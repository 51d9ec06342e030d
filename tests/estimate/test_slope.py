"""The slope method around its arithmetic: whole GPUs, ranges, reasons, other SLOs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.estimate.methods import METHODS, Question, estimate
from gpusize.estimate.question import whole_gpus
from tests.analysis.synthetic import MS, SOURCE, closed, level, percentile_level


def line(concurrencies=(1, 2, 4, 8), slope=1.0, intercept=2.0, **more):
    return [percentile_level(c, intercept + slope * c, **more) for c in concurrencies]


def ask(levels, *slos, users=100, method="slope", **more):
    return estimate(levels, Question(users, [Slo.parse(s) for s in slos or ("p95 runtime <= 8s",)], **more), method)[0]


@pytest.mark.parametrize(
    "raw,per,expected",
    [
        (0.0625, 1, 1),
        (22.0, 1, 22),
        (22.0000000000001, 1, 22),
        (22.001, 1, 23),
        (9.0, 4, 12),
        (8.0, 4, 8),
        (1e9, 1, 10**9),
    ],
)
def test_whole_gpus(raw, per, expected):
    assert whole_gpus(raw, per) == expected


def test_an_exact_division_takes_no_extra_gpu():
    found = ask(line(), users=18)
    assert found.capacity_concurrency == pytest.approx(6)
    assert (found.gpus_raw, found.gpus) == (pytest.approx(24), 24)


def test_replicas_come_whole():
    assert ask(line(), users=19, gpus_per_replica=8).gpus == 32


@pytest.mark.parametrize("method", list(METHODS))
def test_a_ramp_is_no_point_and_no_repeat(method):
    ramp = replace(percentile_level(4, 90.0), setting={"kind": "closed", "concurrency": 4, "from": 1, "passes": 2})
    levels = [*line(), ramp]
    kept, found = (ask(lvs, "p95 runtime <= 5s", method=method) for lvs in (levels[:-1], levels))
    assert (found.gpus_raw, found.capacity_concurrency) == (kept.gpus_raw, kept.capacity_concurrency)
    assert "ramps are left out: they have no one concurrency (1 to 4)" in found.warnings
    alone = ask([ramp], method=method)
    assert alone.reason == "there is no closed-loop level to estimate from"


@pytest.mark.parametrize("method", list(METHODS))
def test_a_load_that_was_not_delivered_weakens_the_answer(method):
    columns = closed(4, lambda k: 4000 * MS, duration_ns=400_000 * MS, idle_ns=1000 * MS)
    early = [each + 500 * MS for each in columns["due_ns"]]
    lv = level(4, {**columns, "fired_ns": early}, visit=9, duration_s=400)
    warnings = " ".join(ask([*line((1, 2, 8)), lv], "p95 runtime <= 5s", method=method).warnings)
    if METHODS[method].needs_counts == "all":
        # What is fitted must be true.
        assert "concurrency 4 is left out, as fewer or more requests were in flight than asked for" in warnings
    else:
        assert "concurrency 4: Little's law" in warnings
        assert "concurrency 4: generator-limited: it fired late" in warnings


def test_inside_the_tested_range():
    found = ask(line())
    assert not found.outside_tested_range
    assert found.next_levels == ()
    assert found.warnings == ()


@pytest.mark.parametrize("bound,where", [("20s", "above the largest (8)"), ("2.5s", "below the smallest (1)")])
def test_outside_the_tested_range(bound, where):
    found = ask(line(), f"p95 runtime <= {bound}")
    assert found.outside_tested_range
    assert where in found.warnings[0]
    assert found.next_levels


def test_interrupted_levels_are_left_out_and_named():
    levels = [*line(), percentile_level(16, 1.0, state="interrupted"), percentile_level(32, 1.0, state="cancelled")]
    found = ask(levels)
    assert found.gpus_raw == ask(line()).gpus_raw
    assert found.warnings == (
        "concurrency 16 is left out: it was interrupted",
        "concurrency 32 is left out: it was cancelled",
    )


def test_a_line_that_contradicts_a_measurement_says_so():
    levels = [percentile_level(c, y) for c, y in zip((1, 2, 4, 8, 16, 32), (1, 1.05, 1.1, 1.3, 2.0, 6.0), strict=True)]
    found = ask(levels, "p95 runtime <= 3.1s")
    assert "32 (6 s measured, 3.008 s on the line)" in found.warnings[0]
    assert "but 6 s were measured at 32" in found.warnings[1]


def test_any_percentile_and_metric():
    def token_level(c):
        due = [0] * 20
        first = [(100 + 10 * c + k) * MS for k in range(20)]
        columns = {"due_ns": due, "sent_ns": due, "fired_ns": due, "first_token_ns": first, "end_ns": [10**9] * 20}
        return level(c, columns, passes=2)

    levels = [token_level(c) for c in (1, 2, 4, 8)]
    found = ask(levels, "p50 ttft <= 150ms")
    assert found.details["fit"]["intercept"] == pytest.approx(0.1095)
    assert found.capacity_concurrency == pytest.approx(4.05)
    assert ask(levels, "mean ttft <= 150ms").capacity_concurrency == pytest.approx(4.05)
    assert "no value" in ask(levels, "p50 itl_mean <= 1s").warnings[0]
    assert "two levels" in ask(levels, "p50 itl_mean <= 1s").reason


@pytest.mark.parametrize("slo", ["share ok >= 99%", "p95 output_rate >= 1 tok/s", "p95 tokens_out <= 9 tokens"])
def test_slos_that_no_line_can_answer(slo):
    assert "use the crossing method" in ask(line(), slo).reason


def test_the_slo_that_needs_most_decides():
    found = ask(line(), "p95 runtime <= 8s", "p95 runtime <= 6s")
    assert found.slo == "p95 runtime <= 6s"
    assert found.gpus_raw == pytest.approx(100 / 4 * 8)
    assert [each.slo for each in found.per_slo] == ["p95 runtime <= 8s", "p95 runtime <= 6s"]
    assert len(found.to_json()["per_slo"]) == 2


def test_one_slo_without_an_answer_leaves_the_whole_without():
    found = ask(line(), "p95 runtime <= 8s", "p95 runtime <= 1s")
    assert found.gpus is None
    assert found.reason.startswith("p95 runtime <= 1s: the target of 1 s")


def test_repeats_are_pooled():
    again = [replace(lv, visit=lv.visit + 100) for lv in line()]
    assert ask([*line(), *again]).gpus_raw == pytest.approx(ask(line()).gpus_raw)


def test_numbers_of_gpus_are_not_mixed():
    found = ask([*line(), *line((1, 2), slope=2.0, gpus=4)])
    assert found.tested_gpus == 8
    assert found.gpus_raw == ask(line()).gpus_raw
    assert "the levels with 4 GPUs are left out; those with 8 count" in found.warnings


def test_the_number_of_gpus_must_be_known():
    nobody = line(gpus=0)
    assert "GPU count unknown" in ask(nobody).reason
    assert ask(nobody, gpus=8).gpus_raw == ask(line()).gpus_raw


def test_what_was_measured_wins_over_what_was_said_later():
    assert ask(line(), gpus=2).tested_gpus == 8


@pytest.mark.parametrize("method", METHODS)
def test_no_levels(method):
    assert ask([], method=method).reason == "there is no closed-loop level to estimate from"


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_users_are_not_sized_from_open_loops(method):
    due = [k * MS for k in range(100)]
    open_loop = level(None, {"due_ns": due, "sent_ns": due, "fired_ns": due, "end_ns": due}, rate=1000.0)
    found = ask([open_loop], method=method)
    assert found.gpus is None
    assert "1 open-loop levels are left out" in found.warnings[0]


def test_doubts_about_levels_become_warnings():
    def lazy(c):
        return level(c, closed(c, lambda k: (1000 + 100 * c) * MS, count=10 * c, idle_ns=200 * MS), passes=10)

    found = ask([lazy(c) for c in (1, 2, 4, 8)], "p95 runtime <= 1.7s")
    assert found.gpus is not None
    assert any(text.startswith("concurrency 8: Little's law") for text in found.warnings)


def test_failed_requests_within_the_allowance_become_a_warning():
    columns = {"due_ns": [0] * 100, "sent_ns": [0] * 100, "end_ns": [7 * 10**9] * 100, "outcome": [3, *[0] * 99]}
    found = ask([*line((1, 2, 4)), level(5, columns, passes=20)])
    assert any("requests failed at concurrency 5" in text for text in found.warnings)


def test_different_datasets_are_refused():
    with pytest.raises(UsageError, match="the dataset differ"):
        ask([*line(), *line(run="r2", source={**SOURCE, "dataset": "other"})])


def test_an_unknown_method_is_refused():
    with pytest.raises(UsageError, match="auto, all, twin, scaling, slope, crossing"):
        ask(line(), method="magic")


def test_all_methods_answer_in_their_order():
    question = Question(100, [Slo.parse("p95 runtime <= 8s")])
    assert [found.method for found in estimate(line(), question, "all")] == ["twin", "slope", "crossing"]


@pytest.mark.parametrize(
    "change",
    [{"users": 0}, {"users": -1}, {"users": float("nan")}, {"gpus_per_replica": 0}, {"gpus": 0}, {"slos": []}],
)
def test_questions_that_cannot_be_meant(change):
    with pytest.raises(UsageError):
        Question(**{"users": 1, "slos": [Slo.parse("p95 runtime <= 1s")], **change})
