"""GPUs over time from levels whose cluster is known: policies against each other, refusals, what is told."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.base.errors import StoreError, UsageError
from gpusize.engine.session import core
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.plan.over_time.demand import Demand, drawn
from gpusize.estimate.plan.over_time.over_time import NO_LENGTHS
from gpusize.estimate.plan.over_time.over_time import over_time as over_time_of
from gpusize.estimate.plan.over_time.policies import ScalingRules
from gpusize.report.export import dumps
from gpusize.report.figures.gpus_over_time import _title, draw_over_time
from gpusize.report.plans.gpus_over_time import _facts, conclusion, print_over_time, write_over_time
from gpusize.report.summary.terminal import make_console
from tests.estimate.virtual import CLUSTER, level

SLO = Slo.parse("p95 runtime <= 8s")
LOADS = (1, 4, 12, 20, 22, 24, 26, 30)
EDGES = [0, 1200, 2400, 3600, 4800]
RATES = [6, 24, 12, 6]


def over_time(levels, slos, demand, rules=None, **more):
    fields = {name: more.pop(name) for name in ("router", "together", "gpus_per_replica") if name in more}
    return over_time_of(levels, Question(0, slos, rate=1.0, **fields), demand, rules, **more)


@pytest.fixture(scope="module")
def levels():
    return [level(users, requests=1500 if users > 12 else 200) for users in LOADS]


@pytest.fixture(scope="module")
def trace():
    return Demand("made", drawn(EDGES, RATES, 1), 4800.0)


@pytest.fixture(scope="module")
def brief():
    return Demand("made", drawn([0, 400, 800], [4, 9], 1), 800.0)


@pytest.fixture(scope="module")
def found(levels, trace):
    return over_time(levels, [SLO], trace, ScalingRules(start_delay_s=120))


def test_policies_against_static_sizing(levels, found):
    static, planned, reactive = found.courses
    assert [each.policy for each in found.courses] == ["static", "planned", "reactive"]
    [peak] = estimate(levels, Question(0, [SLO], rate=float(found.rates.max())), "twin")
    assert abs(static.peak_gpus - peak.gpus) <= 1
    assert found.peak_low <= static.peak_gpus <= found.peak_high
    assert static.keeps
    assert static.gpu_hours == pytest.approx(static.peak_gpus * 4800 / 3600)
    assert planned.keeps
    assert planned.worst.share > 0.9
    # 6, 24, 12 and 6/s for a third of an hour each need about half of what 24/s do all the time.
    assert 0.3 < found.saved(planned) < 0.5
    assert planned.peak_gpus == static.peak_gpus
    # One who sees the step only when it is there has too few for two minutes, and a queue from then on.
    assert reactive.worst.share < 0.5
    assert 1000 <= reactive.worst.at_s <= 1600
    assert reactive.shares[0] < planned.shares[0]
    assert found.keeps
    assert found.model == "batching"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_share_is_that_of_the_true_cluster(trace, found, place):
    # The cluster that the levels are of, on the same schedule; its costs, prompts and answers are not known to the fit.
    schedule = found.courses[place].schedule
    replicas = [
        {"at_s": at / 1e9, "replicas": n}
        for at, n in zip(schedule.at_ns.tolist(), schedule.asked.tolist(), strict=True)
    ]
    cluster = {**CLUSTER, "gpus": schedule.peak, "seed": 99, "replicas": replicas}
    load = {"arrivals": "plan", "prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}}}
    _, told = core().simulate(
        json.dumps({**cluster, "start_delay_s": schedule.start_delay_s}),
        json.dumps(load),
        due=trace.due_ns.astype("<i8").tobytes(),
        judge=json.dumps({"bounds": [{"metric": "runtime", "bound_s": 8.0}]}),
        rows=False,
    )
    true = json.loads(told)["judged"]["all"]["within"] / trace.due_ns.size
    assert found.courses[place].shares[0] == pytest.approx(true, abs=0.02)


def test_replicas_come_ahead_of_the_step_and_stay_behind_it(found):
    planned, reactive = found.courses[1:]

    def ready(course, at_s):
        at_ns, count = course.schedule.ready()
        return int(count[np.searchsorted(at_ns, at_s * 1e9, "right") - 1])

    assert (ready(planned, 1199), ready(planned, 1200)) == (2, 6)
    assert (ready(reactive, 1200), ready(reactive, 1330)) == (2, 2)
    assert ready(reactive, 1390) >= 6
    # 12/s need 3; until five minutes after the last window with 24/s there are more.
    assert ready(planned, 2690) >= 6
    assert ready(planned, 2790) <= 4


def test_a_constant_rate_needs_static_sizing(levels):
    steady = Demand("made", (np.arange(0, 1800, 0.1) * 1e9).astype(np.int64), 1800.0)
    found = over_time(levels, [SLO], steady, ScalingRules())
    static, planned, reactive = found.courses
    assert {each.schedule.peak for each in found.courses} == {static.schedule.peak}
    assert found.saved(planned) == found.saved(reactive) == 0
    assert static.shares == planned.shares == reactive.shares
    assert static.served.kept.tolist() == planned.served.kept.tolist()


def test_headroom_and_bounds(levels, brief, found):
    # 4 and 9/s need 1 and 3 replicas, and half of that on top.
    rules = ScalingRules(start_delay_s=120, headroom=0.5, min_replicas=3, max_replicas=4)
    more = over_time(levels, [SLO], brief, rules, policies=["planned"])
    [_, planned] = more.courses
    assert planned.schedule.asked.tolist() == [3, 4]
    assert more.warnings == ()
    tight = over_time(levels, [SLO], brief, ScalingRules(max_replicas=1), policies=["planned"])
    assert not tight.keeps
    assert "more than the 1 replicas" in tight.warnings[-1]
    assert _title(tight).endswith(", but an SLO is missed")
    assert conclusion(tight).startswith("no policy that scales meets the SLOs over the whole trace; planned: 1 GPU at")
    assert conclusion(found).startswith("planned: ")


def test_a_measured_start_delay_is_told_without_the_rest_of_a_float(levels, brief):
    delay = 3 * 20.333333333333336
    found = over_time(levels, [SLO], brief, ScalingRules(start_delay_s=delay + 1e-14), policies=["planned"])
    [rules] = [text for name, text in _facts(found) if name == "rules"]
    assert "; a replica takes requests 1m1s after it is requested" in rules


def test_three_times_as_much_again_is_told_as_that(levels, brief):
    small = over_time(levels, [SLO], brief, policies=["planned"])
    many = over_time(levels, [SLO], brief, ScalingRules(min_replicas=4 * small.static.peak_gpus), policies=["planned"])
    found = replace(small, courses=(small.static, many.courses[1]))
    assert found.saved(found.courses[1]) == pytest.approx(-3)
    assert ": 300% more than the " in conclusion(found)
    out = io.StringIO()
    print_over_time(found, make_console(out))
    [row] = [line for line in out.getvalue().splitlines() if line.startswith("planned ")]
    assert " -300% " in row


def test_the_lengths_of_the_trace(levels, brief):
    trace = brief
    tokens = np.array([[200] * trace.due_ns.size, [220] * trace.due_ns.size], np.uint32)
    long = over_time(levels, [SLO], replace(trace, tokens=tokens), policies=["planned"])
    plain = over_time(levels, [SLO], trace, policies=["planned"])
    ignored = over_time(levels, [SLO], replace(trace, tokens=tokens), policies=["planned"], lengths="run")
    assert long.static.peak_gpus >= 1.5 * plain.static.peak_gpus
    assert ignored.static.gpu_hours == plain.static.gpu_hours
    assert any("answers have 220 tokens on average" in text for text in long.warnings)
    assert any("as long as the trace says" in text for text in long.assumptions)
    assert any("whatever the trace says" in text for text in ignored.assumptions)


def test_without_tokens_in_the_records_the_flow_model_answers(levels, trace):
    import polars as pl

    blind = [
        replace(
            each, records=each.records.with_columns(tokens_out=pl.lit(None, pl.Int64), events=pl.lit(None, pl.Int64))
        )
        for each in levels
    ]
    slos = [SLO, Slo.parse("p90 ttft <= 1500ms")]
    found = over_time(blind, slos, trace, policies=["planned"])
    assert found.model == "flow"
    assert found.objectives == ("p95 runtime <= 8s", "p90 ttft <= 1.5s")
    assert found.courses[1].keeps
    assert len(found.courses[1].shares) == 2
    assert (found.courses[1].served.kept <= found.courses[1].served.requests + 1e-6).all()


def test_lengths_that_a_trace_does_not_have_are_warned_of_where_they_were_asked_for(levels, brief):
    assert brief.tokens is None
    assert NO_LENGTHS in over_time(levels, [SLO], brief, policies=["planned"], lengths="trace").warnings
    for unasked in (None, "run"):
        found = over_time(levels, [SLO], brief, policies=["planned"], lengths=unasked)
        assert NO_LENGTHS not in found.warnings
        assert "requests are as long as the measured ones" in found.assumptions


def test_lengths_that_no_model_can_follow_are_said(levels, brief):
    import polars as pl

    none = (pl.lit(None, pl.Int64).alias(name) for name in ("tokens_out", "events"))
    columns = list(none)
    blind = [replace(each, records=each.records.with_columns(columns)) for each in levels]
    tokens = np.array([[200] * brief.due_ns.size, [220] * brief.due_ns.size], np.uint32)
    found = over_time(blind, [SLO], replace(brief, tokens=tokens), policies=["planned"])
    assert found.model == "flow"
    assert any("the trace's lengths are not looked at" in text for text in found.warnings)


def test_replicas_that_slow_each_other_down(levels, trace, brief):
    contended = [level(12 * n, gpus=n, requests=1500, slowness=1 + 0.02 * (n - 1)) for n in (2, 4)]
    found = over_time([*levels, *contended], [SLO], brief, policies=["planned"])
    assert any("slow each other down by up to" in text for text in found.assumptions)
    worse = [level(12 * n, gpus=n, requests=1500, slowness=1 + 0.25 * (n - 1) + 0.03 * n * (n - 1)) for n in (2, 4)]
    never = over_time([*levels, *worse], [SLO], trace)
    assert never.courses == ()
    assert "slow each other down" in (never.reason or "")


def test_a_flat_curve_is_refused(levels, trace):
    found = over_time(levels, [Slo.parse("p95 runtime <= 100s")], trace)
    assert found.courses == ()
    assert "no measured load misses an SLO" in (found.reason or "")
    assert found.next_levels == (60, 120)
    assert conclusion(found).startswith("no GPUs over time: no measured load misses an SLO")


@pytest.mark.parametrize("slo", ["mean runtime <= 8s", "share ok >= 99%", "p5 runtime >= 1s"])
def test_slos_that_cannot_be_judged_over_time(levels, trace, slo):
    with pytest.raises(UsageError, match="cannot be judged over time"):
        over_time(levels, [Slo.parse(slo)], trace)


def test_questions_that_cannot_be_meant(levels, trace):
    with pytest.raises(UsageError, match="there is no policy 'guessed'"):
        over_time(levels, [SLO], trace, policies=["guessed"])
    with pytest.raises(UsageError, match="there is no lengths"):
        over_time(levels, [SLO], trace, lengths="none")
    with pytest.raises(UsageError, match="measured as one replica, not 2"):
        over_time(levels, [SLO], trace, gpus_per_replica=2)
    with pytest.raises(UsageError, match="no SLO"):
        over_time(levels, [], trace)


def test_what_is_told(found, tmp_path):
    document = json.loads(dumps(found.to_json()))
    assert [each["policy"] for each in document["courses"]] == ["static", "planned", "reactive"]
    assert document["courses"][1]["saved_share"] == pytest.approx(found.saved(found.courses[1]))
    assert document["courses"][1]["asked"][0] == {"at_s": 0.0, "gpus": int(found.courses[1].schedule.asked[0])}
    frame = found.frame
    assert frame.height == 3 * found.rates.size
    planned = frame.filter(policy="planned")
    hours = (planned["gpus"] * (planned["end_s"] - planned["at_s"])).sum() / 3600
    drained = found.courses[1].served.draining_s / 3600
    assert hours + drained == pytest.approx(found.courses[1].gpu_hours)
    assert planned["requests"].sum() == found.requests
    assert planned["within_1"].sum() / found.requests == pytest.approx(found.courses[1].shares[0])
    text = io.StringIO()
    print_over_time(replace(found, gpu_hour_price=2.0, currency="EUR"), make_console(text, width=110))
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= 110
    for words in ("static", "planned", "reactive", "EUR", "worst 5 min", "windows of 1m"):
        assert words in shown
    written = write_over_time(found, tmp_path / "out")
    assert {path.name for path in written} == {
        "over_time.parquet", "over_time.csv", "over_time.json", "over_time.png", "over_time.svg"
    }  # fmt: skip
    assert json.loads((tmp_path / "out" / "over_time.json").read_text())["requests"] == found.requests
    assert draw_over_time(found, tmp_path / "a.png").stat().st_size > 20_000
    with pytest.raises(UsageError, match="no picture"):
        draw_over_time(found, tmp_path / "a.txt")
    with pytest.raises(StoreError):
        draw_over_time(found, tmp_path / "no" / "a.png")
    with pytest.raises(UsageError, match="nothing to draw"):
        draw_over_time(replace(found, courses=(), reason="none"), tmp_path / "b.png")
