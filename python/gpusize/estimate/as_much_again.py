"""What as much measurement again would leave open of an answer whose levels a search chose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusize.base.units import format_duration
from gpusize.estimate.question import whole_gpus
from gpusize.estimate.twin.foretold import foretold_interval

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Estimate, Question

__all__ = ["Spent", "again_text", "counts_again", "spent_on"]

NO_LOOKS = ("", "grow", "check")
"""Levels of a search that are not spent at the capacity; more of its budget would be."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a search has sent.

    Attributes:
        requests: how many, warm-up included.
        length_s: seconds that its levels took.
        times: as many times as many requests are near the capacity, once it has sent as many again.
    """

    requests: int
    length_s: float
    times: float


def spent_on(levels: Iterable[LevelData]) -> Spent | None:
    """What the searches among the levels have sent; None where no level was searched, or none is at a capacity."""
    requests, near, length_s = 0, 0, 0.0
    for level in levels:
        search, meta = level.meta.get("search") or {}, level.meta
        if not search:
            continue
        due = int(meta.get("due") or 0)
        requests += due
        near += due if str(search.get("of") or search.get("why") or "") not in NO_LOOKS else 0
        if meta.get("start_ns") is not None and meta.get("end_ns") is not None:
            length_s += (int(meta["end_ns"]) - int(meta["start_ns"])) / 1e9
    return Spent(requests, length_s, 1 + requests / near) if near else None


def counts_again(answer: Estimate, question: Question, spent: Spent) -> tuple[int, int] | None:
    """Fewest and most GPUs that are expected to agree with as much again; None where that cannot be foretold.

    ``answer`` is without headroom and spare replicas.
    """
    low, high, raw = answer.gpus_low, answer.gpus_high, answer.gpus_raw
    if answer.gpus is None or low is None or high is None or not raw:
        return None
    then = foretold_interval(answer.details, raw, spent.times)
    if then is None or not then[0] <= raw <= then[1]:
        return None
    # The answer may have been held against bounds of its own: more requests take nothing of these back.
    least, most = (whole_gpus(end, question.gpus_per_replica) for end in then)
    return min(max(low, least), answer.gpus), max(min(high, most), answer.gpus)


def again_text(answer: Estimate, question: Question, spent: Spent) -> str:
    """In words, as a part of a sentence; empty where it cannot be foretold."""
    then = counts_again(answer, question, spent)
    if then is None:
        return ""
    what = f"as many again ({spent.requests:,} requests, about {format_duration(max(1, round(spent.length_s)))})"
    if then == (answer.gpus_low, answer.gpus_high):
        return f"{what} would hardly change that"
    low, high = then
    left = f"{low}" if low == high else f"{low} {'or' if high - low == question.gpus_per_replica else 'to'} {high}"
    return f"{what} would probably leave {left}"
