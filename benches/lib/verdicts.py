"""What comparisons of systems whose difference is known said, counted over repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benches.lib.stats import Interval, plain
from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.matching import Run
from gpusize.estimate.isotonic import wilson

__all__ = ["HEADER", "Outcome", "judged", "row", "share"]

PEER_SHARE, PEER_S, PEER_OF, PEER_PAIRS = 0.10, 0.1, 4, 5
"""AISimulate's gate: over 10 % and at least 100 ms in 4 of 5 pairs (reference: its EXPERIMENT_RESULTS.md)."""
HEADER = (
    *("b is", "repeats", "any worse", "any better", "intervals that hold the truth", "equivalent figures"),
    "AISimulate's gate: slower",
)


@dataclass(frozen=True)
class Outcome:
    """What one comparison said, and what the peer's gate would have.

    Attributes:
        worse, better: whether any figure of b was called so.
        equivalent: figures of known truth that were called equivalent.
        held: intervals that hold the truth.
        figures: figures of known truth that have an interval.
        peer: whether AISimulate's gate calls b slower.
    """

    worse: bool
    better: bool
    equivalent: int
    held: int
    figures: int
    peer: bool

    @property
    def different(self) -> bool:
        """Whether b was called different."""
        return self.worse or self.better


def judged(comparison: Comparison, slower: float, a: Sequence[Run], b: Sequence[Run]) -> Outcome:
    """Hold a comparison against the truth.

    Args:
        comparison: of a and b.
        slower: by how much b takes longer: 0.05 is 5 %.
        a, b: the runs, in the order in which they were made.
    """
    truths = {"s": slower, "requests/s": 1 / (1 + slower) - 1, "tokens/s": 1 / (1 + slower) - 1}
    verdicts = [each.verdict for each in comparison.differences]
    known = [each for each in comparison.differences if each.unit in truths and not math.isnan(each.low)]
    held = sum(each.low <= truths[each.unit] <= each.high for each in known)
    same = sum(each.verdict == "equivalent" for each in known)
    return Outcome("worse" in verdicts, "better" in verdicts, same, held, len(known), _peer(a, b))


def _peer(a: Sequence[Run], b: Sequence[Run]) -> bool:
    """Whether AISimulate's gate calls b slower at any load, by the p95 of the first pairs."""
    for place in range(len(a[0].levels)):
        slower = 0
        for before, after in list(zip(a, b, strict=True))[:PEER_PAIRS]:
            first, second = (run.levels[place].quantile("runtime", 0.95) or math.nan for run in (before, after))
            slower += second > (1 + PEER_SHARE) * first and second - first >= PEER_S
        if slower >= PEER_OF:
            return True
    return False


def row(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    """A line of the table with ``HEADER``: per cent of repeats, but for the figures called equivalent in one."""
    n = len(outcomes)
    return [
        name,
        str(n),
        plain(100 * sum(each.worse for each in outcomes) / n),
        plain(100 * sum(each.better for each in outcomes) / n),
        plain(100 * sum(each.held for each in outcomes) / max(1, sum(each.figures for each in outcomes))),
        plain(sum(each.equivalent for each in outcomes) / n),
        plain(100 * sum(each.peer for each in outcomes) / n),
    ]


def share(kept: Sequence[bool]) -> Interval:
    """The share of repeats, with Wilson's 95 % interval."""
    low, high = wilson(sum(kept) / len(kept), len(kept))
    return Interval(sum(kept) / len(kept), low, high)
