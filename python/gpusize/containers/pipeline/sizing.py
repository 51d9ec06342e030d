"""From executions of an operator to what to request for it: more executions where they tell more.

Short operators are run again with finer readings, less CPU is tried (``cpu_curve``), and a recommendation is run under
its own limits (``verify``); one that does not hold is raised and tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from gpusize.base.units import with_cores
from gpusize.containers.pipeline.execution import Execution

if TYPE_CHECKING:
    from gpusize.containers.recommend import CpuCurve, Recommendation, RecommendationCheck
    from gpusize.containers.recommend import Execution as Measured

__all__ = ["Again", "Limits", "Sized", "SizingOptions", "Trial", "failure_of", "measured", "recommended", "size"]

ENOUGH_READINGS: Final = 10
"""Fewer in an execution, and it is run once more with finer ones."""
FINEST_NS: Final = 1_000_000
READINGS_WANTED: Final = 50
MOST_TRIES: Final = 4
"""Recommendations that are tried under their own limits, until one holds."""

Limits = tuple[float | None, int | None]
"""Cores and bytes, each in place of the definition's; None for that."""

Again = Callable[[Limits, int | None], Execution]
"""Runs the operator once more: under limits, and with a time between readings."""


@dataclass(frozen=True)
class SizingOptions:
    """How operators are sized.

    Args:
        policy: the rule; one of `gpusize.containers.recommend.POLICIES`.
        whole_cores: CPU in whole cores.
        cpu_limit: a CPU limit, too.
        verify: run each operator under what is recommended for it.
        cpu_curve: run it under lower CPU limits: these, or, where empty, some below its estimate; None for not.
    """

    policy: str = "default"
    whole_cores: bool = False
    cpu_limit: bool = False
    verify: bool = False
    cpu_curve: tuple[float, ...] | None = None

    @property
    def tries_limits(self) -> bool:
        """Whether operators are run again under limits."""
        return self.verify or self.cpu_curve is not None


@dataclass(frozen=True)
class Trial:
    """An execution under limits.

    Args:
        kind: ``cpu_curve`` or ``verify``.
        execution: how it went; it knows its limits.
        check: whether the recommendation holds; of ``verify`` only.
    """

    kind: str
    execution: Execution
    check: RecommendationCheck | None = None


@dataclass(frozen=True)
class Sized:
    """What to request for an operator, and what that rests on.

    Args:
        recommendation: the last one.
        executions: executions without limits besides those of the run itself.
        trials: executions under limits, in order.
        curve: what less CPU costs.
    """

    recommendation: Recommendation
    executions: tuple[Execution, ...] = ()
    trials: tuple[Trial, ...] = ()
    curve: CpuCurve | None = field(default=None)

    @property
    def verified(self) -> bool | None:
        """Whether the recommendation held under its own limits; None where that was not tried, or cut short."""
        tried = [trial for trial in self.trials if trial.kind == "verify"]
        if not tried or tried[-1].execution.outcome == "interrupted":
            return None
        return tried[-1].check is not None and tried[-1].check.holds


def failure_of(execution: Execution) -> str | None:
    """Why an execution counts as failed, in words; None where it went well."""
    if execution.ok:
        return None
    if execution.oom_killed:
        return "killed for lack of memory"
    if execution.outcome == "failed" and execution.exit_code is not None:
        return f"exit code {execution.exit_code}"
    return execution.error or execution.outcome.replace("_", " ")


def measured(executions: Sequence[Execution]) -> list[Measured]:
    """Executions as the policies take them; those of which nothing was read are left out."""
    from gpusize.containers.recommend import Execution as Measured

    return [
        Measured.of(each.readings, failure_of(each), each.gpus, each.duration_s)
        for each in executions
        if each.readings is not None
    ]


def recommended(
    executions: Sequence[Execution], options: SizingOptions, curve: CpuCurve | None = None
) -> Recommendation:
    """What to request; a recommendation that refuses itself where an execution failed or nothing was read."""
    from gpusize.containers.recommend import Recommendation, recommend

    known = measured(executions)
    failed = next((why for each in executions if (why := failure_of(each)) is not None), None)
    if failed is not None:
        return Recommendation(policy=options.policy, refused=failed)
    if not known:
        why = next((each.unread for each in executions if each.unread is not None), "it has no readings")
        return Recommendation(policy=options.policy, refused=why)
    return recommend(known, options.policy, whole_cores=options.whole_cores, cpu_limit=options.cpu_limit, curve=curve)


