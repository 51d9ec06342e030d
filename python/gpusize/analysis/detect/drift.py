"""Does a level's window drift: do times rise or fall from its start to its end?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gpusize.analysis.detect.blocks import blocks_of, theil_sen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["EFFECT", "Drift", "drift"]

EFFECT: Final = 0.1
"""Change over the window, relative to the median, from which it matters: a tenth of what is reported."""
BLOCKS: Final = 16
LEAST_BLOCKS: Final = 8
LEAST_IN_BLOCK: Final = 5


class Drift(NamedTuple):
    """Whether values drift.

    Attributes:
        status: ``drifts``, ``none`` or ``not judged``.
        change: change over the window relative to the median; None where it was not judged.
        low: lower end of the change's 99 % interval.
        high: upper end.
        text: what was found, or why nothing was, in words.
    """

    status: Literal["drifts", "none", "not judged"]
    change: float | None
    low: float | None
    high: float | None
    text: str


def drift(times_s: ArrayLike, values: ArrayLike, start_s: float, end_s: float, *, effect: float = EFFECT) -> Drift:
    """The change of the values from the start of a window to its end, by the Theil-Sen line through block medians.

    The window is cut into 16 blocks of equal length. Values drift when the change over the window is at least
    ``effect`` of their median, and the line's 99 % interval excludes no change.

    Args:
        times_s: when each value belongs (a request: when it was due), seconds, shape (n,).
        values: any positive quantity, such as runtimes; shape (n,).
        start_s: start of the window.
        end_s: end of the window.
        effect: change relative to the median that counts.
    """
    import numpy as np

    length_s = end_s - start_s
    if length_s <= 0:
        return Drift("not judged", None, None, None, "the window has no length")
    blocks = blocks_of(times_s, values, start_s, end_s, BLOCKS, LEAST_IN_BLOCK)
    k = blocks.median.size
    if k < LEAST_BLOCKS:
        why = f"{k} of {BLOCKS} parts of the window hold {LEAST_IN_BLOCK} requests, {LEAST_BLOCKS} are needed"
        return Drift("not judged", None, None, None, why)
    middle = float(np.median(blocks.median))
    if not middle > 0:
        return Drift("not judged", None, None, None, "the median is 0: there is nothing to compare with")
    line = theil_sen(blocks.middle_s, blocks.median)
    change, low, high = (each * length_s / middle for each in line)
    moved = abs(change) >= effect and (low > 0 or high < 0)
    where = f"{change:+.0%} of the median over the window ({_end(low)} to {_end(high)})"
    return Drift("drifts" if moved else "none", change, low, high, where)


def _end(share: float) -> str:
    return f"{share:+.0%}" if math.isfinite(share) else "no bound"
