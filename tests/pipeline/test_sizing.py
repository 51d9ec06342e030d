"""What is run besides to size an operator, and what is told of runs that could not be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.containers.pipeline import Execution, Operator, Pipeline
from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
from gpusize.containers.pipeline.sizing import SizingOptions, failure_of, size
from tests.resources.made import workload


@pytest.mark.parametrize(
    "execution, why",
    [
        (Execution("completed", exit_code=0), None),
        (Execution("failed", exit_code=126), "exit code 126"),
        (Execution("failed", exit_code=137, oom_killed=True), "killed for lack of memory"),
        (Execution("timed_out", error="it ran longer than 5 s"), "it ran longer than 5 s"),
        (Execution("interrupted"), "interrupted"),
    ],
)
def test_why_an_execution_counts_as_failed(execution: Execution, why: str | None) -> None:
    assert failure_of(execution) == why


def test_what_nothing_was_read_of_gets_no_recommendation() -> None:
    def again(*_: object) -> Execution:
        raise AssertionError("it must not be run again")

    unread = Execution("completed", exit_code=0, unread="it ended before anything could be read of it")
    sized = size([unread], SizingOptions(verify=True, cpu_curve=()), again)
    assert sized.recommendation.refused == "it ended before anything could be read of it"
    assert sized.verified is None


@pytest.mark.parametrize(
    "tried, verified, code",
    [(Execution("failed", error="the daemon refuses"), False, 1), (Execution("lost"), False, 3)],
)
def test_limits_that_could_not_be_tried_are_not_seen_to_hold(tried: Execution, verified: bool, code: int) -> None:
    free = Execution("completed", exit_code=0, readings=workload(lambda _: 1.0, 4.0))
    sized = size([free], SizingOptions(verify=True), lambda *_: tried)
    assert sized.verified is verified
    result = OperatorResult(Operator("a", "i"), (free,), sized)
    assert PipelineResult("r", Pipeline("p", (result.operator,), "own"), (result,)).exit_code == code


def test_no_more_cores_are_tried_than_there_are() -> None:
    free = Execution("completed", exit_code=0, readings=workload(lambda _: 2.0, 4.0, cpus=2))
    tried = []

    def again(limits: tuple[float | None, int | None] | None, _: int | None) -> Execution:
        tried.append(limits)
        return free

    sized = size([free], SizingOptions(policy="vpa", verify=True), again)
    assert (sized.recommendation.cpu_cores or 0) > 2
    assert tried == [(2.0, sized.recommendation.mem_bytes)]
    assert sized.verified


def test_what_less_cpu_costs_is_held_against_the_limit_of_the_definition() -> None:
    base = Execution("completed", exit_code=0, readings=workload(lambda _: 1.0, 4.0), limits=(1.0, 1 << 30))
    tried = []

    def again(limits: tuple[float | None, int | None], _: int | None) -> Execution:
        tried.append(limits)
        return replace(base, limits=(limits[0], 1 << 30))

    timed = replace(base, started_ns=0, ended_ns=4 * 10**9)
    sized = size([timed], SizingOptions(cpu_curve=(2.0, 1.0, 0.5, 0.25)), again)
    assert tried == [(0.5, None), (0.25, None)]
    assert sized.curve is not None
    assert sized.curve.costs()[0] == "held against 1 core, the definition's limit"
    assert "held against 1 core, the definition's limit" in sized.recommendation.reasons
    assert [each for each in sized.recommendation.doubts if "not tried" in each] == [
        "a limit of 2 cores was not tried: the definition's is 1",
        "a limit of 1 core was not tried: the definition's is 1",
    ]


REFUSED = Execution("failed", error="Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available")


def test_limits_that_are_refused_are_told() -> None:
    free = Execution("completed", exit_code=0, readings=workload(lambda _: 1.0, 4.0), started_ns=0, ended_ns=4 * 10**9)

    def again(limits: tuple[float | None, int | None], _: int | None) -> Execution:
        return REFUSED if (limits[0] or 0) > 2 else free

    sized = size([free], SizingOptions(cpu_curve=(4.0, 0.5)), again)
    assert sized.curve is not None
    assert [point.cores for point in sized.curve.limited] == [0.5]
    assert f"a run at 4 cores did not go well: {REFUSED.error}" in sized.recommendation.doubts
    # Where all are refused nothing was measured, and nothing says that all cost too much.
    sized = size([free], SizingOptions(cpu_curve=(4.0,)), again)
    assert (sized.curve, sized.recommendation.cpu_measured) == (None, False)
    assert f"a run at 4 cores did not go well: {REFUSED.error}" in sized.recommendation.doubts


@pytest.mark.parametrize(
    "finer, told",
    [
        (Execution("failed", exit_code=3), "a run with finer readings did not go well: exit code 3"),
        (Execution("not_run", error="it writes to /d"), "a run with finer readings was not made: it writes to /d"),
    ],
)
def test_a_finer_run_that_fails_is_told(finer: Execution, told: str) -> None:
    short = Execution(
        "completed",
        exit_code=0,
        readings=workload(lambda _: 1.0, 0.1, interval_ns=20_000_000),
        started_ns=0,
        ended_ns=10**8,
    )
    sized = size([short], SizingOptions(), lambda *_: finer)
    assert sized.executions == ()
    assert told in sized.recommendation.doubts


def test_verifying_what_cannot_be_run_again_has_not_held() -> None:
    free = Execution("completed", exit_code=0, readings=workload(lambda _: 1.0, 4.0))
    sized = size([free], SizingOptions(verify=True), lambda *_: Execution("not_run", error="it writes to /d"), ["once"])
    assert sized.verified is False
    assert {"once", "a run under its own limits was not made: it writes to /d"} < set(sized.recommendation.doubts)


def test_of_one_limit_alone_the_request_stays_an_estimate() -> None:
    base = Execution("completed", exit_code=0, readings=workload(lambda _: 1.0, 4.0), started_ns=0, ended_ns=4 * 10**9)

    def again(limits: tuple[float | None, int | None], _: int | None) -> Execution:
        return replace(base, limits=(limits[0], None))

    sized = size([base], SizingOptions(cpu_curve=(0.5,)), again)
    assert sized.curve is not None
    assert len(sized.curve.limited) == 1
    made = sized.recommendation
    assert (made.cpu_measured, made.cpu_cores) == (False, size([base], SizingOptions(), again).recommendation.cpu_cores)
    assert "CPU is an estimate: what less would cost was tried at one limit only" in made.reasons
