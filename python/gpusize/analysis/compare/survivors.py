"""What failures may hide: times are of the requests that were answered, and slow ones may be those that failed.

A system that fails all of its slow requests has short times. So a change of a time is held against the other extreme as
well, in which the requests that one side failed beyond those of the other had been its slowest: a verdict has to hold
at both ends. Failures that both sides have in equal shares are left out on both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusize.analysis.compare.differences import SHARE_MARGIN
from gpusize.analysis.compare.figures import figure

if TYPE_CHECKING:
    from gpusize.analysis.compare.figures import Figure
    from gpusize.analysis.level import LevelData

__all__ = ["hidden", "mean_share"]

_CHANCE = 2.0
"""Standard errors that shares may differ by."""


def hidden(of: Figure, a: Sequence[LevelData], b: Sequence[LevelData], *, margin: float) -> float:
    """How much further than measured a figure may have changed from a to b, by the failures of one side.

    Of a percentile it is known: with so many more requests above all others it is a higher percentile of those that
    were answered. A mean may be anything, unless the shares differ by no more than what matters of shares, or by no
    more than chance has it.

    Args:
        of: the figure.
        a, b: the levels of each side.
        margin: of relative differences; that of shares is a tenth of it.

    Returns:
        The logarithm of the ratio of both extremes: above 0 where b may be higher, below 0 where a may, infinite where
        nothing bounds it, 0 where no failures are in the way.
    """
    if of.metric is None:
        return 0.0
    shares = mean_share(a), mean_share(b)
    more = shares[1] - shares[0]
    if math.isnan(more) or more == 0:
        return 0.0
    failing = b if more > 0 else a
    size = _percentile_moves(of, failing, abs(more))
    if size is None:
        least = max(SHARE_MARGIN * margin, _CHANCE * math.hypot(_error(a), _error(b)))
        size = math.inf if abs(more) > least else 0.0
    # The slowest requests have the longest times, and the lowest rates.
    return size if (more > 0) == (of.better == "less") else -size


def _error(levels: Sequence[LevelData]) -> float:
    """The standard error of the mean share, as far as runs say it."""
    errors = [figure("error share").measure(level).error for level in levels]
    return math.sqrt(sum(each**2 for each in errors if not math.isnan(each))) / len(errors)


def mean_share(levels: Sequence[LevelData]) -> float:
    """The mean share of failures over levels; NaN where none says it."""
    known = [share for level in levels if not math.isnan(share := figure("error share").measure(level).value)]
    return sum(known) / len(known) if known else math.nan


def _percentile_moves(of: Figure, levels: Sequence[LevelData], more: float) -> float | None:
    """The mean over levels of what so many more slowest requests make of a percentile's logarithm; None of others."""
    if of.prob is None or of.metric is None or of.better != "less":
        return None
    moves = []
    for level in levels:
        failed = figure("error share").measure(level).value
        prob = of.prob * (1 + more / (1 - failed)) if failed < 1 else math.inf
        if prob >= 1:
            return math.inf
        before, after = level.quantile(of.metric, of.prob), level.quantile(of.metric, prob)
        if not before or not after:
            return None
        moves.append(math.log(after / before))
    return max(0.0, sum(moves) / len(moves)) if moves else None
