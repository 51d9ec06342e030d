from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from gpusize.base.errors import UsageError
from gpusize.containers.recommend import POLICIES, CpuCurve, CurvePoint, Execution, check_recommendation, recommend
from gpusize.containers.recommend.cpu_curve import curve_limits
from gpusize.containers.recommend.types import MIB
from gpusize.observe.usage.gpu_use import GpuUse
from tests.resources.made import S, readings, workload


def run(
    cores: float = 1.0, seconds: float = 4.0, mebibytes: int = 300, failed: str | None = None, **facts
) -> Execution:
    return Execution.of(workload(lambda _: cores, seconds, memory=lambda _: mebibytes * MIB, **facts), failed)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_operator_gets_no_recommendation(policy):
    made = recommend([run(failed="exit code 126")], policy)
    assert (made.cpu_cores, made.mem_bytes, made.refused) == (None, None, "it failed: exit code 126")
    several = recommend([run(), run(failed="exit code 126")], policy)
    assert several.refused == "1 of 2 executions failed, the last with: exit code 126"
    assert several.mem_bytes is None


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers_what_left_no_readings(policy):
    gone = readings({"t_ns": []}, begun_ns=0, ended_ns=S // 20, totals={"cpu_ns": S // 25, "mem_peak_bytes": 5 * MIB})
    made = recommend([Execution.of(gone)], policy)
    assert made.cpu_cores >= 0.8
    assert made.confidence == "low"
    assert "only 0 readings of it: a finer interval tells more" in made.doubts
    assert recommend([Execution.of(readings({"t_ns": []}))], policy).cpu_cores is None
    json.dumps(made.to_dict(), allow_nan=False)


def test_of_several_executions_the_largest_need_counts_and_the_spread_is_told():
    made = recommend([run(cores=1.0, mebibytes=300), run(cores=3.0, mebibytes=700), run(cores=2.0, mebibytes=500)])
    alone = recommend([run(cores=3.0, mebibytes=700)])
    assert (made.cpu_cores, made.mem_bytes) == (alone.cpu_cores, alone.mem_bytes)
    assert (made.cpu_interval.low, made.cpu_interval.high, made.cpu_interval.runs) == (1.2, 3.5, 3)
    # Of four alike draws, each is the largest with the same probability.
    assert made.cpu_interval.above == 0.75
    assert made.mem_interval.high == made.mem_bytes
    assert made.reasons[-1] == (
        "each of 3 executions alone: 1.2 to 3.5 cores, 384 to 768 MiB; "
        "the next one needs no more than the largest of them with a probability of 75%"
    )
    assert (alone.cpu_interval, len(alone.reasons)) == (None, len(made.reasons) - 1)


def test_how_sure_a_recommendation_is():
    assert recommend([run()]).confidence == "low"
    assert recommend([run()] * 3).confidence == "medium"
    assert recommend([run()] * 10).confidence == "high"
    assert recommend([run(), *[run(mebibytes=900)] * 9]).confidence == "medium"
    assert recommend([run(cpus=1)] * 10).confidence == "low"


def test_units_are_named():
    made = recommend([run(mebibytes=600)]).to_dict()
    assert made["mem_bytes"] == 640 * MIB
    assert made["mem_mib"] == 640
    assert made["mem_mb"] == pytest.approx(671.08864)


def test_a_cpu_limit_only_where_it_is_asked_for():
    assert recommend([run()]).cpu_limit_cores is None
    steady = recommend([run(cores=2.34)], cpu_limit=True)
    # No scheduler takes a limit below the request, which has its 15 % on top.
    assert steady.cpu_limit_cores == steady.cpu_cores == 2.7
    assert recommend([run(cores=2.34)], cpu_limit=True, whole_cores=True).cpu_limit_cores == 3
    rare = Execution.of(workload(lambda at: 3.0 if at < 0.2 else 0.5, 30.0))
    assert recommend([rare], cpu_limit=True).cpu_limit_cores == 3.0


def test_a_limit_that_slows_it_is_what_is_raised():
    free = Execution.of(workload(lambda at: 3.0 if at < 0.2 else 0.5, 30.0))
    advice = replace(recommend([free], cpu_limit=True), cpu_limit_cores=2.0)
    slow = workload(lambda _: 0.6, 40.0)
    throttled = [round(at / 40 * 20 * S) for at in range(slow.frame.height)]
    held = slow.frame.with_columns(
        pl.Series("cpu_periods", range(slow.frame.height), pl.Int64),
        pl.Series("cpu_throttled_periods", range(slow.frame.height), pl.Int64),
        pl.Series("cpu_throttled_ns", throttled, pl.Int64),
    )
    check = check_recommendation(advice, Execution.of(replace(slow, frame=held)), [free])
    assert check.raised is not None
    assert check.raised.cpu_limit_cores is not None
    assert check.raised.cpu_limit_cores > 2.0
    assert check.raised.cpu_cores == advice.cpu_cores


def test_without_runs_at_lower_limits_cpu_is_an_estimate():
    made = recommend([run()])
    assert not made.cpu_measured
    assert "CPU is an estimate: what less would cost was not measured" in made.reasons


def test_the_lowest_limit_that_costs_little_is_recommended():
    points = [(None, 10.0, 0.0), (4.0, 10.1, 0.0), (2.0, 10.4, 0.1), (1.0, 14.0, 0.8), (0.5, 10.2, 0.9)]
    curve = CpuCurve(tuple(CurvePoint(*point) for point in points))
    made = recommend([run(cores=6.0)], curve=curve)
    assert (made.cpu_cores, made.cpu_measured) == (2.0, True)
    assert "CPU: the lowest limit tried that costs little, +4% time" in made.reasons
    assert "1 core: +40% time, throttled in 80% of the periods" in made.reasons
    # Other tools' rules stay what they are.
    assert recommend([run(cores=6.0)], "cpost", curve=curve).cpu_cores == 6


def test_where_every_limit_tried_costs_more_the_highest_use_is_recommended():
    curve = CpuCurve((CurvePoint(None, 10.0), CurvePoint(1.0, 19.0, 0.9), CurvePoint(0.5, 9.0, failed="timed out")))
    made = recommend([run(cores=2.0)], curve=curve)
    assert made.cpu_cores == 2.3
    assert "0.5 cores: timed out" in made.reasons


def test_a_curve_needs_a_run_without_limit():
    with pytest.raises(UsageError, match="without a limit"):
        CpuCurve((CurvePoint(2.0, 10.0), CurvePoint(None, 1.0, failed="exit code 1")))


def test_which_limits_are_worth_trying():
    assert curve_limits(4.0, 4.2) == [4.0, 2.0, 1.0]
    assert curve_limits(4.0, 16.0) == [8.0, 4.0, 2.0, 1.0]
    assert curve_limits(0.1, None) == [0.1]
    assert curve_limits(4.0, 16.0, [1.0, 3.0, 3.0]) == [3.0, 1.0]


def test_unknown_policies_and_no_executions_are_refused():
    with pytest.raises(UsageError, match='no policy "best"'):
        recommend([run()], "best")
    with pytest.raises(UsageError, match="no execution"):
        recommend([])


def gpu(uuid: str, held_mib: int | None, total_mib: int = 80 * 1024, **more) -> GpuUse:
    peak = None if held_mib is None else held_mib * MIB
    return GpuUse(gpu=uuid, mem_peak_bytes=peak, mem_from="sampled", mem_total_bytes=total_mib * MIB, **more)


def test_gpus_that_memory_was_held_of():
    base = run()
    used = [
        Execution(base.readings, base.usage, None, gpus)
        for gpus in ([gpu("a", 1000), gpu("b", None)], [gpu("a", 900), gpu("b", 50)])
    ]
    made = recommend(used)
    assert (made.gpu_count, made.gpu_mem_bytes) == (2, 1152 * MIB)
    assert recommend(used[:1]).gpu_count == 1
    assert recommend([base]).gpu_count == 0


def test_memory_taken_in_advance_is_named():
    base = run()
    made = recommend([Execution(base.readings, base.usage, None, [gpu("a", 72_000)])])
    assert any("frameworks take it in advance" in doubt for doubt in made.doubts)
    # It ran on a GPU of this size.
    full = recommend([Execution(base.readings, base.usage, None, [gpu("a", 81_000)])])
    assert full.gpu_mem_bytes == 81_920 * MIB


# ---------------------------------------------------------------------------------------------------- verification


def test_a_run_under_its_limits_that_went_as_before_holds():
    advice = recommend([run()])
    check = check_recommendation(advice, run(seconds=4.2), [run()])
    assert check.holds
    assert check.slower == pytest.approx(0.05)
    assert (check.raised, check.reasons) == (None, ())
    assert check.sentence() == "completed, slower by 5%"


def test_how_much_slower_is_by_the_time_that_it_ran():
    free, tight = (Execution.of(workload(lambda _: 1.0, 1.0), ran_s=ran_s) for ran_s in (0.4, 0.6))
    check = check_recommendation(recommend([free]), tight, [free])
    assert check.slower == pytest.approx(0.5)


def test_a_killed_run_raises_memory():
    advice = recommend([run()])
    check = check_recommendation(advice, run(failed="exit code 137"), [run()], oom_killed=True)
    assert not check.holds
    assert check.raised.mem_bytes == 512 * MIB > advice.mem_bytes == 384 * MIB
    assert check.raised.cpu_cores == advice.cpu_cores
    assert check.sentence() == "OOM-killed"


def test_a_worker_killed_inside_a_container_that_lives_on_is_seen():
    columns = {"t_ns": [0, S, 4 * S], "cpu_ns": [0, S, 4 * S], "mem_bytes": [MIB] * 3, "oom_kill_events": [0, 0, 1]}
    quiet = Execution.of(readings(columns, begun_ns=0, ended_ns=4 * S))
    check = check_recommendation(recommend([run()]), quiet, [run()])
    assert (check.completed, check.oom_killed, check.holds) == (True, True, False)
    assert check.raised is not None


def throttled(seconds: float, share: float, limit_events: int = 0) -> Execution:
    """Throttled for all that it takes longer than 4 s, in that share of its periods."""
    end = round(seconds * S)
    columns = {
        "t_ns": [0, end],
        "cpu_ns": [0, end],
        "mem_bytes": [MIB, MIB],
        "mem_max_events": [0, limit_events],
        "cpu_periods": [0, 100],
        "cpu_throttled_periods": [0, round(100 * share)],
        "cpu_throttled_ns": [0, round((seconds - 4) * S) if share else 0],
    }
    return Execution.of(readings(columns, begun_ns=0, ended_ns=end))


def test_a_slow_run_that_was_throttled_raises_cpu_up_to_what_was_ever_used():
    before = run(cores=2.0)
    advice = recommend([before])
    assert advice.cpu_cores == 2.3
    low = recommend([run(cores=1.0)])
    check = check_recommendation(low, throttled(6.0, 0.7), [before])
    assert not check.holds
    assert check.raised.cpu_cores == pytest.approx(1.8)
    assert check.raised.mem_bytes == low.mem_bytes
    assert check.sentence() == "completed, throttled for 70% of the periods, slower by 50%"
    assert check_recommendation(low, throttled(20.0, 0.9), [before]).raised.cpu_cores == pytest.approx(2.0)
    full = check_recommendation(advice, throttled(6.0, 0.7), [before])
    assert (full.holds, full.raised) == (False, None)
    assert full.reasons[-1] == "it has all the CPU that it ever used"


def test_a_slow_run_that_was_not_throttled_is_slow_for_another_reason():
    check = check_recommendation(recommend([run()]), throttled(6.0, 0.0), [run()])
    assert (check.holds, check.raised) == (True, None)
    assert check.remarks == ("it took 50% longer, of which its limits are not the cause: it was not throttled",)
    assert check.sentence() == "completed, throttled for 0% of the periods, slower by 50% for another reason"
    # Where nothing tells of throttling, it may be the reason.
    silent = run(seconds=6.0)
    assert silent.usage.throttling is None
    assert not check_recommendation(recommend([run()]), silent, [run(cores=2.0)]).holds


def test_a_slow_run_whose_memory_was_at_its_limit_raises_memory():
    advice = recommend([run()])
    check = check_recommendation(advice, throttled(6.0, 0.0, limit_events=40), [run()])
    assert not check.holds
    assert check.raised.mem_bytes > advice.mem_bytes
    assert check.raised.cpu_cores == advice.cpu_cores


def test_what_varies_without_limits_may_vary_under_them():
    unlimited = [run(seconds=4.0), run(seconds=4.0), run(seconds=6.0)]
    assert check_recommendation(recommend(unlimited), throttled(5.5, 0.5), unlimited).holds
    assert not check_recommendation(recommend(unlimited), throttled(6.5, 0.5), unlimited).holds


def test_a_run_that_failed_for_another_reason_is_not_raised():
    check = check_recommendation(recommend([run()]), run(failed="exit code 3"), [run()])
    assert (check.holds, check.raised) == (False, None)
    assert check.reasons == ("it failed: exit code 3",)
