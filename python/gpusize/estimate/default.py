"""The default: the twin's answer, or that of the method which stands in where the twin has none to offer.

    1  believed     levels that Little's law or the generator's saturation speaks against are left out
    2  too few      of fewer than two loads nothing follows
    3  twin         its number, or a refusal that is about the question and not about the data
    4  stand-in     scaling for rates, several GPU counts and figures without requests, else crossing; it says so

No line is ever stretched beyond what was measured: where no method has a number, the default has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import think_s
from gpusize.analysis.failed_requests import misses_by_failures
from gpusize.analysis.throughput import rates_of, requests_each
from gpusize.estimate.level_quality import UNBELIEVED, LevelFindings, advice, left_text, load_text, together
from gpusize.estimate.question import Estimate, Question, gpus_text
from gpusize.estimate.select_levels import cannot, every_count, untold
from gpusize.estimate.unmissed import unmissed
from gpusize.estimate.users_in_flight import NO_PAUSE, UsersInFlight

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["DEFAULT", "FINAL", "believed", "default_answer", "too_few", "unlike"]

DEFAULT: Final = "twin"
FINAL: Final = ("single", "chance", "flat", "never", "failures", "reach")
"""Refusals of the twin (``details["refusal"]``) that are about the question: no other method is asked after them."""
LEAST_LOADS: Final = 2
UNKNOWN_ROUTER: Final = (
    "the router is as in the test: behind one that picks replicas {router} it takes more than this, and this method "
    "cannot say how many"
)
NO_SHARED_QUEUE: Final = (
    "each replica has a queue of its own: with one for all it may take fewer, or more at a low percentile"
)
ARRIVALS: Final = "requests come as in the test: in another loop, or less evenly, it may take more"


def default_answer(
    pooled: Sequence[LevelData],
    question: Question,
    findings: LevelFindings,
    ask: Callable[[str, Sequence[LevelData]], Estimate],
) -> Estimate:
    """The default's answer.

    Args:
        pooled: all levels.
        question: what is asked.
        findings: what the checks say of them.
        ask: a method's answer, by its name, from levels.
    """
    chosen, warnings = every_count(pooled, question)
    reason = cannot(chosen, question)
    no_data = untold(chosen, question) if reason is None else None
    if reason is not None or no_data is not None:
        # No further load tells what requests do not have.
        follow = () if reason is None else _next(chosen)
        return replace(_base(chosen, question), reason=reason or no_data, warnings=tuple(warnings), next_levels=follow)
    kept, left, said = believed(chosen, findings)
    rest = [level for level in pooled if level not in left]
    usable = _usable(kept)
    if _loads(usable) < LEAST_LOADS:
        # One request in flight that misses an SLO already needs no second load.
        alone = ask(DEFAULT, rest) if any(lv.concurrency == 1 for lv in usable) else None
        if alone is not None and alone.details.get("refusal") == "single":
            return alone
        return _too_few(chosen, usable, left, question, findings)
    answer = _first_answer(rest, usable, question, ask)
    beyond = _beyond(left, usable, question) if answer.details.get("refusal") == "flat" else []
    if answer.details.get("refusal") == "flat":
        line = ask("slope", usable) if question.rate is None and not question.together else None
        tested = [level for level in usable if level.gpus == answer.tested_gpus]
        missed = _missed(tested, question)
        top = max((level.concurrency or 0 for level in tested), default=0)
        at_top = [level for level in missed if level.concurrency == top]
        if len(at_top) < len(missed) and not beyond:
            return replace(
                _base(chosen, question),
                reason=_at_odds(missed, tested),
                next_levels=_again(missed, question),
                warnings=tuple(dict.fromkeys((*said, *answer.warnings))),
            )
        if at_top and len(at_top) == len(missed):
            # The twin's curve has no edge below it: it misses by as little as chance allows, or was broken off.
            why = f"{together(at_top)} misses an SLO, and no smaller load does, so that the edge is not seen"
            other = _instead(usable, question, rest, ask, why)
            if other is not None:
                return replace(other, warnings=tuple(dict.fromkeys((*said, *other.warnings))))
            answer = replace(answer, reason=why)
            tested = [level for level in tested if level.concurrency != top]
        answer = unmissed(answer, tested, question, line, measure=not beyond)
        if question.rate is not None and not answer.answered:
            answer = _at_least(answer, ask("scaling", usable))
    follow = answer.next_levels
    if not (answer.answered or follow or answer.next_counts or _fails(usable, question)):
        follow = _beside(usable, question)
    if beyond:
        why = UNBELIEVED[findings.unbelieved(beyond[0]) or ""]
        todo = advice(beyond, findings) or "measure that again"
        reason = f"{answer.reason}. It was missed at {together(beyond)}, but there {why}: {todo}"
        answer, follow = replace(answer, reason=reason), _again(left, question)
    elif left and not answer.answered:
        answer = replace(answer, reason=f"{answer.reason}; {left_text(left, findings)}")
    return replace(answer, warnings=tuple(dict.fromkeys((*said, *answer.warnings))), next_levels=follow)


def _at_least(answer: Estimate, scaling: Estimate) -> Estimate:
    """The refusal with what is needed at least, where more users bring no more throughput although all SLOs are kept.

    At that rate requests that come when they like would wait without end, so it is a bound and no answer.
    """
    counts = scaling.details.get("counts")
    if not scaling.answered or scaling.gpus_low is None or not counts:
        return answer
    needed = f"at least {gpus_text(scaling.gpus_low)} {'is' if scaling.gpus_low == 1 else 'are'} needed"
    text = f"Throughput has levelled off at {counts[-1]['capacity']:.4g} requests/s, so {needed}"
    return replace(answer, gpus_low=scaling.gpus_low, reason=f"{answer.reason}. {text}")


def believed(
    chosen: Sequence[LevelData], findings: LevelFindings
) -> tuple[list[LevelData], list[LevelData], list[str]]:
    """The levels that an answer may rest on, those that it may not, and what is said of these."""
    left = [level for level in chosen if findings.unbelieved(level) is not None]
    said = [f"{load_text(lv)} is left out, as {UNBELIEVED[findings.unbelieved(lv) or '']}" for lv in left]
    return [level for level in chosen if level not in left], left, said


def too_few(chosen: Sequence[LevelData], question: Question, findings: LevelFindings) -> str | None:
    """Why nothing follows from levels of which too many are left out; None where enough are not."""
    kept, left, _ = believed(chosen, findings)
    usable = _usable(kept)
    single = any(lv.concurrency == 1 and lv.met(slo) is False for lv in usable for slo in question.slos)
    if not left or single or _loads(usable) >= LEAST_LOADS:
        return None
    return _too_few(chosen, usable, left, question, findings).reason


def _usable(levels: Sequence[LevelData]) -> list[LevelData]:
    return [level for level in levels if level.state in ("done", "interrupted")]


def _loads(levels: Sequence[LevelData]) -> int:
    return len({(lv.gpus, lv.concurrency, lv.rate) for lv in levels})


def _beyond(left: Sequence[LevelData], usable: Sequence[LevelData], question: Question) -> list[LevelData]:
    """Of the levels that are left out, those above all others that miss an SLO, as far as they show it."""
    top = max((lv.concurrency for lv in usable if lv.concurrency), default=0)
    above = [lv for lv in left if (lv.concurrency or 0) > top]
    return _missed(above, question)


def _fails(levels: Sequence[LevelData], question: Question) -> bool:
    """Whether each level misses an SLO through failures alone, so that no other load would tell more."""
    return any(all(misses_by_failures(level, slo) for level in levels) for slo in question.slos)


def _missed(levels: Sequence[LevelData], question: Question) -> list[LevelData]:
    """Those that miss an SLO."""
    found = [level for level in levels if any(level.met(slo) is False for slo in question.slos)]
    return sorted(found, key=lambda level: level.concurrency or 0)


def _at_odds(missed: Sequence[LevelData], levels: Sequence[LevelData]) -> str:
    """That loads miss an SLO which larger ones meet, so that they did not measure the same."""
    top = max(levels, key=lambda level: level.concurrency or 0)
    return (
        f"the levels contradict each other: {together(missed)} missed an SLO that {load_text(top)} met. Measure them "
        "again, with the same requests each, and for longer"
    )


def _first_answer(
    believed: Sequence[LevelData],
    usable: Sequence[LevelData],
    question: Question,
    ask: Callable[[str, Sequence[LevelData]], Estimate],
) -> Estimate:
    first = ask(DEFAULT, believed)
    final = first.details.get("refusal") in FINAL
    # The twin looks at complete closed loops only: others may have seen what it has not.
    unseen = any(lv.state != "done" or lv.concurrency is None for lv in usable)
    # What twelve requests do not show, they show no other method either.
    chance = first.details.get("refusal") == "chance" and question.rate is None
    if first.answered or chance or (final and not unseen):
        return first
    other = _instead(usable, question, believed, ask, first.reason or "", refused=not final)
    return first if other is None else other


def _instead(
    usable: Sequence[LevelData],
    question: Question,
    believed: Sequence[LevelData],
    ask: Callable[[str, Sequence[LevelData]], Estimate],
    why: str,
    *,
    refused: bool = False,
) -> Estimate | None:
    """The stand-in's answer where the default gives none for a reason; None without one, its refusal if asked for."""
    other = _stand_in(usable, question)
    if other is None:
        return None
    answer = ask(other, believed)
    if not answer.answered and not refused:
        return None
    then = f"This is the {other} method's answer" if answer.answered else f"Nor does the {other} method"
    return replace(
        answer,
        fallback=f"the {DEFAULT} method gives no number: {why}. {then}",
        assumptions=(*answer.assumptions, *unlike(usable, question, answer)) if answer.answered else answer.assumptions,
    )


