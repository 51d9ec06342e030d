"""Does a recommendation hold? From a run under its limits to a verdict, and to a higher one where it does not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpusize.resources.recommend.default import CPU_STEP, memory_raised, peak_limit
from gpusize.resources.recommend.types import Execution, Recommendation, round_up

__all__ = ["SLOWER", "Verdict", "verdict_of"]

SLOWER: Final = 0.1
"""Share by which an operator may take longer under its limits before they count as too tight."""
CPU_RAISE: Final = 1.2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a run under the recommended limits.

    Attributes:
        holds: it completed, was not killed, and was not slower by more than was allowed.
        completed: it ended well.
        oom_killed: it, or a process in it, was killed for want of memory.
        throttled_share: share of the scheduler periods in which it was throttled; None where not told.
        slower: share by which it took longer than without limits; None where that is not known.
        reasons: why it does not hold.
        raised: the recommendation to try next; None where it holds, or where more would not help.
    """

    holds: bool
    completed: bool
    oom_killed: bool
    throttled_share: float | None
    slower: float | None
    reasons: tuple[str, ...] = ()
    raised: Recommendation | None = None

    def sentence(self) -> str:
        """The verdict in words."""
        state = "OOM-killed" if self.oom_killed else "completed" if self.completed else "failed"
        throttled = "" if self.throttled_share is None else f", throttled for {self.throttled_share:.0%} of the periods"
        slower = (
            "" if self.slower is None else f", {'slower' if self.slower >= 0 else 'faster'} by {abs(self.slower):.0%}"
        )
        return f"{state}{throttled}{slower}"


def verdict_of(
    recommendation: Recommendation,
    rerun: Execution,
    unlimited: Sequence[Execution],
    *,
    oom_killed: bool = False,
    slower_allowed: float = SLOWER,
    cpu_step: float = CPU_STEP,
) -> Verdict:
    """Judge a run under the limits of a recommendation.

    Args:
        recommendation: its CPU request and its memory were the limits.
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
    times = [each.usage.duration_s for each in unlimited if each.failed is None and each.usage.duration_s > 0]
    usual = statistics.median(times) if times else None
    slower = usage.duration_s / usual - 1 if usual and completed else None
    allowed = max([slower_allowed, *(time / usual - 1 for time in times if usual)])
    throttled = None if usage.throttling is None else usage.throttling.share
    too_slow = slower is not None and slower > allowed
    reasons: list[str] = []
    changed: dict[str, Any] = {}
    if killed:
        reasons.append("it was killed for want of memory")
    elif not completed:
        reasons.append(f"it failed: {rerun.failed}")
    if (killed or (not completed and usage.memory.limit_events)) and recommendation.mem_bytes is not None:
        changed["mem_bytes"] = memory_raised(max(recommendation.mem_bytes, usage.memory.peak_bytes or 0))
    if too_slow:
        reasons.append(f"it took {slower:.0%} longer than without limits")
        cores = _more_cores(recommendation, slower or 0.0, throttled, unlimited, cpu_step)
        if cores is not None:
            changed["cpu_cores"] = cores
        else:
            reasons.append("more CPU would not help: it was not throttled, or has all that it ever used")
    return Verdict(
        holds=completed and not killed and not too_slow,
        completed=completed,
        oom_killed=killed,
        throttled_share=throttled,
        slower=slower,
        reasons=tuple(reasons),
        raised=_raised(recommendation, changed, reasons) if changed else None,
    )


def _more_cores(
    recommendation: Recommendation,
    slower: float,
    throttled: float | None,
    unlimited: Sequence[Execution],
    step: float,
) -> float | None:
    """A higher CPU request; None where CPU is not what held it back."""
    cores = recommendation.cpu_cores
    if cores is None or throttled == 0:
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
