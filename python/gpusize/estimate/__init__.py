"""Estimates: how many GPUs so many users need, from levels that were measured.

``estimate`` pools repeats, takes the levels that can be compared and asks a method. Methods are listed in ``METHODS``;
each answers with an ``Estimate`` that has a number or a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.asked import is_ramp, ramp_text
from gpusize.errors import UsageError
from gpusize.estimate.calculator import to_calc_output
from gpusize.estimate.crossing import Crossing
from gpusize.estimate.scaling import Scaling
from gpusize.estimate.second import with_second_opinion
from gpusize.estimate.slope import Slope
from gpusize.estimate.token_rate import with_tokens
from gpusize.estimate.twin.method import Twin
from gpusize.estimate.types import Estimate, Method, Question, gpus_text, with_reserve

if TYPE_CHECKING:
    from gpusize.levels import LevelData

__all__ = ["METHODS", "Comparable", "Estimate", "Method", "Question", "comparable", "estimate", "to_calc_output"]

METHODS: Final[Mapping[str, Method]] = MappingProxyType({m.name: m for m in (Slope(), Crossing(), Scaling(), Twin())})
"""Every method by name."""
ON_REQUEST: Final = ("twin",)
"""Methods that ``all`` leaves out."""


def estimate(
    levels: Iterable[LevelData], question: Question, method: str = "slope", *, allow: Collection[str] = ()
) -> list[Estimate]:
    """Answer a question from measured levels.

    Args:
        levels: of one or several runs; equal ones are pooled as repeats.
        question: users, SLOs, replica size.
        method: a name in ``METHODS``, or ``all`` that have something of their own to say (but ``twin``).
        allow: what may differ between the runs: ``targets``, ``models``, ``dataset``.

    Returns:
        One estimate per method, in the order of ``METHODS``; of several GPU counts those first that look at all of
        them. What cannot be answered has a ``reason``.

    Raises:
        UsageError: there is no such method, or runs were mixed that cannot be compared.
    """
    from gpusize.pooling import pool

    if method != "all" and method not in METHODS:
        raise UsageError(f"unknown method {method!r}", None, f"use one of {', '.join([*METHODS, 'all'])}")
    pooled = pool(_with_gpus(levels, question), allow=allow)
    asked = _worth_asking(pooled, question) if method == "all" else [METHODS[method]]
    said = _Doubts()
    answers = with_second_opinion([_ask(each, pooled, question, said) for each in asked])
    return [with_tokens(with_reserve(each, question), question) for each in answers]


class Comparable(NamedTuple):
    """Levels of all GPU counts that can be looked at together.

    Attributes:
        levels: pooled.
        warnings: what is said of those left out, and against those taken.
        reason: why nothing can be answered from them; None where something can.
    """

    levels: list[LevelData]
    warnings: tuple[str, ...]
    reason: str | None


def comparable(levels: Iterable[LevelData], question: Question, *, allow: Collection[str] = ()) -> Comparable:
    """What ``estimate`` gives a method that looks at all GPU counts, for those who ask one many times.

    Raises:
        UsageError: runs were mixed that cannot be compared.
    """
    from gpusize.pooling import pool

    chosen, warnings = _every_count(pool(_with_gpus(levels, question), allow=allow), question)
    reason = _cannot(chosen, question)
    said = () if reason is not None else _Doubts().of(chosen)
    return Comparable(chosen, tuple(dict.fromkeys((*warnings, *said))), reason)


def _worth_asking(pooled: Sequence[LevelData], question: Question) -> list[Method]:
    """For a rate the methods that take one; for users those of several counts first, where there are several.

    With one count these say what the others do. With several, a number that knows of the loss is to be read first.
    """
    several = [m for m in METHODS.values() if m.needs_counts == "all" and m.name not in ON_REQUEST]
    if question.rate is not None:
        return several
    others = [m for m in METHODS.values() if m.needs_counts == "one"]
    return others if len({lv.gpus for lv in pooled if lv.gpus}) < 2 else [*several, *others]


def _ask(method: Method, pooled: Sequence[LevelData], question: Question, said: _Doubts) -> Estimate:
    """One method's answer from the levels that it can compare, with what is to be said against these."""
    one = method.needs_counts == "one"
    chosen, warnings = _comparable(pooled) if one else _every_count(pooled, question)
    reason = _cannot(chosen, question)
    if reason is None and one and question.rate is not None:
        reason = "it answers for users in flight; for a rate take the scaling method"
    if reason is not None:
        gpus = chosen[0].gpus if chosen else 0
        users, rate = question.users or None, question.rate
        return Estimate(method.name, gpus, users, reason=reason, warnings=tuple(warnings), rate=rate)
    answer = method.answer(chosen, question)
    return replace(answer, warnings=tuple(dict.fromkeys((*answer.warnings, *warnings, *said.of(chosen)))))


