"""What real containers use, what is recommended for them, and whether that holds when they are run under it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gpusize.containers.pipeline import (
    Events,
    Operator,
    OperatorResult,
    Pipeline,
    Requests,
    RunOptions,
    SizingOptions,
    run_pipeline,
)
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.execution import MakeReader
from gpusize.observe.usage.sampler import ContainerReader
from gpusize.observe.usage.usage import usage_of
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE
from tests.containers.stats import DockerStats

MIB = 1 << 20
# dd holds one block in memory: it fills it, writes it, and is gone.
SPIKE = "sleep 0.6; dd if=/dev/zero of=/dev/null bs=300M count=1 2>/dev/null; sleep 0.3"
QUICK_SPIKE = SPIKE.replace("0.6", "0.1").replace("0.3", "0.1")
BURN = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
TWO_CORES = f"({BURN}) & ({BURN}) & wait"


def one(
    daemon: Daemon,
    script: str,
    sizing: SizingOptions,
    options: RunOptions | None = None,
    events: Events | None = None,
    make_reader: MakeReader | None = None,
) -> OperatorResult:
    operator = Operator("a", IMAGE, command=("sh", "-c", script))
    result = run_pipeline(
        Pipeline("p", (operator,), "own"),
        options=options,
        sizing=sizing,
        daemon=daemon,
        events=events,
        make_reader=make_reader,
    )
    return result.operators[0]


def rarely(name: str, interval_ns: int | None = None) -> ContainerReader:
    return ContainerReader(name, 10_000_000_000 if interval_ns is None else interval_ns)


def test_a_spike_is_seen_in_every_run(daemon: Daemon, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = DockerStats(daemon)
    result = one(daemon, QUICK_SPIKE, SizingOptions(), RunOptions(repeat=20), stats)
    stats.wait()
    seen = 0
    for execution in result.executions:
        assert execution.readings is not None
        memory = usage_of(execution.readings).memory
        assert memory.peak_bytes is not None
        seen += 300 * MIB <= memory.peak_bytes <= 340 * MIB
    by_stats = sum(each >= 300 * MIB for each in stats.most[:20])
    with capsys.disabled():
        print(f"\na spike of 300 MiB: seen in {seen} of 20 runs; docker stats saw it in {by_stats}")
    assert result.sized is not None
    assert seen == len(result.executions) == 20
    # Where the first one's readings were few, it was run once more.
    assert len(stats.most) == 20 + len(result.sized.executions)
    assert any(stats.most)
    assert (result.sized.recommendation.mem_bytes or 0) >= 300 * MIB


def test_a_recommendation_holds_when_it_is_tried(daemon: Daemon, work: Path, leftovers: Leftovers) -> None:
    # A core and more is not what may slow it: a busy machine would, and less than that would be held answerable for it.
    result = one(daemon, SPIKE, SizingOptions(verify=True, whole_cores=True))
    assert result.sized is not None
    assert result.sized.verified is True
    last = result.sized.trials[-1].execution
    assert last.limits == (result.sized.recommendation.cpu_cores, result.sized.recommendation.mem_bytes)
    assert not last.oom_killed
    assert leftovers() == []


def test_one_that_does_not_hold_is_raised(daemon: Daemon, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusize.containers.pipeline import sizing

    honest = sizing.recommended

    def stingy(*arguments: object) -> object:
        return dataclasses.replace(honest(*arguments), mem_bytes=128 * MIB)  # type: ignore[arg-type]

    monkeypatch.setattr(sizing, "recommended", stingy)
    result = one(daemon, SPIKE, SizingOptions(verify=True))
    assert result.sized is not None
    first = result.sized.trials[0]
    assert first.execution.limits[1] == 128 * MIB
    assert first.check is not None
    assert (first.check.holds, first.check.oom_killed) == (False, True)
    assert len(result.sized.trials) >= 2
    assert (result.sized.recommendation.mem_bytes or 0) > 128 * MIB


def test_cpu_time_of_two_cores_is_told(daemon: Daemon, work: Path) -> None:
    result = one(daemon, TWO_CORES, SizingOptions(policy="cpost"))
    [execution] = result.executions
    assert execution.readings is not None
    usage = usage_of(execution.readings)
    assert usage.cpu is not None
    # The machine may be busy: it cannot have been more than two, and some window has what all have on average.
    window = usage.cpu.windows[0]
    # But for how long a reading took, in which others may have had the CPU, it can be off.
    off_s = float(execution.readings.array("width_ns")[1].max()) / 1e9
    assert window.peak_cores <= 2.3 + 2 * off_s / window.over_s
    assert window.peak_cores >= (usage.cpu.mean_cores or 0) / 2
    assert usage.cpu.total_s > 0.3
    assert result.sized is not None
    assert result.sized.recommendation.cpu_cores in {1, 2, 3}


def test_what_less_cpu_costs_is_measured(daemon: Daemon, work: Path) -> None:
    # The lower one far below what a busy machine leaves to the run without a limit.
    result = one(daemon, BURN, SizingOptions(cpu_curve=(0.9, 0.05)))
    assert result.sized is not None
    assert result.sized.curve is not None
    assert [trial.execution.limits[0] for trial in result.sized.trials] == [0.9, 0.05]
    slowest = result.sized.curve.limited[-1]
    assert result.sized.curve.slower(slowest) > 0.5
    assert slowest.throttled_share > 0.3
    assert result.sized.recommendation.cpu_measured
    assert (result.sized.recommendation.cpu_cores or 0) > 0.3


def test_less_cpu_is_tried_under_all_other_limits_and_what_is_refused_is_told(daemon: Daemon, work: Path) -> None:
    operator = Operator("a", IMAGE, command=("sh", "-c", BURN), limits=Requests(mem_bytes=64 * MIB))
    # No machine that this runs on has so many.
    sizing = SizingOptions(cpu_curve=(2048.0, 0.4))
    result = run_pipeline(Pipeline("p", (operator,), "own"), sizing=sizing, daemon=daemon)
    sized = result.operators[0].sized
    assert sized is not None
    refused, tried = (trial.execution for trial in sized.trials)
    assert (refused.outcome, refused.limits) == ("failed", (2048.0, 64 * MIB))
    assert (tried.outcome, tried.limits) == ("completed", (0.4, 64 * MIB))
    assert tried.readings is not None
    assert usage_of(tried.readings).memory.limit_bytes == 64 * MIB
    assert any(
        each.startswith("a run at 2048 cores did not go well: the container cannot be made: ")
        for each in sized.recommendation.doubts
    )
    assert sized.curve is not None
    assert [point.cores for point in sized.curve.limited] == [0.4]


@pytest.mark.parametrize("script", ["true", "sleep 0.05"])
def test_what_lives_for_a_moment_has_a_result_from_counters(daemon: Daemon, work: Path, script: str) -> None:
    # Of few readings because they are rare, however long the machine takes for it.
    result = one(daemon, script, SizingOptions(), make_reader=rarely)
    assert result.sized is not None
    advice = result.sized.recommendation
    assert advice.refused is None
    assert advice.mem_bytes is not None
    assert advice.cpu_cores is not None
    assert advice.cpu_cores <= 1
    # It was over before there were ten readings: it was run once more, with finer ones.
    [finer] = result.sized.executions
    assert finer.readings is not None
    assert result.executions[0].readings is not None
    assert finer.readings.facts.interval_ns is not None
    assert finer.readings.facts.interval_ns < (result.executions[0].readings.facts.interval_ns or 0)


def test_nothing_is_recommended_for_what_failed(daemon: Daemon, work: Path) -> None:
    result = one(daemon, "sleep 0.1; exit 126", SizingOptions(verify=True))
    assert result.sized is not None
    assert result.sized.recommendation.refused == "exit code 126"
    assert result.sized.trials == ()
    assert result.executions[0].readings is not None


def test_a_limit_of_the_definition_is_applied_and_an_overrun_is_told(daemon: Daemon, work: Path) -> None:
    operator = Operator("a", IMAGE, command=("sh", "-c", SPIKE), limits=Requests(mem_bytes=64 * MIB))
    result = run_pipeline(Pipeline("p", (operator,), "own"), sizing=SizingOptions(), daemon=daemon)
    [execution] = result.operators[0].executions
    assert execution.limits == (None, 64 * MIB)
    assert execution.readings is not None
    usage = usage_of(execution.readings)
    assert execution.oom_killed or usage.memory.oom_kills
    assert usage.memory.limit_bytes == 64 * MIB
