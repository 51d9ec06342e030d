"""The default: the twin, what stands in for it and says so, and the questions that get no number."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.level_quality import UNBELIEVED
from gpusize.estimate.methods import Question, estimate
from tests.analysis.synthetic import percentile_level
from tests.estimate.virtual import calls_by_the_server, level

SLO = Slo.parse("p95 runtime <= 8s")
LATENCY = Slo.parse("p95 llm_latency <= 8s")
LOADS = (1, 12, 20, 24, 30)
RESERVE: dict[str, Any] = {"headroom": 0.2, "spare": 1}


@pytest.fixture(scope="module")
def levels():
    return [level(users, requests=900 if users > 12 else 200) for users in LOADS]


def ask(levels, slos=(SLO,), users=100, method="auto", **more):
    [found] = estimate(levels, Question(users, list(slos), **more), method)
    return found


def flagged(given, flag):
    """The level with a figure that makes the checks flag it."""
    if flag == "little":
        twice = {**given.setting, "concurrency": 2 * given.concurrency}
        return replace(given, setting=twice, meta={**given.meta, "setting": twice})
    length_ns = given.meta["end_ns"] - given.meta["start_ns"]
    return replace(given, meta={**given.meta, "workers": 1, "cpu_ns": int(0.95 * length_ns)})


def test_the_default_is_the_twins_answer(levels):
    found = ask(levels)
    [twin] = estimate(levels, Question(100, [SLO]), "twin")
    assert (found.method, found.fallback) == ("twin", None)
    assert found.to_json() == twin.to_json()


def test_all_begins_with_the_default_and_asks_nobody_twice(levels):
    answers = estimate(levels, Question(100, [SLO]), "all")
    assert [each.method for each in answers] == ["twin", "slope", "crossing"]
    assert answers[0].to_json() == ask(levels).to_json()


@pytest.mark.parametrize("flag", ["little", "generator-limited"])
def test_a_flagged_level_is_left_out_by_the_default(levels, flag):
    found = ask([*levels[:-1], flagged(levels[-1], flag)])
    assert found.answered
    assert any("is left out, as" in text for text in found.warnings)
    without = ask(levels[:-1])
    assert (found.gpus, found.gpus_raw) == (without.gpus, without.gpus_raw)


@pytest.mark.parametrize("flag", ["little", "generator-limited"])
def test_side_by_side_no_method_rests_on_a_level_that_another_leaves_out(levels, flag):
    """One rule for all, and it is told which level that was."""
    asked = Question(100, [SLO])
    odd = flagged(levels[-1], flag)
    answers = estimate([*levels[:-1], odd], asked, "all")
    without = estimate(levels[:-1], asked, "all")
    assert [(each.method, each.gpus_raw) for each in answers] == [(each.method, each.gpus_raw) for each in without]
    told = [text for text in answers[0].warnings if "is left out, as" in text]
    assert told == [f"concurrency {odd.concurrency} is left out, as {UNBELIEVED[flag]}"]


@pytest.mark.parametrize(
    "flag, why",
    [("little", "requests were in flight than asked for"), ("generator-limited", "generator was the limit")],
)
def test_of_flagged_levels_alone_nothing_follows(levels, flag, why):
    found = ask([flagged(each, flag) for each in levels])
    assert found.gpus is found.gpus_low is found.gpus_high is None
    assert "no level can be used" in found.reason
    assert why in found.reason
    assert len(found.next_levels) == 2


def test_the_reason_says_what_was_left_out_and_what_to_do(levels):
    late = [flagged(each, "generator-limited") for each in levels]
    assert "5 levels are left out (concurrency 1, 12, 20, 24, 30), as the generator was the limit" in ask(late).reason
    assert "--resume" not in ask(late).reason
    searched = [replace(each, meta={**each.meta, "search": {"why": "grow"}}) for each in late]
    assert ask(searched).reason.endswith("measure them again, which gpusize run --resume RUN does")
    # Beside a reason of its own, too.
    missed = ask([*levels[2:4], flagged(levels[4], "generator-limited")], [Slo.parse("p95 runtime <= 6s")])
    assert missed.gpus is None
    assert "a level is left out (concurrency 30), as the generator was the limit" in missed.reason
    # Nobody is told to give cores to a generator that did not lack them.
    assert "--workers" not in ask([flagged(each, "little") for each in levels]).reason


def test_what_could_not_be_checked_is_no_flag(levels):
    from gpusize.analysis.checks import check

    short = level(12, requests=20)
    assert check(short).little.status == "not checkable"
    assert "left out" not in " ".join(ask([short, *levels]).warnings)


def test_one_load_is_too_few_and_two_others_are_named(levels):
    kept = ask([level(12, requests=300)])
    assert kept.gpus is None
    assert "only concurrency 12 can be used, and it takes two loads" in kept.reason
    assert kept.next_levels == (24, 48)
    missed = ask([level(30, requests=900)])
    assert missed.next_levels == (7, 15)
    assert ask([replace(levels[0], setting={"kind": "open", "rate": 5.0})]).next_levels == (1, 8)


def test_a_single_request_that_misses_needs_no_second_load():
    found = ask([level(1, requests=60)], [Slo.parse("p95 runtime <= 500ms")])
    assert (found.gpus, found.details["refusal"], found.next_levels) == (None, "single", (1, 2))
    joint = [Slo.parse("p50 runtime <= 2.4s"), Slo.parse("p50 ttft <= 33.6ms")]
    apart = [ask([level(1, requests=200)], [each]) for each in joint]
    assert [each.details["refusal"] for each in apart] == ["data", "data"]
    assert ask([level(1, requests=200)], joint, together=True).details["refusal"] == "single"


def test_a_flat_curve_has_no_number(levels):
    found = ask(levels, [Slo.parse("p95 runtime <= 100s")], users=5000)
    assert (found.method, found.gpus, found.details["refusal"]) == ("twin", None, "flat")
    assert found.next_levels == (60, 120)
    assert found.changes == ()


def test_an_edge_that_only_flagged_levels_saw_is_to_be_measured_again(levels):
    found = ask([*levels[:2], flagged(levels[-2], "generator-limited"), flagged(levels[-1], "generator-limited")])
    assert (found.method, found.gpus, found.details["refusal"]) == ("twin", None, "flat")
    missed = [each for each in levels[-2:] if each.met(SLO) is False]
    assert missed
    assert f"It was missed at concurrency {', '.join(str(each.concurrency) for each in missed)}, but" in found.reason
    assert "there the generator was the limit: give the generator idle cores" in found.reason
    assert "measure them again" in found.reason
    assert found.next_levels == (24, 30)


def test_violated_at_the_smallest_load_has_no_number(levels):
    alone = ask(levels, [Slo.parse("p95 runtime <= 500ms")])
    assert (alone.gpus, alone.details["refusal"], alone.next_levels) == (None, "single", (1, 2))
    above = ask(levels[3:], [Slo.parse("p95 runtime <= 6s")])
    assert above.gpus is None
    assert above.method == "crossing"
    assert "Nor does the crossing method" in above.fallback
    assert above.next_levels == (6, 12)


def test_an_interrupted_level_can_show_the_edge_that_the_twin_did_not_see(levels):
    stopped = replace(levels[-1], state="interrupted", meta={**levels[-1].meta, "state": "interrupted"})
    found = ask([levels[0], levels[1], stopped])
    assert found.method == "crossing"
    assert "no measured load misses an SLO" in found.fallback
    assert found.answered
    assert "interrupted" in " ".join(found.warnings)


def test_figures_without_requests_are_answered_by_scaling():
    imported = [
        replace(each, meta={**each.meta, "imported": "other"}, percentiles={"runtime_p95_s": 0.2 * each.concurrency})
        for each in (percentile_level(c, 1.0) for c in (8, 16, 32))
    ]
    found = ask(imported, [Slo.parse("p95 runtime <= 5s")])
    assert (found.method, found.gpus) == ("scaling", 32)
    assert found.fallback.startswith("the twin method gives no number: imported levels")
    assert found.fallback.endswith("This is the scaling method's answer")


def test_calls_that_the_server_timed_are_answered_by_crossing(levels):
    found = ask([calls_by_the_server(each) for each in levels], [LATENCY])
    assert found.method == "crossing"
    assert found.answered
    assert "another clock than the generator's timed them" in found.fallback


def test_a_request_that_is_a_models_call_has_its_service_time_for_latency(levels):
    """As the same bound on the service time is answered, whatever else is asked."""
    api = [replace(each, source={"targets": [{"api": "openai-chat"}]}) for each in levels]
    others = [Slo.parse("p95 ttft <= 1s")]
    for more, together in (([], False), (others, True)):
        found, plain = (ask(api, [slo, *more], together=together) for slo in (LATENCY, Slo.parse("p95 service <= 8s")))
        assert (found.method, found.fallback) == ("twin", None)
        assert (found.gpus, found.gpus_low, found.gpus_high) == (plain.gpus, plain.gpus_low, plain.gpus_high)
    unknown = ask(levels, [LATENCY])
    assert unknown.gpus is None
    assert unknown.reason.startswith("no level has data for p95 llm_latency <= 8s")


def test_what_the_stand_in_does_not_know_is_assumed_aloud(levels):
    calls = [calls_by_the_server(each) for each in levels]
    found = ask(calls, [LATENCY], router="random", think_s=2.0, think="fixed")
    assert any("at random it takes more" in text for text in found.assumptions)
    assert any("where they pause longer, fewer GPUs are enough" in text for text in found.assumptions)
    shared = ask(calls, [LATENCY], router="shared")
    assert any("each replica has a queue of its own" in text for text in shared.assumptions)
    joint = ask(calls, [LATENCY, Slo.parse("p95 ttft <= 1s")], together=True)
    assert (joint.method, joint.gpus, joint.fallback) == ("twin", None, None)
    assert "no request keeps an SLO on the calls inside it and others at once" in joint.reason


def test_headroom_and_spares_come_on_top_of_every_part(levels):
    slos = [SLO, Slo.parse("p50 runtime <= 4s")]
    plain, more = (estimate(levels, Question(100, slos, **reserve), "crossing")[0] for reserve in ({}, RESERVE))
    for one, other in zip((plain, *plain.per_slo), (more, *more.per_slo), strict=True):
        assert other.gpus == -(-one.gpus * 6 // 5) + 1
        assert other.details["gpus_without_reserve"] == one.gpus
    assert (
        f"{plain.gpus} GPUs carry the load; 20 % of that is headroom on top and 1 replica to spare" in more.assumptions
    )


def test_throughput_without_an_slo_is_a_question_for_scaling(levels):
    found = ask(levels, [], users=0, rate=40.0)
    assert (found.method, found.rate) == ("scaling", 40.0)
    assert "it sizes for SLOs" in found.fallback
    assert "throughput still rises" in found.reason
    assert found.next_levels == (60, 120)


def thresholds(found):
    """The loads at which an answer says that it would be another one."""
    told = re.match(r"more than about (\S+) \S+ need more GPUs, for about (\S+) \S+ or fewer", found.changes[0])
    return [float(text.replace(",", "")) for text in told.groups()]


@pytest.mark.parametrize(
    "asked", [{"users": 0, "rate": 18.0}, {"users": 260, "think_s": 8.0, "think": "exponential"}, {"users": 47}]
)
def test_at_the_loads_that_change_an_answer_it_is_another_one(levels, asked):
    """By asking again: pauses and arrivals at random take more than their part of few GPUs."""
    found = ask(levels, **asked)
    carried, less = thresholds(found)
    name = "rate" if asked.get("rate") else "users"
    near = 0.02
    for load, counts in (
        (carried * (1 - near), {found.gpus}),
        (carried * (1 + near) + 1, {found.gpus + 1}),
        (less * (1 - near) - 1, {found.gpus - 1}),
        (less * (1 + near) + 1, {found.gpus}),
    ):
        again = ask(levels, **{**asked, name: load if name == "rate" else round(load)})
        assert again.gpus in counts, load


def test_the_answer_says_what_would_change_it(levels):
    found = ask(levels)
    assert found.changes[0].startswith("more than about ")
    carried, less = thresholds(found)
    assert ask(levels, users=carried).gpus == found.gpus
    assert ask(levels, users=round(1.03 * carried)).gpus > found.gpus
    assert ask(levels, users=less).gpus < found.gpus
    assert ask(levels, users=round(1.03 * less)).gpus == found.gpus
    assert any("slow each other down" in text for text in found.changes)
    assert any("pause" in text for text in found.changes)
    assert not any("pause" in text for text in ask(levels, think_s=1.0, think="fixed").changes)


def test_a_count_of_tested_gpus_that_the_runs_contradict_is_said(levels):
    text = "1 GPU was tested, as the runs say: 8 is not taken"
    assert text in ask(levels, gpus=8).warnings
    assert ask(levels, gpus=8).gpus == ask(levels).gpus
    for gpus in (None, 1):
        assert not any("is not taken" in each for each in ask(levels, gpus=gpus).warnings)
    unknown = [replace(each, gpus=0) for each in levels]
    found = ask(unknown, gpus=8)
    assert found.tested_gpus == 8
    assert not any("is not taken" in each for each in found.warnings)


BUYS = ({"headroom": 0.3}, {"spare": 2}, {"host_gpus": 4}, {"host_gpus": 8, "headroom": 0.1})


@pytest.mark.parametrize("method", ["auto", "crossing", "scaling"])
@pytest.mark.parametrize("more", BUYS)
def test_the_loads_that_change_an_answer_are_those_at_which_it_is_asked_again(levels, more, method):
    found = ask(levels, method=method, **more)
    fewer = r"for about ([\d.,]+) users or fewer (\d+) GPUs? (?:is|are) enough"
    text = re.fullmatch(rf"more than about ([\d.,]+) users need more GPUs(?:, {fewer})?", found.changes[0])
    assert text is not None, found.changes[0]
    carried = float(text[1].replace(",", ""))
    near = [ask(levels, users=by * carried, method=method, **more).gpus for by in (0.98, 1.03)]
    assert near[0] == found.gpus < near[1]
    if text[2] is not None:
        less = float(text[2].replace(",", ""))
        assert ask(levels, users=0.97 * less, method=method, **more).gpus == int(text[3]) < found.gpus


@pytest.mark.parametrize("per", [1, 2])
def test_what_takes_more_than_a_host_comes_in_whole_ones(levels, per):
    one, hosts = (ask(levels, gpus_per_replica=per, host_gpus=host) for host in (None, 4))
    assert one.gpus > 4
    for name in ("gpus", "gpus_low", "gpus_high"):
        assert getattr(hosts, name) == 4 * -(-getattr(one, name) // 4)
    assert hosts.gpus_raw == one.gpus_raw
    assert f"GPUs come in whole hosts of 4; {one.gpus} GPUs carry the load" in hosts.assumptions
    inside = ask(levels, gpus_per_replica=per, host_gpus=64)
    assert (inside.gpus, inside.gpus_low, inside.gpus_high) == (one.gpus, one.gpus_low, one.gpus_high)
    assert "all are in one host of 64 GPUs" in inside.assumptions


def test_a_reserve_is_part_of_the_hosts(levels):
    spare = ask(levels, host_gpus=4, **RESERVE)
    plain = ask(levels, **RESERVE)
    assert (spare.gpus, spare.details["gpus_without_reserve"]) == (4 * -(-plain.gpus // 4), ask(levels).gpus)


def test_a_load_that_missed_is_not_said_to_have_met(levels):
    """Of too few requests to count beside larger loads, which met it: neither is believed."""
    slo = Slo.parse("p95 runtime <= 12s")
    odd = level(16, requests=120, slowness=3.0)
    assert ask(levels, slos=(slo,)).details["refusal"] == "flat"
    assert odd.met(slo) is False
    found = ask([*levels, odd], slos=(slo,))
    assert (found.gpus, found.gpus_low, found.gpus_high) == (None, None, None)
    assert "contradict each other: concurrency 16 missed an SLO that concurrency 30 met" in found.reason
    assert 16 in found.next_levels


def test_the_largest_load_may_miss_by_as_little_as_chance_allows(levels):
    """The twin's curve keeps the SLO there, and the level does not: that is no contradiction between levels."""
    top = max(levels, key=lambda each: each.concurrency)
    times = np.sort(top.values("runtime"))
    # 94.7 % are within it.
    slo = Slo.parse(f"p95 runtime <= {times[int(0.947 * times.size)]:.6f}s")
    assert top.met(slo) is False
    found = ask(levels, slos=(slo,))
    assert "contradict" not in str(found.reason)
    assert found.gpus is not None
    below = sorted(each.concurrency for each in levels)[-2]
    assert below <= found.capacity_concurrency <= top.concurrency


def test_an_answer_below_the_largest_load_that_met_names_no_load_that_tips_it(levels):
    found = ask(levels, (Slo.parse("p95 runtime <= 100s"),), users=25)
    assert (found.gpus, found.gpus_low, found.gpus_high, found.capacity_concurrency) == (1, None, 1, None)
    assert found.changes[0].startswith("no measured load missed an SLO, so fewer may do")
    assert not any("need more GPUs" in text or "lower end" in text for text in found.changes)


@pytest.mark.parametrize("op", [">", ">="])
def test_an_slo_that_asks_for_slow_requests_is_asked_about(levels, op):
    found = ask(levels, (Slo.parse(f"p95 runtime {op} 8s"),))
    assert (found.gpus, found.gpus_low) == (None, None)
    meant = op.replace(">", "<")
    assert f"did you mean p95 runtime {meant} 8s?" in found.reason


@pytest.mark.parametrize("users,follow", [(2, (1,)), (3, (1, 2)), (12, (3, 6))])
def test_below_a_smallest_load_that_misses_only_smaller_ones_are_named(levels, users, follow):
    found = ask([level(users, requests=200)], [Slo.parse("p95 runtime <= 1s")])
    assert (found.gpus, found.next_levels) == (None, follow)
