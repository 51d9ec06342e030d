"""Estimates: how many GPUs so many users need, from levels that were measured.

``estimate`` pools repeats, takes the levels that can be compared and asks a method. Methods are listed in ``METHODS``;
each answers with an ``Estimate`` that has a number or a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gpusize.asked import is_ramp, ramp_text
from gpusize.errors import UsageError
from gpusize.estimate.calculator import to_calc_output
from gpusize.estimate.crossing import Crossing
from gpusize.estimate.second import with_second_opinion
from gpusize.estimate.slope import Slope
from gpusize.estimate.types import Estimate, Method, Question, gpus_text

if TYPE_CHECKING:
    from gpusize.levels import LevelData

__all__ = ["METHODS", "Estimate", "Method", "Question", "estimate", "to_calc_output"]

METHODS: Final[Mapping[str, Method]] = MappingProxyType({m.name: m for m in (Slope(), Crossing())})
"""Every method by name."""


def estimate(
    levels: Iterable[LevelData], question: Question, method: str = "slope", *, allow: Collection[str] = ()
) -> list[Estimate]:
    """Answer a question from measured levels.

    Args:
        levels: of one or several runs; equal ones are pooled as repeats.
        question: users, SLOs, replica size.
        method: a name in ``METHODS``, or ``all``.
        allow: what may differ between the runs: ``targets``, ``models``, ``dataset``.

    Returns:
        One estimate per method, in the order of ``METHODS``. What cannot be answered has a ``reason``.

    Raises:
        UsageError: there is no such method, or runs were mixed that cannot be compared.
    """
    from gpusize.pooling import pool

    if method != "all" and method not in METHODS:
        raise UsageError(f"unknown method {method!r}", None, f"use one of {', '.join([*METHODS, 'all'])}")
    asked = list(METHODS.values()) if method == "all" else [METHODS[method]]
    pooled = pool(_with_gpus(levels, question), allow=allow)
    chosen, warnings = _comparable(pooled)
    reason = _cannot(chosen)
    if reason is not None:
        gpus = chosen[0].gpus if chosen else 0
        return [Estimate(m.name, gpus, question.users, reason=reason, warnings=tuple(warnings)) for m in asked]
    warnings += _doubts(chosen)
    answers = [m.answer(chosen, question) for m in asked]
    doubted = with_second_opinion(answers)
    return [replace(a, warnings=tuple(dict.fromkeys((*a.warnings, *warnings)))) for a in doubted]


def _with_gpus(levels: Iterable[LevelData], question: Question) -> list[LevelData]:
    """The question's GPU count stands in where a level has none."""
    return [replace(lv, gpus=question.gpus) if question.gpus and not lv.gpus else lv for lv in levels]


def _comparable(levels: Sequence[LevelData]) -> tuple[list[LevelData], list[str]]:
    """The closed-loop levels of one number of GPUs: of that which has most levels, then of the larger.

    A ramp has no one concurrency that its percentiles could stand for.
    """
    warnings: list[str] = []
    ramps = [lv for lv in levels if lv.concurrency and is_ramp(lv.setting)]
    if ramps:
        which = ", ".join(f"{ramp_text(lv.setting)}" for lv in ramps)
        warnings.append(f"ramps are left out: they have no one concurrency ({which})")
        levels = [lv for lv in levels if lv not in ramps]
    closed = [lv for lv in levels if lv.concurrency]
    if len(closed) < len(levels):
        warnings.append(f"{len(levels) - len(closed)} open-loop levels are left out: users are requests in flight")
    if not closed:
        return [], warnings
    votes = Counter(lv.gpus for lv in closed if lv.state == "done") or Counter(lv.gpus for lv in closed)
    gpus = max(votes, key=lambda g: (votes[g], g))
    warnings += [
        f"the levels with {gpus_text(other) if other else 'an unknown number of GPUs'} are left out; "
        f"those with {gpus or 'an unknown number'} count"
        for other in sorted({lv.gpus for lv in closed} - {gpus})
    ]
    return [lv for lv in closed if lv.gpus == gpus], warnings


def _cannot(levels: Sequence[LevelData]) -> str | None:
    """Why nothing can be answered, whatever the method."""
    if not levels:
        return "there is no closed-loop level to estimate from"
    if not levels[0].gpus:
        return "nobody said how many GPUs stand behind the target; give their number"
    return None


def _doubts(levels: Sequence[LevelData]) -> list[str]:
    """What the checks of the levels say against them."""
    from gpusize.checks import check
    from gpusize.remarks import length_remarks

    texts = []
    for level in levels:
        for visit in level.visits():
            texts += [f"concurrency {level.concurrency}: {alert}" for alert in check(visit).alerts]
    odd = [lv for lv in levels if any(length_remarks(visit) for visit in lv.visits())]
    if odd:
        texts.append(
            f"the answers are not as long as asked for at concurrency {', '.join(str(lv.concurrency) for lv in odd)}; "
            "the estimate holds for the lengths that were measured"
        )
    failed = [str(lv.concurrency) for lv in levels if lv.state == "done" and _errors(lv)]
    if failed:
        texts.append(
            f"requests failed at concurrency {', '.join(failed)}; percentiles leave them out, attainment does not"
        )
    return texts


def _errors(level: LevelData) -> int:
    outcomes = [visit.meta.get("outcomes") or {} for visit in level.visits()]
    return sum(int(n) for one in outcomes for name, n in one.items() if name not in ("ok", "cancelled"))
