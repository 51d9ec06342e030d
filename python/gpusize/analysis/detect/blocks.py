"""Series cut into blocks, and lines through them that a few wild values do not bend."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Blocks", "Line", "blocks_of", "lag1", "theil_sen"]

MOST_CORRELATED: Final = 0.9
"""Lag-1 autocorrelation beyond which blocks are taken to say this much of each other: an interval stays finite."""


class Blocks(NamedTuple):
    """Values by blocks of equal length.

    Attributes:
        middle_s: the middle of each block that holds enough values, shape (k,).
        median: the median of its values, shape (k,).
        mean: their mean, shape (k,).
        length_s: length of one block.
    """

    middle_s: NDArray[np.float64]
    median: NDArray[np.float64]
    mean: NDArray[np.float64]
    length_s: float


def blocks_of(times_s: ArrayLike, values: ArrayLike, start_s: float, end_s: float, count: int, least: int) -> Blocks:
    """Cut [start_s, end_s) into ``count`` blocks of equal length; those with fewer than ``least`` values are left out.

    Args:
        times_s: when each value belongs, shape (n,), in any order.
        values: shape (n,); what is not finite is left out.
        start_s: where the first block begins.
        end_s: where the last block ends.
        count: number of blocks.
        least: values that a block needs.
    """
    import numpy as np

    times, found = np.asarray(times_s, dtype=float), np.asarray(values, dtype=float)
    length_s = (end_s - start_s) / count
    kept = np.isfinite(found) & (times >= start_s) & (times < end_s)
    times, found = times[kept], found[kept]
    number = np.minimum(((times - start_s) / length_s).astype(int), count - 1) if length_s > 0 else times.astype(int)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(count + 1))
    held = [found[order[low:high]] for low, high in itertools.pairwise(edges)]
    full = [k for k, each in enumerate(held) if each.size >= max(least, 1)]
    return Blocks(
        start_s + (np.array(full, dtype=float) + 0.5) * length_s,
        np.array([np.median(held[k]) for k in full]),
        np.array([held[k].mean() for k in full]),
        length_s,
    )


class Line(NamedTuple):
    """A slope with its interval, in units of y per unit of x."""

    slope: float
    low: float
    high: float


def theil_sen(x: ArrayLike, y: ArrayLike, confidence: float = 0.99, *, correlated: bool = True) -> Line:
    """The median of the slopes between all pairs of points, with Kendall's interval for it.

    The interval holds without any assumption on the distribution. It is exact for independent values up to 60 points
    and normal beyond; where the residuals follow each other (lag-1 autocorrelation r > 0) it is widened by
    sqrt((1 + r) / (1 - r)), as the variance of Kendall's S grows.

    Sources: Theil 1950, A rank-invariant method of linear and polynomial regression analysis; Sen 1968, Estimates of
    the regression coefficient based on Kendall's tau; Hamed and Rao 1998, A modified Mann-Kendall trend test for
    autocorrelated data.

    Args:
        x: places, shape (n,), all different.
        y: values, shape (n,); at least 3.
        confidence: of the two-sided interval, 0.95 or 0.99.
        correlated: whether the interval is widened for residuals that follow each other.

    Raises:
        ValueError: fewer than 3 points.
    """
    import numpy as np

    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    n = xs.size
    if n < 3:
        raise ValueError("a line needs at least 3 points")
    first, second = np.triu_indices(n, k=1)
    slopes = np.sort((ys[second] - ys[first]) / (xs[second] - xs[first]))
    slope = float(np.median(slopes))
    # The estimate of a short series is low by about (1 + 3r) / n (Kendall 1954).
    r = lag1(ys - slope * xs) if correlated else 0.0
    r = min(max(0.0, r + (1 + 3 * r) / n), MOST_CORRELATED) if r > 0 else 0.0
    span = _kendall_bound(n, confidence) * math.sqrt((1 + r) / (1 - r))
    pairs = slopes.size
    low = math.floor((pairs - span) / 2) - 1
    high = math.ceil((pairs + span) / 2)
    return Line(
        slope,
        float(slopes[low]) if low >= 0 else -math.inf,
        float(slopes[high]) if high < pairs else math.inf,
    )


def lag1(values: ArrayLike) -> float:
    """Lag-1 autocorrelation, the sum of products of neighbours over the sum of squares; 0 where nothing varies."""
    import numpy as np

    found = np.asarray(values, dtype=float)
    off = found - found.mean() if found.size else found
    total = float(off @ off)
    return float(off[:-1] @ off[1:]) / total if total > 0 else 0.0


@cache
def _kendall_bound(n: int, confidence: float) -> float:
    """The smallest C with P(|S| > C) <= 1 - confidence, by the null distribution of Kendall's S for n values."""
    import numpy as np

    pairs = n * (n - 1) // 2
    if n > 60:
        z = {0.95: 1.959964, 0.99: 2.575829}[confidence]
        return z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # Permutations by their number of inversions: each further element adds 0 to k of them, all alike.
    share = np.ones(1)
    for k in range(1, n):
        share = np.convolve(share, np.full(k + 1, 1.0 / (k + 1)))
    s = pairs - 2 * np.arange(pairs + 1)
    for bound in sorted({abs(int(each)) for each in s}):
        if share[np.abs(s) > bound].sum() <= 1 - confidence:
            return float(bound)
    return float(pairs)
