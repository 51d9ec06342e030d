"""Every answer held against the levels that were measured, whichever method gave it.

A level surely keeps an SLO, or surely misses it, where the share that is asked for lies outside the 95 % interval of
its attainment. Of one number of GPUs n that leaves a bracket for their capacity: above the largest load K that is
surely kept, below the smallest one M that is surely missed (loads between a missed one and a larger kept one say
nothing). Of users U it follows, whatever a model says:

    n GPUs are enough         where U <= K
    n GPUs are not enough     where U >= M
    n ceil(U / K) are enough, n U / M are not     where one count was measured, so that replicas cost each other
                                                  nothing, and each has a queue of its own

An answer on the other side is moved to the bound where its own interval reaches that far; else there is none. An
interval ends at the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import is_ramp, think_s
from gpusize.analysis.throughput import process_of
from gpusize.estimate.crossing import effective_n
from gpusize.estimate.isotonic import Z_95, wilson
from gpusize.estimate.question import FUZZ, Estimate, Question, binding, gpus_text, whole_gpus
from gpusize.estimate.slo_limit import load_of
from gpusize.estimate.twin.level_shares import DESIGN

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.level_quality import LevelFindings

__all__ = ["Bracket", "MeasuredBounds"]

AS_TESTED: Final = ("least_loaded", "shared")
"""Behind these, replicas that were tested together do no worse than they did; behind others they may."""
KEEPS: Final = "keep"
MISSES: Final = "miss"
LEAST: Final = 20
"""A mean of fewer requests says nothing surely."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """What levels of one number of GPUs allow their capacity to be, in the unit of the load.

    Attributes:
        gpus: their number.
        kept: largest load that is surely kept; 0 where none is.
        missed: smallest load that is surely missed; infinite where none is.
    """

    gpus: int
    kept: float = 0.0
    missed: float = math.inf


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The counts that the brackets allow, and the loads that say so, in words."""

    low: int = 1
    high: float = math.inf
    why_low: str = ""
    why_high: str = ""


class MeasuredBounds:
    """Measured levels, asked for what they allow.

    Args:
        levels: pooled, of any number of GPUs.
        findings: what speaks against them: those that say nothing of the target allow everything.
    """

    def __init__(self, levels: Sequence[LevelData], findings: LevelFindings) -> None:
        self._findings = findings
        self._levels = [lv for lv in levels if lv.state in ("done", "interrupted") and not is_ramp(lv.setting)]
        self._sure: dict[tuple[int, Slo], str | None] = {}

    def apply(self, answer: Estimate, question: Question) -> Estimate:
        """The answer where the levels allow it; else the nearest that they do, or none, with the reason.

        ``answer`` is without headroom and spare replicas. Answers for several SLOs are held one by one.
        """
        if answer.per_slo:
            parts = [self._one(part, question, [slo]) for part, slo in zip(answer.per_slo, question.slos, strict=True)]
            return answer if parts == list(answer.per_slo) else binding(parts)
        return self._one(answer, question, question.slos)

    def brackets(self, question: Question, slos: Sequence[Slo]) -> list[Bracket]:
        """One per number of GPUs whose levels say something about a load of the question's kind, ascending."""
        found = []
        for gpus, levels in sorted(self._loads(question).items()):
            kept, passed, missed = set(), set(), set()
            for load, level in levels.items():
                surely = self._surely_all(level, slos)
                lighter, heavier = _against(level, question)
                if heavier and level.state == "done":
                    kept |= {load} if surely == KEEPS else set()
                    passed |= {load} if all(level.met(slo) for slo in slos) else set()
                if lighter and surely == MISSES:
                    missed.add(load)
            # Between a load that is missed and a larger one that is kept, be it by chance, nobody knows.
            low = max((c for c in kept if all(c < m for m in missed)), default=0.0)
            high = min((m for m in missed if all(c < m for c in kept | passed)), default=math.inf)
            if low or high < math.inf:
                found.append(Bracket(gpus, low, high))
        return found

    def _loads(self, question: Question) -> dict[int, dict[float, LevelData]]:
        """The levels of the question's kind of loop by number of GPUs and load; complete ones know more than others."""
        found: dict[int, dict[float, LevelData]] = {}
        for level in self._levels:
            if level.gpus and (level.concurrency is None) == (question.rate is not None):
                same = found.setdefault(level.gpus, {})
                load = float(load_of(level) or 0.0)
                if load not in same or same[load].state != "done":
                    same[load] = level
        return found

    def _surely_all(self, level: LevelData, slos: Sequence[Slo]) -> str | None:
        """Whether a level surely keeps all SLOs, or surely misses one; None where chance may decide."""
        each = [self._of_one(level, slo) for slo in slos]
        if MISSES in each:
            return MISSES
        return KEEPS if each and all(one == KEEPS for one in each) else None

    def _of_one(self, level: LevelData, slo: Slo) -> str | None:
        key = (id(level), slo)
        if key not in self._sure:
            self._sure[key] = None if self._findings.unbelieved(level) else _surely(level, slo)
        return self._sure[key]

    def _one(self, answer: Estimate, question: Question, slos: Sequence[Slo]) -> Estimate:
        if answer.gpus is None or not slos or (question.together and len(slos) > 1):
            return answer
        found = self.brackets(question, slos)
        # Calls of a workflow go to any replica, each by itself: several share them better than one does.
        apart = len({lv.gpus for lv in self._levels}) > 1 or any(lv.knows_calls for lv in self._levels)
        moved = _moved(answer, _allowed(found, question, several=apart))
        if moved.gpus is None or question.rate is not None:
            return moved
        # A capacity is in requests in flight, whatever the pauses of those who are asked for.
        without = found if not question.think_s else self.brackets(replace(question, think="none", think_s=0.0), slos)
        held = _enough(_capacity(moved, without), question)
        at, raw = answer.capacity_concurrency, answer.gpus_raw
        same = at and raw and math.isclose(raw * at, question.users * answer.tested_gpus, rel_tol=1e-6)
        if held.gpus is None or not same or not held.capacity_concurrency:
            return held
        # One number for one thing: the unrounded count still is what the capacity says.
        return replace(held, gpus_raw=question.users * held.tested_gpus / held.capacity_concurrency)


