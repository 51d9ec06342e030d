"""Whether a recommendation holds, by a run under its limits; where it does not, the higher one to try next."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.containers.recommend.gpusize_rule import CPU_STEP, memory_raised, peak_limit
from gpusize.containers.recommend.types import Execution, Recommendation, round_up

if TYPE_CHECKING:
    from gpusize.observe.usage.usage_types import Usage

__all__ = ["SLOWER", "RecommendationCheck", "check_recommendation"]

SLOWER: Final = 0.1
"""Share by which an operator may take longer under its limits before they count as too tight."""
CPU_RAISE: Final = 1.2
CAUSED: Final = 0.25
"""Share of the time lost that throttling must account for to be its cause; it is summed over CPUs, so may be more."""


@dataclass(frozen=True, slots=True)
class RecommendationCheck:
    """What became of a run under the recommended limits.

    Attributes:
        holds: it completed, was not killed, and its limits did not make it slower by more than was allowed.
        completed: it ended well.
        oom_killed: it, or a process in it, was killed for lack of memory.
        throttled_share: share of the scheduler periods in which it was throttled; None where not told.
        slower: share by which it took longer than without limits; None where that is not known.
        reasons: why it does not hold.
        remarks: what else was seen.
        raised: the recommendation to try next; None where it holds, or where more would not help.
    """

    holds: bool
    completed: bool
    oom_killed: bool
    throttled_share: float | None
    slower: float | None
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    raised: Recommendation | None = None

    def sentence(self) -> str:
        """How it went, as the beginning of a sentence."""
        state = "OOM-killed" if self.oom_killed else "completed" if self.completed else "failed"
        throttled = "" if self.throttled_share is None else f", throttled for {self.throttled_share:.0%} of the periods"
        slower = (
            "" if self.slower is None else f", {'slower' if self.slower >= 0 else 'faster'} by {abs(self.slower):.0%}"
        )
        return "".join([state, throttled, slower, " for another reason" if self.remarks else ""])


def check_recommendation(
    recommendation: Recommendation,
    rerun: Execution,
    unlimited: Sequence[Execution],
    *,
    oom_killed: bool = False,
    slower_allowed: float = SLOWER,
    cpu_step: float = CPU_STEP,
) -> RecommendationCheck:
    """Whether a recommendation held in a run under its limits.

    Args:
        recommendation: its memory and its CPU limit, without one its CPU request, were the limits.
        rerun: the run.
        unlimited: runs without limits, whose median time is what it is held against. Where they differ among
            themselves by more than ``slower_allowed``, it may be as slow as the slowest of them.
        oom_killed: what the container runtime says; the kernel's own count in ``rerun`` is looked at besides, as the
            runtime does not see workers that are killed inside a container that lives on.
        slower_allowed: share by which it may take longer.
        cpu_step: what CPU is raised by at least, in cores.
    """
    usage = rerun.usage
    killed = oom_killed or bool(usage.memory.oom_kills)
    completed = rerun.failed is None
    slower, allowed = _slower(rerun, unlimited, slower_allowed)
    throttled = None if usage.throttling is None else usage.throttling.share
    late = slower is not None and slower > allowed
    extra_s = rerun.took_s * (1 - 1 / (1 + slower)) if slower is not None and slower > -1 else 0.0
    by_cpu, by_memory = _throttled_for(usage, extra_s), bool(usage.memory.limit_events)
    reasons: list[str] = []
    remarks: list[str] = []
    changed: dict[str, Any] = {}
    if killed:
        reasons.append("it was killed for lack of memory")
    elif not completed:
        reasons.append(f"it failed: {rerun.failed}")
    if late and not (by_cpu or by_memory):
        remarks.append(f"it took {slower:.0%} longer, of which its limits are not the cause: it was not throttled")
    elif late:
        reasons.append(f"it took {slower:.0%} longer than without limits")
        cores = _more_cores(recommendation, slower or 0.0, unlimited, cpu_step) if by_cpu else None
        if cores is not None:
            changed["cpu_cores" if recommendation.cpu_limit_cores is None else "cpu_limit_cores"] = cores
        elif by_cpu:
            reasons.append("it has all the CPU that it ever used")
    wants_memory = killed or (by_memory and (not completed or (late and not by_cpu)))
    if wants_memory and recommendation.mem_bytes is not None:
        changed["mem_bytes"] = memory_raised(max(recommendation.mem_bytes, usage.memory.peak_bytes or 0))
    return RecommendationCheck(
        holds=not reasons,
        completed=completed,
        oom_killed=killed,
        throttled_share=throttled,
        slower=slower,
        reasons=tuple(reasons),
        remarks=tuple(remarks),
        raised=_raised(recommendation, changed, reasons) if changed else None,
    )


def _slower(rerun: Execution, unlimited: Sequence[Execution], least: float) -> tuple[float | None, float]:
    """Share by which the run took longer than the median without limits, and the share that is allowed."""
    times = [each.took_s for each in unlimited if each.failed is None and each.took_s > 0]
    if not times:
        return None, least
    usual = statistics.median(times)
    allowed = max([least, *(time / usual - 1 for time in times)])
    return (rerun.took_s / usual - 1 if rerun.failed is None else None), allowed


def _throttled_for(usage: Usage, extra_s: float) -> bool:
    """Whether throttling can be why it took so much longer; where nothing tells of throttling, it can."""
    held = usage.throttling
    return held is None or (held.throttled_periods > 0 and held.throttled_s >= CAUSED * extra_s)


def _more_cores(
    recommendation: Recommendation,
    slower: float,
    unlimited: Sequence[Execution],
    step: float,
) -> float | None:
    """More cores than it was run under; None where it has all that was ever used."""
    limit = recommendation.cpu_limit_cores
    cores = recommendation.cpu_cores if limit is None else limit
    if cores is None:
        return None
    most = peak_limit(unlimited)
    wanted = round(round_up(max(cores * CPU_RAISE, cores * (1 + slower), cores + step), step), 3)
    if most is not None:
        # Nothing was ever throttled at what the highest 100 ms used.
        wanted = min(wanted, round_up(max(most, step), step))
    return wanted if wanted > cores else None


def _raised(recommendation: Recommendation, changed: dict[str, Any], reasons: Sequence[str]) -> Recommendation:
    why = f"raised after a run under its limits: {'; '.join(reasons)}"
    return replace(recommendation, **changed, reasons=(*recommendation.reasons, why))
