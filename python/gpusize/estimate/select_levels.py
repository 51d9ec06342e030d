"""Which of the pooled levels a method may look at, and what is said about the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusize.analysis.delivery.intended import is_ramp, ramp_text
from gpusize.estimate.one_pause import of_one_pause
from gpusize.estimate.question import Question, gpus_text

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["cannot", "comparable", "every_count", "untold"]


def comparable(levels: Sequence[LevelData], question: Question) -> tuple[list[LevelData], list[str]]:
    """The closed-loop levels of one pause and number of GPUs: of that which has most levels, then of the larger."""
    closed, warnings = _closed(*_held(levels))
    if not closed:
        return [], warnings
    closed, others = of_one_pause(closed, question)
    warnings += others
    votes = Counter(lv.gpus for lv in closed if lv.state == "done") or Counter(lv.gpus for lv in closed)
    gpus = max(votes, key=lambda g: (votes[g], g))
    warnings += [
        f"the levels with {gpus_text(other) if other else 'an unknown number of GPUs'} are left out; "
        f"those with {gpus or 'an unknown number'} count"
        for other in sorted({lv.gpus for lv in closed} - {gpus})
    ]
    return [lv for lv in closed if lv.gpus == gpus], warnings


def every_count(levels: Sequence[LevelData], question: Question) -> tuple[list[LevelData], list[str]]:
    """The levels of all known numbers of GPUs; for users closed loops only."""
    held, warnings = _held(levels)
    if question.rate is None:
        held, warnings = _closed(held, warnings)
    changing = [lv for lv in held if not lv.concurrency and (not lv.rate or is_ramp(lv.setting))]
    if changing:
        warnings.append(f"{len(changing)} open-loop levels are left out: their rate changes while they run")
        held = [lv for lv in held if lv not in changing]
    held, others = of_one_pause(held, question)
    warnings += others
    known = [lv for lv in held if lv.gpus]
    if known and len(known) < len(held):
        warnings.append("the levels with an unknown number of GPUs are left out")
    return known or held, warnings


def cannot(levels: Sequence[LevelData], question: Question) -> str | None:
    """Why nothing can be answered from what was chosen, whatever is asked; None where something can."""
    if not levels:
        return f"there is no {'closed-loop ' if question.rate is None else ''}level to estimate from"
    if not levels[0].gpus:
        return "GPU count unknown; pass --gpus N"
    slow = next((slo for slo in question.slos if slo.bound_s is not None and slo.op in (">", ">=")), None)
    if slow is not None:
        meant = str(slow).replace(">", "<")
        return f"{slow} is met by being slow, and more GPUs make nothing slower: did you mean {meant}?"
    return None


def untold(levels: Sequence[LevelData], question: Question) -> str | None:
    """That no request has what an SLO is about, which no further load changes; None where some have it, or may have."""
    done = [level for level in levels if level.state == "done"]
    if not done or any(level.imported for level in levels):
        return None
    slo = next((slo for slo in question.slos if all(level.met(slo) is None for level in done)), None)
    if slo is None:
        return None
    calls = "; gpusize.call and --llm-proxy tell of the calls inside requests" if slo.of_calls else ""
    return f"no level has data for {slo}{calls}"


def _held(levels: Sequence[LevelData]) -> tuple[list[LevelData], list[str]]:
    """Without closed-loop ramps, which have no one concurrency that their percentiles could stand for."""
    ramps = [lv for lv in levels if lv.concurrency and is_ramp(lv.setting)]
    held = [lv for lv in levels if lv not in ramps]
    which = ", ".join(f"{ramp_text(lv.setting)}" for lv in ramps)
    return held, [f"ramps are left out: they have no one concurrency ({which})"] if ramps else []


def _closed(levels: Sequence[LevelData], warnings: list[str]) -> tuple[list[LevelData], list[str]]:
    closed = [lv for lv in levels if lv.concurrency]
    if len(closed) < len(levels):
        warnings.append(f"{len(levels) - len(closed)} open-loop levels are left out: users are requests in flight")
    return closed, warnings