def _surely(level: LevelData, slo: Slo) -> str | None:
    if level.imported:
        return None  # another tool's percentiles have no interval
    if slo.kind == "mean":
        return _by_mean(level, slo)
    share, n = level.attainment(slo)
    if not n:
        return None
    low, high = wilson(share, effective_n(level, slo, share, n))
    return KEEPS if low >= slo.share else MISSES if high < slo.share else None


def _by_mean(level: LevelData, slo: Slo) -> str | None:
    """By the mean and its standard error, requests taken for no more independent than batches of them mostly are."""
    values, bound = level.values(slo.metric), slo.bound_s
    if bound is None or slo.op not in ("<=", "<") or values.size < LEAST:
        return None
    mean = float(values.mean())
    half = Z_95 * DESIGN * float(values.std()) / math.sqrt(values.size)
    if level.met(slo) is False and mean <= bound:
        return MISSES  # a failed request has no place in a mean
    return KEEPS if mean + half <= bound else MISSES if mean - half > bound else None


def _against(level: LevelData, question: Question) -> tuple[bool, bool]:
    """Whether a level's load is no heavier than the question's of the same size, and whether it is no lighter."""
    if question.rate is not None:
        process = process_of(level)
        same = process == question.process
        # Nothing comes more evenly than at a constant rate.
        return same or process == "constant", same or question.process == "constant"
    pause_s, spread_s = think_s(level.setting) or (math.nan, math.nan)
    spread = question.think_s if question.think == "exponential" else 0.0
    same = pause_s == question.think_s and spread_s == spread
    return same or (question.think_s == 0 and pause_s >= 0), same or pause_s == 0


def _allowed(found: Sequence[Bracket], question: Question, *, several: bool) -> _Allowed:
    """The fewest and the most GPUs that the brackets leave for the question's load."""
    load = question.users if question.rate is None else question.rate
    per, unit = question.gpus_per_replica, "in flight" if question.rate is None else "requests/s"
    lows: list[tuple[int, str]] = [(per, "")]
    highs: list[tuple[float, str]] = [(math.inf, "")]
    # Several replicas behind another router than the test's are another thing; one is not. With one queue for all they
    # are not so many times one: times vary less, which keeps some SLOs and misses others.
    routed = question.router in AS_TESTED
    alone = question.rate is None and not several and question.host_gpus is None and question.router != "shared"

    def more_than(gpus: float) -> int:
        return (math.floor(gpus / per + FUZZ) + 1) * per

    for each in found:
        missed = f"{gpus_text(each.gpus)} surely miss{_es(each.gpus)} the SLO with {each.missed:g} {unit}"
        kept = f"{gpus_text(each.gpus)} surely meet{_s(each.gpus)} the SLO with {each.kept:g} {unit}"
        if load >= each.missed:
            lows.append((more_than(each.gpus), missed))
        if load <= each.kept and (routed or each.gpus <= per):
            highs.append((whole_gpus(each.gpus, per), kept))
        if alone and each.missed < math.inf and question.think_s == 0:
            lows.append((more_than(load * each.gpus / each.missed), missed))
        if alone and each.kept and routed:
            highs.append((whole_gpus(math.ceil(load / each.kept - FUZZ) * each.gpus, per), kept))
    low, high = max(lows, key=lambda one: one[0]), min(highs, key=lambda one: one[0])
    return _Allowed(low[0], high[0], low[1], high[1])