def _stand_in(usable: Sequence[LevelData], question: Question) -> str | None:
    """Who answers in the twin's place; None where nobody else judges the SLOs as the question does."""
    if question.together and len(question.slos) > 1:
        return None
    several = len({lv.gpus for lv in usable}) > 1
    figures = all(lv.imported for lv in usable) or any(slo.kind == "mean" for slo in question.slos)
    return "scaling" if question.rate is not None or several or figures else "crossing"


def unlike(usable: Sequence[LevelData], question: Question, answer: Estimate) -> list[str]:
    """What of the question the stand-in does not know of."""
    texts = []
    if question.router == "shared":
        texts.append(NO_SHARED_QUEUE)
    elif question.router != "least_loaded" and not ("at_random" in answer.details and question.router == "random"):
        texts.append(UNKNOWN_ROUTER.format(router="at random" if question.router == "random" else "in turn"))
    longer = question.rate is None and question.think_s > max((_pause(lv) for lv in usable), default=0.0)
    if longer and not UsersInFlight.of(usable, question).rates:
        texts.append(NO_PAUSE)
    if question.rate is not None and question.slos and "at_random" not in answer.details:
        texts.append(ARRIVALS)
    return texts


def _pause(level: LevelData) -> float:
    found = think_s(level.setting)
    return found[0] if found is not None else 0.0


