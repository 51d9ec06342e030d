"""Ask a run on one replica, hold what it says against what was measured, and tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpusize
from benches.estimates.table import wilson
from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.host import CpuTimes
from benches.lib.stats import Interval, plain
from benches.real.levels import Measured, Workload
from benches.real.question import Answer, Question, Truth, draw, holds, right

__all__ = ["METHODS", "Judged", "ask", "judged", "tell"]

METHODS = ("auto", "crossing", "slope")
OWN_QUEUES = "auto, own queues"
"""The default, not told that replicas share a queue."""
EXACT, WITHIN_ONE, HOLDS = 0.85, 0.98, 0.93
"""The bounds of the suite of estimates, on the shares themselves: so few questions tell a share to a tenth."""


@dataclass(frozen=True)
class Judged:
    """A question, its truth and the answers by method."""

    question: Question
    truth: Truth
    answers: Mapping[str, Answer]


def ask(runs: Sequence[Path], question: Question, router: str = "least_loaded") -> dict[str, Answer]:
    """What each method says of a question from runs on one replica, where several are behind such a router."""
    result, asked = gpusize.open_run(runs), question.asked
    load: dict[str, Any] = {"rate": asked.amount} if asked.per_second else {"users": asked.amount}
    pause: dict[str, Any] = {"think_s": asked.think_s, "think": "exponential"} if asked.think_s else {}
    load |= {"slos": question.slo, **pause}
    found = {name: result.estimate(method=name, router=router, **load) for name in METHODS}
    if router == "shared":
        found[OWN_QUEUES] = result.estimate(**load)
    return {name: Answer(each.gpus, each.gpus_low, each.gpus_high) for name, each in found.items()}


def judged(workload: Workload, found: Measured, many: int, seed: int) -> list[Judged]:
    """Questions about what was measured, and what each method says of them."""
    drawn = draw(workload.name, found.times, found.alone, workload.metric, many, seed)
    return [Judged(question, truth, ask(found.runs, question, workload.router)) for question, truth in drawn]


def tell(ctx: Context, name: str, answered: Sequence[Judged], note: str, before: CpuTimes) -> None:
    """Tables of the questions and of the methods, and the bars of the default."""
    steal = f"steal {100 * CpuTimes.now().steal_share(before):.2f} %"
    told = list(answered[0].answers)
    header = ("load", "SLO", "replicas: share within", "truth", *told)
    ctx.report.table(f"{name}: questions", header, [_row(each) for each in answered], f"{note} Meanwhile {steal}.")
    methods = [[method, *map(_percent, _figures(answered, method))] for method in told]
    columns = ("method", "answered", "exact", "within one", "too few", "interval holds")
    ctx.report.table(f"{name}: methods, percent of {len(answered)} questions", columns, methods)
    _, exact, near, _, held = _figures(answered, "auto")
    for what, found, bound in (("exact", exact, EXACT), ("within_one", near, WITHIN_ONE), ("holds", held, HOLDS)):
        bar = Bar(f"real_{name}_{what}", found, bound, at_least=True, by_value=True)
        ctx.report.bar(bar)


def _figures(answered: Sequence[Judged], method: str) -> tuple[Interval, ...]:
    """Shares: answered, exact, within one, too few, interval holds. All but the first of the answered ones."""
    pairs = [(each.answers[method], each.truth) for each in answered]
    # That none is enough is an answer where none can be.
    told = [(said, truth) for said, truth in pairs if said.count is not None or truth.never]
    n = len(told)
    return (
        wilson(n, len(pairs)),
        wilson(sum(right(*each) for each in told), n),
        wilson(sum(_near(*each) for each in told), n),
        wilson(sum(_too_few(*each) for each in told), n),
        wilson(sum(holds(*each) for each in told), n),
    )


def _near(said: Answer, truth: Truth) -> bool:
    return right(said, truth) or (said.count is not None and abs(said.count - truth.count) <= 1)


def _too_few(said: Answer, truth: Truth) -> bool:
    return said.count is not None and said.count < truth.count


def _row(one: Judged) -> list[str]:
    question, truth = one.question, one.truth
    within = ", ".join(f"{count}: {100 * found:.1f}" for count, found in sorted(truth.attained.items()))
    count = f"over {max(truth.attained)}" if truth.beyond else str(truth.count)
    answers = [_said(each) for each in one.answers.values()]
    return [f"{question.workload}, {question.asked}", question.slo, within, count, *answers]


def _said(answer: Answer) -> str:
    if answer.count is None:
        return "none" if answer.low is None else f"none, at least {answer.low}"
    if answer.low is None and answer.high is None:
        return str(answer.count)
    return f"{answer.count} [{answer.low or 1}, {'' if answer.high is None else answer.high}]"


def _percent(share: Interval) -> str:
    return f"{plain(100 * share.value)} [{100 * share.lo:.0f}, {100 * share.hi:.0f}]"
