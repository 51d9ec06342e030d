"""Estimates: how many GPUs so many users need, from levels that were measured.

``estimate`` pools repeats, takes the levels that can be compared and asks a method. Methods are listed in ``METHODS``;
each answers with an ``Estimate`` that has a number or a reason. ``auto`` is the default: the twin, or what stands in
for it, which the answer says. ``estimate_frame`` does the same from two data frames, without a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.base.errors import UsageError
from gpusize.estimate.as_much_again import Spent, spent_on
from gpusize.estimate.balanced_otherwise import balanced_otherwise
from gpusize.estimate.calculator_output import to_calc_output
from gpusize.estimate.crossing import Crossing
from gpusize.estimate.default import believed, default_answer, too_few
from gpusize.estimate.evidence import evidence
from gpusize.estimate.from_frames import levels_from_frames
from gpusize.estimate.level_quality import LevelFindings, left_text
from gpusize.estimate.measured_bounds import MeasuredBounds
from gpusize.estimate.question import Estimate, Method, Question, as_bought, gpus_text
from gpusize.estimate.scaling import Scaling
from gpusize.estimate.select_levels import cannot, every_count
from gpusize.estimate.select_levels import comparable as of_one_count
from gpusize.estimate.sensitivity import what_would_change
from gpusize.estimate.slope import Slope
from gpusize.estimate.token_rate import with_tokens
from gpusize.estimate.twin.method import Twin

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = [
    "ALL",
    "AUTO",
    "METHODS",
    "Comparable",
    "Estimate",
    "Method",
    "Question",
    "comparable",
    "estimate",
    "estimate_frame",
    "levels_from_frames",
    "to_calc_output",
]

METHODS: Final[Mapping[str, Method]] = MappingProxyType({m.name: m for m in (Twin(), Scaling(), Slope(), Crossing())})
"""Every method by name."""
AUTO: Final = "auto"
"""The default: one answer, of the method that the levels allow."""
ALL: Final = "all"
"""The default's answer, and those of the other methods that have something of their own to say."""


def estimate(
    levels: Iterable[LevelData], question: Question, method: str = AUTO, *, allow: Collection[str] = ()
) -> list[Estimate]:
    """Answer a question from measured levels.

    Args:
        levels: of one or several runs; equal ones are pooled as repeats.
        question: users, SLOs, replica size.
        method: a name in ``METHODS``, ``auto``, or ``all``: the default's answer first, then what the other methods
            say that have something of their own to say.
        allow: what may differ between the runs: ``targets``, ``models``, ``dataset``.

    Returns:
        One estimate, or for ``all`` one per method. What cannot be answered has a ``reason``.

    Raises:
        UsageError: there is no such method, or runs were mixed that cannot be compared.
    """
    from gpusize.analysis.pooling import pool

    if method not in (AUTO, ALL, *METHODS):
        raise UsageError(f"unknown method {method!r}", None, f"use one of {', '.join([AUTO, ALL, *METHODS])}")
    found = evidence(_with_gpus(levels, question))
    asking = _Asking(pool(found.kept, allow=allow), question)
    if method == AUTO:
        answers = [asking.default()]
    elif method == ALL:
        first, levels = asking.default(), asking.believed or asking.pooled
        others = [name for name in _worth_asking(levels, question) if name != first.method]
        answers = with_second_opinion([first, *(asking.ask(name, levels) for name in others)])
    else:
        answers = [asking.ask(method, asking.pooled)]
    spent = spent_on(found.kept)
    complete = [found.add_to(_with_changes(each, question, spent)) for each in answers]
    said = (*_at_odds(asking.pooled, question), *balanced_otherwise(found.kept, question.router))
    bought = [with_tokens(as_bought(each, question), question) for each in complete]
    return [replace(each, warnings=(*said, *each.warnings)) for each in bought] if said else bought


def _with_changes(answer: Estimate, question: Question, spent: Spent | None) -> Estimate:
    """The answer with what would change it, and how those pause who are asked for."""
    changes = what_would_change(answer, question, spent)
    return replace(answer, changes=changes, think=question.think, think_s=question.think_s)


class Comparable(NamedTuple):
    """Levels of all GPU counts that can be looked at together.

    Attributes:
        levels: pooled, without those that the default would leave out.
        warnings: what is said of those left out, and against those taken.
        reason: why nothing can be answered from them; None where something can.
        left: which levels are left out, why, and what to do about it; empty without any.
    """

    levels: list[LevelData]
    warnings: tuple[str, ...]
    reason: str | None
    left: str = ""


def comparable(levels: Iterable[LevelData], question: Question, *, allow: Collection[str] = ()) -> Comparable:
    """What the default gives a method that looks at all GPU counts, for those who ask one many times.

    Raises:
        UsageError: runs were mixed that cannot be compared.
    """
    from gpusize.analysis.pooling import pool

    found, findings = evidence(_with_gpus(levels, question)), LevelFindings()
    pooled, odd = findings.trusted(pool(found.kept, allow=allow))
    chosen, warnings = every_count(pooled, question)
    warnings = [*balanced_otherwise(found.kept, question.router), *found.warnings, *warnings, *odd]
    reason = cannot(chosen, question)
    if reason is not None:
        return Comparable(chosen, tuple(dict.fromkeys(warnings)), found.failed or reason)
    kept, left, said = believed(chosen, findings)
    told = dict.fromkeys((*warnings, *said, *findings.of(kept)))
    return Comparable(kept, tuple(told), too_few(chosen, question, findings), left_text(left, findings))


