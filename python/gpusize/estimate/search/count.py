"""Whether the count is known: the rule by which a search that is asked for users may end before its precision.

A search for users needs no capacity, it needs a count. Once two intervals of 95 %, got in different ways, are both one
number, more requests would hardly change it:

    the search's  whole(users / high) to whole(users / low), by the ends of the capacity's interval
    the answer's  that of the method which will answer (docs/reference/estimates.md), from the levels up to then

The first is cheap and comes first. Both follow from the levels alone, so a run that died ends where it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpusize.estimate.question import whole_gpus

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Question
    from gpusize.estimate.search.crossing import Crossing

__all__ = ["Count", "counts"]


@dataclass
class Count:
    """The count that a search is for.

    Args:
        question: users in flight at all times, and the SLOs.
        levels: those that were measured; may grow.
    """

    question: Question
    levels: Sequence[LevelData] = ()
    _known: dict[int, bool] = field(default_factory=dict, init=False)

    def is_one(self, found: Crossing, last: int) -> bool:
        """Whether the count is one number, by the visits up to number ``last``, which show this capacity."""
        levels = [level for level in self.levels if level.visit <= last]
        gpus = max((level.gpus or 0 for level in levels), default=0)
        if not gpus or len(counts(found, self.question, gpus)) != 1:
            return False
        if last not in self._known:
            self._known[last] = self._answered(levels)
        return self._known[last]

    def _answered(self, levels: Sequence[LevelData]) -> bool:
        """Whether the answer's interval is one number, and nobody had to stand in for the method that gives it."""
        from gpusize.estimate.methods import estimate

        [answer] = estimate(levels, self.question)
        one = answer.gpus_low == answer.gpus == answer.gpus_high
        return answer.answered and answer.fallback is None and one


def counts(found: Crossing, question: Question, gpus: int) -> range:
    """The counts that the interval of a capacity leaves open; empty where an end of it is.

    Args:
        found: the capacity of the measured GPUs.
        question: users in flight at all times.
        gpus: how many were measured.
    """
    if not found.capacity or found.high is None or found.low <= 0:
        return range(0)
    per = question.gpus_per_replica
    low, high = (whole_gpus(question.users / end * gpus, per) for end in (found.high, found.low))
    return range(low, high + 1, per)