def _with_gpus(levels: Iterable[LevelData], question: Question) -> list[LevelData]:
    """The question's GPU count stands in where a level has none."""
    return [replace(lv, gpus=question.gpus) if question.gpus and not lv.gpus else lv for lv in levels]


def _comparable(levels: Sequence[LevelData]) -> tuple[list[LevelData], list[str]]:
    """The closed-loop levels of one number of GPUs: of that which has most levels, then of the larger."""
    closed, warnings = _closed(*_held(levels))
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


def _every_count(levels: Sequence[LevelData], question: Question) -> tuple[list[LevelData], list[str]]:
    """The levels of all known numbers of GPUs; for users closed loops only."""
    held, warnings = _held(levels)
    if question.rate is None:
        held, warnings = _closed(held, warnings)
    changing = [lv for lv in held if not lv.concurrency and (not lv.rate or is_ramp(lv.setting))]
    if changing:
        warnings.append(f"{len(changing)} open-loop levels are left out: their rate changes while they run")
        held = [lv for lv in held if lv not in changing]
    known = [lv for lv in held if lv.gpus]
    if known and len(known) < len(held):
        warnings.append("the levels with an unknown number of GPUs are left out")
    return known or held, warnings


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


def _cannot(levels: Sequence[LevelData], question: Question) -> str | None:
    """Why nothing can be answered, whatever is asked."""
    if not levels:
        return f"there is no {'closed-loop ' if question.rate is None else ''}level to estimate from"
    if not levels[0].gpus:
        return "nobody said how many GPUs stand behind the target; give their number"
    return None


class _Doubts:
    """What the checks of the levels say against them; each level is looked at once for all methods."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[list[str], bool]] = {}

    def of(self, levels: Sequence[LevelData]) -> list[str]:
        """In words, for levels that are estimated from together."""
        texts = [text for level in levels for text in self._level(level)[0]]
        odd = [lv for lv in levels if self._level(lv)[1]]
        if odd:
            texts.append(
                f"the answers are not as long as asked for at {_together(odd)}; "
                "the estimate holds for the lengths that were measured"
            )
        failed = [lv for lv in levels if lv.state == "done" and _errors(lv)]
        if failed:
            texts.append(f"requests failed at {_together(failed)}; percentiles leave them out, attainment does not")
        return texts

    def _level(self, level: LevelData) -> tuple[list[str], bool]:
        from gpusize.checks import check
        from gpusize.remarks import length_remarks

        if id(level) not in self._seen:
            visits = level.visits()
            alerts = [f"{_named(level)}: {alert}" for visit in visits for alert in check(visit).alerts]
            self._seen[id(level)] = alerts, any(length_remarks(visit) for visit in visits)
        return self._seen[id(level)]


def _together(levels: Sequence[LevelData]) -> str:
    """Several levels in words: ``concurrency 1, 2`` or ``10 requests/s, concurrency 4``."""
    closed = [str(lv.concurrency) for lv in levels if lv.concurrency is not None]
    opened = [_named(lv) for lv in levels if lv.concurrency is None]
    return ", ".join([*opened, *([f"concurrency {', '.join(closed)}"] if closed else [])])


def _named(level: LevelData) -> str:
    if level.concurrency is not None:
        return f"concurrency {level.concurrency}"
    return f"{level.rate:g} requests/s"


def _errors(level: LevelData) -> int:
    outcomes = [visit.meta.get("outcomes") or {} for visit in level.visits()]
    return sum(int(n) for one in outcomes for name, n in one.items() if name not in ("ok", "cancelled"))