def estimate_frame(
    records: pl.DataFrame | pl.LazyFrame, levels: pl.DataFrame, question: Question, method: str = AUTO
) -> Estimate:
    """Answer a question from a frame of requests and one of levels: no run, no folder, no clock.

    So anyone can hold a method against a simulator or measurements of their own. docs/reference/python.md has the
    columns.

    Args:
        records: one row per request: ``visit``, ``due_s`` and ``end_s``, and what else is known.
        levels: one row per visit of a level: ``visit``, ``concurrency`` or ``rate``, and what else is known.
        question: users or a rate, and SLOs.
        method: a name in ``METHODS``, or ``auto``.

    Raises:
        UsageError: a column is missing, a value cannot be, or there is no such method.
    """
    if method == ALL:
        raise UsageError(
            "an estimate takes one method, not all", "method", "give levels_from_frames to estimate for all of them"
        )
    return estimate(levels_from_frames(records, levels), question, method)[0]


class _Asking:
    """One question to several methods; none is asked the same twice."""

    def __init__(self, pooled: Sequence[LevelData], question: Question) -> None:
        self._findings = LevelFindings()
        self.pooled, self._warnings = self._findings.trusted(pooled)
        self.question = question
        self.believed = [level for level in self.pooled if self._findings.unbelieved(level) is None]
        """Those that stand in one table side by side: no method there rests on what another one leaves out."""
        self._bounds = MeasuredBounds(self.pooled, self._findings)
        self._answers: dict[tuple[str, tuple[int, ...]], Estimate] = {}

    def default(self) -> Estimate:
        return default_answer(self.pooled, self.question, self._findings, self.ask)

    def ask(self, name: str, levels: Sequence[LevelData]) -> Estimate:
        """One method's answer from the levels that it can compare, with what is to be said against these."""
        key = (name, tuple(map(id, levels)))
        if key not in self._answers:
            self._answers[key] = self._ask(METHODS[name], levels)
        return self._answers[key]

    def _ask(self, method: Method, levels: Sequence[LevelData]) -> Estimate:
        question, one = self.question, method.needs_counts == "one"
        chosen, warnings = of_one_count(levels, question) if one else every_count(levels, question)
        reason = cannot(chosen, question)
        warnings += self._warnings
        if reason is None and not one:
            # What is fitted must be true; figures that are only read off are shown with the doubt beside them.
            chosen, left, said = believed(chosen, self._findings)
            warnings += said
            reason = None if chosen else f"no level can be used; {left_text(left, self._findings)}"
        if reason is None and one and question.rate is not None:
            reason = "it answers for users in flight; for a rate take the scaling method"
        if reason is not None:
            gpus = chosen[0].gpus if chosen else 0
            users, rate = question.users or None, question.rate
            return Estimate(method.name, gpus, users, reason=reason, warnings=tuple(warnings), rate=rate)
        answer = self._bounds.apply(method.answer(chosen, question), question)
        return replace(answer, warnings=tuple(dict.fromkeys((*answer.warnings, *warnings, *self._findings.of(chosen)))))


def _worth_asking(pooled: Sequence[LevelData], question: Question) -> list[str]:
    """For a rate the methods that take one; for users ``scaling`` where there are several counts, and all others.

    With one count ``scaling`` says what ``crossing`` does.
    """
    several = question.rate is not None or len({lv.gpus for lv in pooled if lv.gpus}) > 1
    one = question.rate is None
    return ["twin", *(["scaling"] if several else []), *(["slope", "crossing"] if one else [])]


def _with_gpus(levels: Iterable[LevelData], question: Question) -> list[LevelData]:
    return [replace(lv, gpus=question.gpus) if question.gpus and not lv.gpus else lv for lv in levels]


def _at_odds(levels: Sequence[LevelData], question: Question) -> tuple[str, ...]:
    """That the runs say another number of GPUs than the question does, which is for those that say none."""
    counts = sorted({level.gpus for level in levels})
    if question.gpus is None or not counts or question.gpus in counts:
        return ()
    said = " and ".join(gpus_text(count) for count in counts)
    return (f"{said} {'was' if counts == [1] else 'were'} tested, as the runs say: {question.gpus} is not taken",)


LINE: Final = "slope"
OTHER: Final = "crossing"


def with_second_opinion(answers: Sequence[Estimate]) -> list[Estimate]:
    """The answers, the line's with a warning where the crossing method disagrees, or where the line was stretched.

    A line is stretched when it answers outside the tested range or has left levels out as outliers. A number that
    nobody else confirms is read first, so the doubt has to stand beside it and not in a table below.
    """
    other = next((each for each in answers if each.method == OTHER), None)
    if other is None:
        return list(answers)
    return [_doubted(each, other) if each.method == LINE and each.answered else each for each in answers]


def _doubted(line: Estimate, other: Estimate) -> Estimate:
    if line.gpus == other.gpus and not _stretched(line):
        return line
    if not other.answered and _seen(other) < _seen(line):
        # Imported levels have percentiles, and hardly any requests: there is nothing that the method could say.
        return line
    if not other.answered:
        text = f"the crossing method, which assumes no line, gives no number: {other.reason}"
    elif line.gpus == other.gpus:
        text = f"the crossing method, which assumes no line, answers {gpus_text(other.gpus or 0)} as well"
    else:
        carried = "" if other.capacity_concurrency is None else f" ({other.capacity_concurrency:.3g} users carried)"
        text = f"the crossing method, which assumes no line, answers {gpus_text(other.gpus or 0)}{carried}"
    return replace(line, warnings=(text, *line.warnings))


def _seen(answer: Estimate) -> int:
    return len(answer.details.get("points") or ())


def _stretched(line: Estimate) -> bool:
    parts = line.per_slo or (line,)
    return any(
        part.outside_tested_range or ((part.details.get("fit") or {}).get("outliers_removed") or ()) for part in parts
    )
