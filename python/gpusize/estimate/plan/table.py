"""The rows of a plan: every combination of time, bound and load, asked one by one; then what follows from the counts.

Counts come from simulations, and a larger load may by chance seem to need one GPU less. More load, or a tighter bound,
never needs fewer GPUs, so each row is raised to the largest count among the rows that are no harder than it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.base.errors import UsageError
from gpusize.estimate.plan.price import cost
from gpusize.estimate.plan.ranges import Bound, evenly
from gpusize.estimate.plan.types import Failed, Row, Scenario, WhatIf
from gpusize.estimate.question import as_share
from gpusize.estimate.scaling import EXTRAPOLATED

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.methods import Estimate, Question
    from gpusize.estimate.plan.ask import Answers
    from gpusize.estimate.plan.growth import Step

__all__ = ["Progress", "default_users", "plan"]

Progress = Callable[[int, int], None]
"""Called with how many rows are answered, and of how many."""
LEAST: Final = 0.5
MOST: Final = 16.0
"""Times the measured capacity between which users are varied where nobody says."""
PROBE: Final = 4.0
"""Times the largest measured load at which the capacity is asked for."""


class _Cell(NamedTuple):
    question: Question
    step: Step
    bound: Bound


def plan(answers: Answers, question: Question, scenario: Scenario, progress: Progress | None = None) -> WhatIf:
    """Ask for every row.

    Args:
        answers: who answers.
        question: the loop, the SLOs and the reserve; its load counts where the scenario has none.
        scenario: what is varied.
        progress: called after each row.

    Raises:
        UsageError: bounds that do not fit the SLOs, or tokens/s where the answers' tokens are not known.
    """
    cells = _cells(answers, question, scenario)
    found = []
    for number, cell in enumerate(cells):
        found.append(answers.ask(cell.question))
        if progress is not None:
            progress(number + 1, len(cells))
    rows = [_row(cell, answer) for cell, answer in zip(cells, found, strict=True)]
    needed = [_needed(answer) for answer in found]
    raised = [_raised(k, rows, needed) for k in range(len(rows))]
    tokens = answers.tokens
    finished = [
        _finished(row, need, cell, answers, scenario, tokens) for (row, need), cell in zip(raised, cells, strict=True)
    ]
    first = next((each for each in found if each.answered), found[0])
    return WhatIf(
        tuple(finished),
        # With several bounds there are as many.
        _capacity(found) if len(scenario.bounds) < 2 else None,
        first.tested_gpus or None,
        scenario.failed,
        scenario.price,
        tokens,
        (*_unlike(first.assumptions), *_reserve(question)),
        _warnings(found),
        _worth_measuring(found),
        first.next_counts,
        first.measured_pause,
    )


def _capacity(found: Sequence[Estimate]) -> float | None:
    """What the tested GPUs carry; of rates by the answer with fewest GPUs: more of them share a queue and carry more.

    Of several such answers that for the largest load, from which it lies nearest.
    """
    answered = [each for each in found if each.answered]
    if not answered:
        return None
    nearest = min(answered, key=lambda each: (each.gpus or 0, -(each.rate or 0.0)))
    return nearest.capacity_concurrency if nearest.rate is None else nearest.capacity_rate


def _warnings(found: Sequence[Estimate]) -> tuple[str, ...]:
    """Each once; of how far counts lie beyond what was measured the furthest."""
    far = [text for each in found for text in each.warnings if text.startswith(EXTRAPOLATED)]
    furthest = max(found, key=lambda each: each.gpus or 0).warnings
    texts = dict.fromkeys(text for each in found for text in each.warnings if text not in far)
    return (*texts, *(text for text in furthest if text in far))


def _worth_measuring(found: Sequence[Estimate]) -> tuple[int, ...]:
    """Levels that may give the rows without an answer one; where all have one, those that make the first surer."""
    missing = {level for each in found if not each.answered for level in each.next_levels}
    return tuple(sorted(missing)) if missing else next((each.next_levels for each in found if each.answered), ())


def default_users(answers: Answers, question: Question) -> list[float]:
    """Users from half to 16 times what the tested GPUs carry; without that only those that were asked for or measured.

    The capacity is that of the question, with its pauses and its router.
    """
    top = answers.most_users
    users = math.ceil(PROBE * top)
    found = answers.ask(replace(question, users=users, rate=None, token_rate=None, headroom=0.0, spare=0))
    if not found.gpus_raw:
        return [question.users if question.users > 1 else float(top)]
    capacity = users * found.tested_gpus / found.gpus_raw
    low, high = max(1.0, LEAST * capacity), max(2.0, MOST * capacity)
    return sorted({float(round(each)) for each in evenly(float(f"{low:.2g}"), float(f"{high:.2g}"))})


def _cells(answers: Answers, question: Question, scenario: Scenario) -> list[_Cell]:
    varied = bool(scenario.bounds) or len(scenario.growth) > 1
    loads: Sequence[float] = scenario.loads
    if not loads and question.rate is not None:
        loads = [question.token_rate or question.rate]
        scenario = replace(scenario, token_rates=loads) if question.token_rate else replace(scenario, rates=loads)
    elif not loads:
        loads = [question.users] if varied and question.users > 1 else default_users(answers, question)
    bounds = scenario.bounds or (Bound(),)
    slos = {bound: _bounded(question.slos, bound) for bound in bounds}
    each = answers.tokens if scenario.token_rates else None
    if scenario.token_rates and each is None:
        what = "no measured answer tells its tokens, so tokens/s cannot be turned into requests/s"
        raise UsageError(what, "token_rate", "ask for requests per second instead, as --rate 40/s")
    return [
        _Cell(_loaded(replace(question, slos=slos[bound]), load * step.factor, scenario, each), step, bound)
        for step in scenario.growth
        for bound in bounds
        for load in loads
    ]


def _loaded(question: Question, load: float, scenario: Scenario, tokens: float | None) -> Question:
    """The question with a load: users are whole, after growth too."""
    if scenario.rates:
        return replace(question, users=0, rate=load, token_rate=None)
    if scenario.token_rates and tokens:
        return replace(question, users=0, rate=load / tokens, token_rate=load)
    return replace(question, users=math.ceil(load - 1e-9), rate=None, token_rate=None)


def _bounded(slos: Sequence[Slo], bound: Bound) -> tuple[Slo, ...]:
    """The SLOs with another bound: those on times, as multiples all of them, as a time the one that there is."""
    timed = [slo for slo in slos if slo.bound_s is not None]
    if bound.seconds is None and bound.factor is None:
        return tuple(slos)
    if not timed:
        raise UsageError("no SLO has a bound on a time that could be varied", "slo_bounds", "give one with --slo")
    if bound.seconds is not None and len(timed) > 1:
        raise UsageError(
            f"a time could be the bound of any of the {len(timed)} SLOs", "slo_bounds", "give multiples, as 0.5x,1x,2x"
        )

    def value(slo: Slo) -> float:
        return bound.seconds if bound.seconds is not None else float(f"{slo.bound * (bound.factor or 1.0):.9g}")

    return tuple(replace(slo, bound=value(slo)) if slo.bound_s is not None else slo for slo in slos)


def _row(cell: _Cell, answer: Estimate) -> Row:
    question, bound = cell.question, cell.bound
    return Row(
        step=cell.step.name,
        growth=cell.step.factor,
        users=question.users if question.rate is None else None,
        rate=question.rate,
        token_rate=question.token_rate,
        bound_s=bound.seconds,
        bound_factor=bound.factor,
        slos=tuple(str(slo) for slo in question.slos),
        method=answer.method,
        gpus=answer.gpus,
        gpus_low=answer.gpus_low,
        gpus_high=answer.gpus_high,
        gpus_raw=answer.gpus_raw,
        slo=answer.slo,
        reason=answer.reason,
    )


def _needed(answer: Estimate) -> int | None:
    return answer.details.get("gpus_without_reserve", answer.gpus)


def _raised(k: int, rows: Sequence[Row], needed: Sequence[int | None]) -> tuple[Row, int | None]:
    """Row k, raised to the largest of those that are no harder, and the GPUs that carry its load."""
    row, need = rows[k], needed[k]
    if row.gpus is None or need is None:
        return row, need
    easier = [j for j, other in enumerate(rows) if other.gpus is not None and _no_harder(other, row)]

    def most(name: str) -> int | None:
        known = [value for j in easier if (value := getattr(rows[j], name)) is not None]
        return None if getattr(row, name) is None else max(known)

    gpus = most("gpus") or row.gpus
    up = max(needed[j] or 0 for j in easier)
    raw = max(rows[j].gpus_raw or 0.0 for j in easier)
    low, high = most("gpus_low"), most("gpus_high")
    same = gpus == row.gpus
    return replace(row, gpus=gpus, gpus_low=low, gpus_high=high, gpus_raw=raw, raised=not same), max(up, need)


def _no_harder(other: Row, row: Row) -> bool:
    """Whether one row asks for no more than another; a row is no harder than itself."""
    return other.load <= row.load and (other.bound or 0.0) >= (row.bound or 0.0)


def _finished(
    row: Row, need: int | None, cell: _Cell, answers: Answers, scenario: Scenario, tokens: float | None
) -> Row:
    """The row with what its GPUs serve and cost, and what becomes of it when replicas fail."""
    if row.gpus is None or need is None or row.method != "twin":
        return row if row.gpus is None else _priced(row, None, scenario, tokens)
    failed = None
    if scenario.failed:
        gone = scenario.failed * cell.question.gpus_per_replica
        failed = _failed(answers, cell.question, row.gpus, need, gone)
    served = None
    if scenario.price is not None:
        performance = answers.performance(cell.question, row.gpus)
        served = None if performance is None else performance.per_s
    return _priced(replace(row, failed=failed), served, scenario, tokens)


def _failed(answers: Answers, question: Question, gpus: int, need: int, gone: int) -> Failed | None:
    """What so many GPUs do without those that are gone, and how many it takes to stand that."""
    after = answers.performance(question, max(1, gpus - gone))
    if after is None:
        return None
    enough = max(gpus, need + gone)
    if gone >= gpus:
        return Failed(0.0, after.targets[0], kept=False, gpus=enough)
    return Failed(as_share(after.shares[after.worst]), after.targets[after.worst], after.kept, enough)


def _priced(row: Row, served: float | None, scenario: Scenario, tokens: float | None) -> Row:
    per_s = row.rate if served is None else served
    if scenario.price is None or row.gpus is None:
        return replace(row, per_s=per_s)
    return replace(row, per_s=per_s, cost=cost(scenario.price, row.gpus, per_s, tokens))


def _reserve(question: Question) -> list[str]:
    spare = f"{question.spare} spare replica{'' if question.spare == 1 else 's'}"
    parts = [f"{question.headroom:.4g} of them as headroom"] if question.headroom else []
    parts += [spare] if question.spare else []
    return [f"counts hold, on top of the GPUs that carry the load, {' and '.join(parts)}"] if parts else []


def _unlike(assumptions: Sequence[str]) -> tuple[str, ...]:
    """Without those that hold for the first row only: what carries its load, and its tokens."""
    return tuple(text for text in assumptions if " carry the load; " not in text and "output tokens/s are" not in text)
