"""The slope of a noisy series, robustly: a few readings far off, and neighbours that are alike, must not make it."""

from __future__ import annotations

from math import sqrt

import numpy as np

from benches.lib.stats import Interval

__all__ = ["theil_sen"]

NORMAL_95 = 1.959964


def theil_sen(x: np.ndarray, y: np.ndarray) -> Interval:
    """The median of the slopes between all pairs of points (Theil 1950), with its 95 % interval (Sen 1968).

    The interval is that of Kendall's rank statistic, whose variance is n (n - 1) (2 n + 5) / 18, times
    (1 + r) / (1 - r) where the residuals have a positive lag-1 autocorrelation r: points that are alike tell less.

    Args:
        x: (n,) ascending and distinct, n >= 4.
        y: (n,).

    Raises:
        ValueError: fewer than four points.
    """
    n = x.size
    if n < 4:
        raise ValueError(f"a slope with an interval needs four points, not {n}")
    i, j = np.triu_indices(n, 1)
    slopes = np.sort((y[j] - y[i]) / (x[j] - x[i]))
    slope = float(np.median(slopes))
    alike = max(0.0, _lag1(y - slope * x))
    width = NORMAL_95 * sqrt(n * (n - 1) * (2 * n + 5) / 18 * (1 + alike) / (1 - alike))
    low = int(np.clip((slopes.size - width) / 2, 0, slopes.size - 1))
    return Interval(slope, float(slopes[low]), float(slopes[slopes.size - 1 - low]))


def _lag1(values: np.ndarray) -> float:
    """Lag-1 autocorrelation, below 1; 0 of a constant."""
    off = values - values.mean()
    square = float(off @ off)
    # What rounding leaves of a constant is no pattern.
    if square <= values.size * (1e-9 * float(np.abs(values).max())) ** 2:
        return 0.0
    return min(float(off[:-1] @ off[1:]) / square, 0.95)