def size(executions: Sequence[Execution], options: SizingOptions, again: Again, doubts: Sequence[str] = ()) -> Sized:
    """Size an operator.

    Args:
        executions: those of the run; the first is the pipeline's own.
        options: how.
        again: runs it once more.
        doubts: what weakens the recommendation whatever it will be.
    """
    finer, problem = _finer(executions, again)
    told = [*doubts, *([] if problem is None else [problem])]
    every = [*executions, *finer]
    advice = recommended(every, options)
    trials: list[Trial] = []
    curve = None
    if advice.refused is None and options.cpu_curve is not None and advice.cpu_cores is not None:
        trials, curve, untried = _curve(every, options, advice, again)
        told += untried
        if curve is not None:
            advice = recommended(every, options, curve)
    advice = replace(advice, doubts=(*advice.doubts, *told))
    if advice.refused is None and options.verify:
        advice, tried = _verify(every, advice, again)
        trials += tried
    return Sized(advice, tuple(finer), tuple(trials), curve)


def _finer(executions: Sequence[Execution], again: Again) -> tuple[list[Execution], str | None]:
    """One more execution where the first was over before there were enough readings of it; why there is none."""
    first = executions[0]
    if not all(each.ok for each in executions) or first.readings is None or first.duration_s is None:
        return [], None
    interval_ns = max(FINEST_NS, round(first.duration_s * 1e9 / READINGS_WANTED))
    asked_ns = first.readings.facts.interval_ns or 0
    if len(first.readings) >= ENOUGH_READINGS or interval_ns >= asked_ns:
        return [], None
    more = again((None, None), interval_ns)
    return ([more], None) if more.ok else ([], f"a run with finer readings {_ended(more)}")


def _ended(execution: Execution) -> str:
    """How an execution ended that did not go well, as the end of a sentence."""
    if execution.outcome == "not_run":
        return f"was not made: {execution.error}"
    why = failure_of(execution) or "it has no readings"
    return f"did not go well: {why}"


def _curve(
    executions: Sequence[Execution], options: SizingOptions, advice: Recommendation, again: Again
) -> tuple[list[Trial], CpuCurve | None, list[str]]:
    """Executions under lower CPU limits, what less CPU costs, and why some were not tried."""
    from gpusize.containers.recommend import CpuCurve, CurvePoint
    from gpusize.containers.recommend.cpu_curve import curve_limits

    known, base_cores = measured(executions), executions[0].limits[0]
    peaks = [window.peak_cores for each in known if each.usage.cpu for window in each.usage.cpu.windows]
    limits = curve_limits(advice.cpu_cores or 0.1, max(peaks, default=None), options.cpu_curve or ())
    points = [CurvePoint(None, each.duration_s) for each in executions if each.duration_s is not None]
    trials: list[Trial] = []
    untried: list[str] = []
    for cores in limits:
        if base_cores is not None and cores >= base_cores:
            untried.append(f"a limit of {with_cores(f'{cores:g}')} was not tried: the definition's is {base_cores:g}")
            continue
        execution = again((cores, None), None)
        trials.append(Trial("cpu_curve", execution))
        if execution.outcome in {"interrupted", "lost"}:
            return trials, None, untried
        if execution.readings is None:
            untried.append(f"a run at {with_cores(f'{cores:g}')} {_ended(execution)}")
        for each in measured([execution]):
            share = 0.0 if each.usage.throttling is None else each.usage.throttling.share
            points.append(CurvePoint(cores, execution.duration_s or 0.0, share, each.failed))
    limited = any(point.cores is not None for point in points) and any(point.cores is None for point in points)
    return trials, CpuCurve(tuple(points), base_cores) if limited else None, untried


def _grantable(advice: Recommendation, known: Sequence[Measured]) -> float | None:
    """Cores to limit it to: no more than there are, which the daemon would refuse, though a policy may ask for more."""
    cores = advice.cpu_limit_cores if advice.cpu_limit_cores is not None else advice.cpu_cores
    there = min((each.readings.facts.cpus for each in known if each.readings.facts.cpus), default=None)
    return cores if cores is None or there is None else min(cores, float(there))


def _verify(
    executions: Sequence[Execution], advice: Recommendation, again: Again
) -> tuple[Recommendation, list[Trial]]:
    from gpusize.containers.recommend import check_recommendation

    trials: list[Trial] = []
    unlimited = measured(executions)
    while len(trials) < MOST_TRIES:
        execution = again((_grantable(advice, unlimited), advice.mem_bytes), None)
        rerun = measured([execution])
        if execution.outcome in {"interrupted", "lost"} or not rerun:
            trials.append(Trial("verify", execution))
            advice = replace(advice, doubts=(*advice.doubts, f"a run under its own limits {_ended(execution)}"))
            break
        check = check_recommendation(advice, rerun[0], unlimited, oom_killed=execution.oom_killed)
        trials.append(Trial("verify", execution, check))
        if check.raised is None:
            break
        advice = check.raised
    if trials[-1].check is None or not trials[-1].check.holds:
        advice = replace(advice, doubts=(*advice.doubts, "it was not seen to hold under its own limits"))
    return advice, trials