def _moved(answer: Estimate, allowed: _Allowed) -> Estimate:
    """The answer between the counts that are allowed."""
    gpus = answer.gpus
    if gpus is None or allowed.low > allowed.high:
        return answer
    if allowed.low <= gpus <= allowed.high:
        return _narrowed(answer, allowed)
    few = gpus < allowed.low
    bound = allowed.low if few else int(allowed.high)
    why = f"{allowed.why_low if few else allowed.why_high}: {gpus_text(bound)} or {'more' if few else 'fewer'}"
    low, high = answer.gpus_low, answer.gpus_high
    if (low is None and high is None) or not (low or 1) <= bound <= (high or math.inf):
        return _refused(answer, f"{gpus_text(gpus)} would be against what was measured, as {why}")
    raw = answer.gpus_raw
    moved = replace(
        answer,
        gpus=bound,
        gpus_raw=raw if raw is None else (max(raw, bound - 1.0) if few else min(raw, float(bound))),
        warnings=(f"by itself the method says {gpus_text(gpus)}, but {why}", *answer.warnings),
    )
    return _narrowed(moved, allowed)


def _narrowed(answer: Estimate, allowed: _Allowed) -> Estimate:
    """The answer, its interval without the counts that are not allowed; an open end stays open."""
    low, high = answer.gpus_low, answer.gpus_high
    return replace(
        answer,
        gpus_low=None if low is None else max(low, allowed.low),
        gpus_high=None if high is None else int(min(high, allowed.high)),
    )


def _capacity(answer: Estimate, found: Sequence[Bracket]) -> Estimate:
    """The answer with a capacity that no measured level contradicts."""
    at = answer.capacity_concurrency
    bracket = next((each for each in found if each.gpus == answer.tested_gpus), None)
    if at is None or bracket is None or bracket.kept <= at < bracket.missed:
        return answer
    few = at < bracket.kept
    seen = f"{bracket.kept if few else bracket.missed:g} in flight surely {'meet' if few else 'miss'} the SLO"
    if answer.gpus_low is None and answer.gpus_high is None:
        text = f"a capacity of {at:.4g} in flight would be against what was measured, as {seen}"
        return _refused(answer, text)
    # Requests in flight are whole: below a load that is missed the next is one less.
    return replace(
        answer,
        capacity_concurrency=bracket.kept if few else max(bracket.kept, bracket.missed - 1),
        warnings=(f"by itself the method says that {at:.4g} in flight are carried, but {seen}", *answer.warnings),
    )


def _enough(answer: Estimate, question: Question) -> Estimate:
    """The answer, or the tested GPUs where they carry the users by its own capacity."""
    at, tested = answer.capacity_concurrency, whole_gpus(answer.tested_gpus, question.gpus_per_replica)
    routed = question.router in AS_TESTED or answer.tested_gpus <= question.gpus_per_replica
    if at is None or answer.gpus is None or answer.gpus <= tested or question.users > at or not routed:
        return answer
    high = None if answer.gpus_high is None else max(answer.gpus_high, tested)
    low = None if answer.gpus_low is None else min(answer.gpus_low, tested)
    raw = None if answer.gpus_raw is None else min(answer.gpus_raw, float(tested))
    return replace(answer, gpus=tested, gpus_raw=raw, gpus_low=low, gpus_high=high)


def _refused(answer: Estimate, reason: str) -> Estimate:
    said = {"gpus": answer.gpus, "gpus_raw": answer.gpus_raw, "capacity_concurrency": answer.capacity_concurrency}
    return replace(
        answer,
        gpus=None,
        gpus_raw=None,
        gpus_low=None,
        gpus_high=None,
        capacity_concurrency=None,
        capacity_rate=None,
        outside_tested_range=False,
        reason=reason,
        details={**answer.details, "refusal": "measured", "refused": said},
    )


def _s(gpus: int) -> str:
    return "s" if gpus == 1 else ""


def _es(gpus: int) -> str:
    return "es" if gpus == 1 else ""