def _base(levels: Sequence[LevelData], question: Question) -> Estimate:
    slo = " and ".join(str(slo) for slo in question.slos) or None
    gpus = min((lv.gpus for lv in levels), default=0)
    return Estimate(DEFAULT, gpus, question.users or None, slo, rate=question.rate, details={"refusal": "data"})


def _too_few(
    chosen: Sequence[LevelData],
    usable: Sequence[LevelData],
    left: Sequence[LevelData],
    question: Question,
    findings: LevelFindings,
) -> Estimate:
    """Fewer than two loads can be believed: why, and which two are worth measuring."""
    loads = "no level" if not usable else f"only {together(usable[:1])}"
    reason = f"{loads} can be used, and it takes two loads or more to see how times grow"
    reason += f"; {left_text(left, findings)}" if left else ""
    unfinished = [lv for lv in chosen if lv.state not in ("done", "interrupted")]
    if unfinished:
        reason += f"; {together(unfinished)} ended early"
    if usable and not any(lv.concurrency for lv in usable):
        unit = "conversations/s" if usable[0].by_session else "requests/s"
        reason += f"; measure {' and '.join(f'{rate:.3g}' for rate in _rates(usable[0], question))} {unit}"
    follow = _again(left, question) if len(usable) < LEAST_LOADS - 1 and left else _beside(usable, question)
    return replace(_base(chosen, question), reason=reason, warnings=tuple(findings.of(chosen)), next_levels=follow)


def _again(left: Sequence[LevelData], question: Question) -> tuple[int, ...]:
    """The flagged levels around the capacity, as far as they show it: again, once nothing speaks against them."""
    at = sorted({lv.concurrency for lv in left if lv.concurrency})
    missed = [c for lv in left if (c := lv.concurrency) and any(lv.met(slo) is False for slo in question.slos)]
    over = min(missed, default=None)
    below = [c for c in at if over is None or c < over]
    if over is None:
        return tuple(at[-2:])
    return (below[-1], over) if below else tuple(at[:2])


def _beside(usable: Sequence[LevelData], question: Question) -> tuple[int, ...]:
    """Two loads beside those that there are: below them where the smallest misses an SLO, else above."""
    at = sorted({lv.concurrency for lv in usable if lv.concurrency})
    if not at:
        return _next(usable)
    if any(lv.met(slo) is False for lv in usable for slo in question.slos if lv.concurrency == at[0]):
        return tuple(users for users in (max(1, at[0] // 4), max(2, at[0] // 2)) if users < at[0])
    return (2 * at[-1], 4 * at[-1])


def _rates(level: LevelData, question: Question) -> tuple[float, float]:
    """Two rates beside the only one: below it where it was not kept up with or misses an SLO, else above.

    In the unit of the level's own: of conversations how many begin.
    """
    from gpusize.estimate.slo_limit import slo_limit

    rate = level.rate or 0.0
    if all(slo_limit([level], slo).kind != "below" for slo in (*question.slos, None)):
        return 2 * rate, 4 * rate
    top = min(rate / 2, (rates_of(level).achieved or rate) / requests_each(level))
    return top / 2, top


def _next(levels: Sequence[LevelData]) -> tuple[int, ...]:
    """Two loads to begin with, where there are none at all."""
    return () if levels else (1, 8)
