"""What would change an answer: loads at which it is another one, and what was not measured."""

from __future__ import annotations

import math

from gpusize.estimate.as_much_again import Spent, again_text
from gpusize.estimate.laws.laws import Law
from gpusize.estimate.question import SCALING, Estimate, Question, gpus_bought, gpus_text

__all__ = ["what_would_change"]

ELSE = "with other requests, another model, server version or router, measure again"


def what_would_change(answer: Estimate, question: Question, spent: Spent | None = None) -> tuple[str, ...]:
    """In sentences, from the most concrete to the most general; empty without an answer.

    ``answer`` is without headroom, spare replicas and whole hosts; what is said of counts is said with them. ``spent``
    is what a search for the capacity has sent, where one chose the levels.
    """
    if answer.gpus is None:
        return ()
    more = (_load(answer, question), _interval(answer, question, spent), _counts(answer), _pauses(answer, question))
    return tuple(text for text in (*more, ELSE) if text)


def _load(answer: Estimate, question: Question) -> str:
    """The loads between which what is bought stays as it is: what it carries, and what one step less carries."""
    if answer.gpus is None or not answer.gpus_raw:
        return ""
    if _unmissed(answer):
        return "no measured load missed an SLO, so fewer may do, and these may carry more; measure larger loads"
    load = question.users if question.rate is None else question.rate
    unit = "users" if question.rate is None else "requests/s"
    host, step = question.host_gpus, question.gpus_per_replica
    if host is not None and answer.method == SCALING and answer.gpus > host:
        step = host

    def bought(gpus: int) -> int:
        return gpus_bought(gpus, question, answer.method)

    top = less = answer.gpus
    while bought(top + step) == bought(answer.gpus):
        top += step
    while less > 0 and bought(less) == bought(answer.gpus):
        less -= step
    # What was measured to be enough is known to be, and not how many fewer are, nor from where on more are needed.
    measured = answer.gpus_low is None and answer.gpus_high == answer.gpus
    carried = load * top / answer.gpus_raw if measured else _carried(answer, question, top, load)
    more = "were not measured, and may need more GPUs" if measured else "need more GPUs"
    texts = [f"more than about {_at_most(carried, question, load)} {unit} {more}"] if carried >= load else []
    fewer = _carried(answer, question, less, load) if less > 0 else 0.0
    if (
        less == answer.tested_gpus
        and less not in _simulated(answer)
        and question.rate is None
        and question.think == "none"
    ):
        # What the tested ones carry is known better than in proportion to what more of them do.
        fewer = answer.capacity_concurrency or fewer
    if less > 0 and fewer < load and not measured and (fewer >= 1 or question.rate is not None):
        enough = f"{gpus_text(bought(less))} {'is' if bought(less) == 1 else 'are'} enough"
        texts.append(f"for about {_at_most(fewer, question)} {unit} or fewer {enough}")
    return ", ".join(texts)


def _carried(answer: Estimate, question: Question, gpus: int, load: float) -> float:
    """What so many GPUs carry: as simulated, by the law where one was fitted, else in proportion."""
    simulated = _simulated(answer).get(gpus)
    if simulated is not None:
        return simulated
    law = answer.details.get("law")
    if law is None or answer.method != SCALING or question.host_gpus is not None:
        return load * gpus / (answer.gpus_raw or gpus)
    # A law is of closed loops: of requests that come at random less is carried.
    tested = answer.details.get("at_random")
    busy = 1.0 if not tested else tested["carried"] / tested["closed"]
    return busy * Law(law["name"], law["one"], law["sigma"], law["kappa"]).at(gpus / law["gpus_per_unit"])


def _simulated(answer: Estimate) -> dict[int, float]:
    """What the answer, and one replica less, were found to carry in simulations."""
    return {each["gpus"]: float(each["load"]) for each in answer.details.get("carries") or ()}


def _interval(answer: Estimate, question: Question, spent: Spent | None) -> str:
    """What the measurement leaves open, and where more of it would help."""
    low, high = answer.gpus_low, answer.gpus_high
    if low is None and high is None:
        return "chance: this method gives no interval; repeat the levels around the capacity and compare"
    if low == high or _unmissed(answer):
        return ""
    if low is None or high is None:
        left = f"the {'lower' if low is None else 'upper'} end is open"
    else:
        left = f"{low} to {gpus_text(high)} agree with what was measured"
    at = answer.capacity_concurrency
    then = "" if spent is None else again_text(answer, question, spent)
    where = "at the capacity" if at is None else f"with about {_about(at)} in flight"
    pause, users = answer.details.get("measured_pause"), answer.details.get("users_at_edge")
    if pause and users:
        where = f"with about {_about(users)} users at --think '{pause}'"
    return f"more requests {where}: {left}{f'; {then}' if then else ''}"


def _unmissed(answer: Estimate) -> bool:
    """Whether nobody has seen what is carried: as many as asked for were measured, and met every SLO."""
    return answer.gpus_low is None and answer.gpus_high == answer.gpus and answer.capacity_concurrency is None


def _counts(answer: Estimate) -> str:
    """GPUs that cost each other something, where one count alone was measured."""
    several = len(answer.details.get("counts") or ()) > 1 or (answer.method == "twin" and not answer.next_counts)
    if several or (answer.gpus or 0) <= answer.tested_gpus:
        return ""
    pair = answer.next_counts or (2 * answer.tested_gpus,)
    together = " and ".join(map(str, pair))
    return f"if GPUs slow each other down, more are needed; measure {together} GPUs together to find out"


def _pauses(answer: Estimate, question: Question) -> str:
    pause = answer.details.get("measured_pause")
    if question.rate is not None or question.think != "none":
        return ""
    if pause:
        return f"users who pause as the test's did are fewer in flight: ask again with --think '{pause}'"
    return "if users pause between an answer and the next request, fewer are needed; ask again with their pause"


def _at_most(load: float, question: Question, least: float = 0.0) -> str:
    """A load that is not rounded up, nor below ``least``; users are whole."""
    step = 10.0 ** (math.floor(math.log10(load)) - 2) if load > 0 else 1.0
    step = step if question.rate is not None else max(1.0, step)
    rounded = math.floor(load / step + 1e-9) * step
    return _about(rounded) if rounded >= least else f"{least:,.6g}"


def _about(load: float) -> str:
    """A load in three digits, never with an exponent."""
    rounded = float(f"{load:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
