"""The sizing calculator's arithmetic: its straight line, its outlier rules, its rough figures. No I/O, no levels.

The rules are those of the NeMo Agent Toolkit's calculator (1.9), kept number for number, weak points included, so that
its users can compare. Where they mislead, ``slope`` adds warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Fit", "FitConfig", "FitResult", "capacity", "fit_line", "rough_gpus"]


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Constants of the rules, with the calculator's values.

    Attributes:
        small_concurrency_range_threshold: up to this many levels, raw values are tested before residuals.
        extreme_outlier_threshold: interquartile ranges beyond the quartiles, for raw values.
        conservative_outlier_threshold: the same for residuals.
        min_r_squared: a fit below it is rejected.
        remove_outliers: whether levels may be left out at all.
    """

    small_concurrency_range_threshold: int = 8
    extreme_outlier_threshold: float = 2.0
    conservative_outlier_threshold: float = 1.5
    min_r_squared: float = 0.7
    remove_outliers: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """A line through percentile (s) against concurrency.

    Attributes:
        slope: seconds per request in flight.
        intercept: seconds.
        r_squared: over the levels that were kept.
        outliers_removed: their concurrencies, those found by raw value first.
    """

    slope: float
    intercept: float
    r_squared: float
    outliers_removed: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """The calculator's ``fit_results`` entry."""
        return {
            "slope": self.slope,
            "intercept": self.intercept,
            "r_squared": self.r_squared,
            "outliers_removed": list(self.outliers_removed),
        }


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fit, or the reason why there is none. ``rejected`` is the line whose R2 was too low."""

    fit: Fit | None
    reason: str | None = None
    rejected: Fit | None = None


def _least_squares(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float, float] | None:
    """Unweighted least squares: slope, intercept, R2 (0 for a constant y); None when all x are equal."""
    n = len(x)
    sum_x, sum_y = float(x.sum()), float(y.sum())
    spread = n * float((x * x).sum()) - sum_x**2
    if n < 2 or spread == 0:
        return None
    slope = (n * float((x * y).sum()) - sum_x * sum_y) / spread
    intercept = (sum_y - slope * sum_x) / n
    residual = float(((y - (slope * x + intercept)) ** 2).sum())
    # Equal values can differ from their own mean by a rounding error; by definition their R2 is 0.
    total = 0.0 if bool((y == y[0]).all()) else float(((y - y.mean()) ** 2).sum())
    return slope, intercept, 1 - residual / total if total != 0 else 0.0


def _inside(values: NDArray[np.float64], factor: float) -> NDArray[np.bool_]:
    """Which values lie within ``factor`` interquartile ranges of the quartiles, bounds included."""
    import numpy as np

    low, high = np.percentile(values, [25, 75])
    reach = factor * (high - low)
    inside: NDArray[np.bool_] = (values >= low - reach) & (values <= high + reach)
    return inside


def fit_line(concurrencies: Sequence[int], values_s: Sequence[float], config: FitConfig | None = None) -> FitResult:
    """Fit a line after leaving out outliers.

    With more than four levels: of up to eight, those are dropped whose raw value lies more than 2 interquartile ranges
    beyond the quartiles; then always, once, those whose residual lies more than 1.5 beyond.

    Args:
        concurrencies: of the levels, shape (n,), any order.
        values_s: a percentile per level, seconds, shape (n,).
        config: other constants than the calculator's.

    Returns:
        The fit, or a reason: fewer than two levels left, all at one concurrency, R2 below the bound.
    """
    import numpy as np

    config = config or FitConfig()
    x, y = np.asarray(concurrencies, dtype=np.float64), np.asarray(values_s, dtype=np.float64)
    removed: list[int] = []
    if config.remove_outliers and len(x) > 4:
        if len(x) <= config.small_concurrency_range_threshold:
            keep = _inside(y, config.extreme_outlier_threshold)
            removed += [int(c) for c in x[~keep]]
            x, y = x[keep], y[keep]
        line = _least_squares(x, y)
        if line is not None:
            keep = _inside(y - (line[0] * x + line[1]), config.conservative_outlier_threshold)
            removed += [int(c) for c in x[~keep]]
            x, y = x[keep], y[keep]
    line = _least_squares(x, y)
    if line is None or not all(math.isfinite(part) for part in line):
        without = f" after leaving out {removed}" if removed else ""
        return FitResult(None, f"a line needs two levels of different concurrency, there are {len(set(x))}{without}")
    fit = Fit(*line, tuple(removed))
    if fit.r_squared < config.min_r_squared:
        reason = (
            f"the levels do not follow a line: R2 is {fit.r_squared:.3f}, {config.min_r_squared} is needed"
            if fit.r_squared > 0 or len(set(y.tolist())) > 1
            else "the curve is flat: the load never reached the target's limit"
        )
        return FitResult(None, reason, fit)
    return FitResult(fit)


def capacity(fit: Fit, target_s: float) -> tuple[float | None, str | None]:
    """Concurrency at which the line reaches the target, or the reason why it never does."""
    if fit.slope <= 0:
        return None, f"the fitted line does not rise (slope {fit.slope:.3g} s per request in flight)"
    if target_s <= fit.intercept:
        return None, (
            f"the target of {target_s:g} s is not above the intercept of the line, {fit.intercept:.4g} s: "
            "by this model even an idle cluster of any size misses it"
        )
    return (target_s - fit.intercept) / fit.slope, None


def rough_gpus(concurrency: int, observed_s: float, target_s: float, users: float, gpus: int) -> float:
    """The calculator's figure per level: (users / c) (observed / target) gpus. Large at a small c; informative only."""
    return (users / concurrency) * (observed_s / target_s) * gpus
