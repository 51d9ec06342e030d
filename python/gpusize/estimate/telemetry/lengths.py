"""Prompts and answers as pairs of tokens: from an access log, or from what histograms say of them.

A histogram of lengths has buckets that are a factor of two wide. Its sum says the mean, and the sums of steps how much
lengths spread: over steps with n requests the sum of their lengths, less n times the mean, has the variance n times
that of one length. So within the buckets lengths have the density

    exp(a u + b u^2)

with a and b such that mean and variance are those (of all such densities the one of most entropy). That long prompts
have long answers shows likewise in the products of both sums; pairs are drawn with that correlation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.production import Production

__all__ = ["Lengths", "known_lengths", "within_buckets"]

PAIRS: Final = 20_000
GRID: Final = 24
"""Lengths of each bucket that the density is worked out at."""
HALVINGS: Final = 26
STEEP: Final = 60.0
SHARPEST: Final = 2_000.0
"""How far densities are bent at most: to a spread of about a sixtieth of the mean."""
FEWEST: Final = 100
"""Fewer requests say nothing of how lengths spread."""
FEWEST_STEPS: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Requests as pairs.

    Attributes:
        prompt: tokens; shape (m,).
        output: likewise, of the answer to each.
        told_by: ``log`` or ``histograms``.
    """

    prompt: NDArray[np.uint32]
    output: NDArray[np.uint32]
    told_by: str


def known_lengths(production: Production) -> Lengths | None:
    """Lengths of the requests; None where neither a log nor histograms tell those of answers."""
    import numpy as np

    log = production.log
    if log is not None and log.lengths is not None:
        prompt, output = log.lengths
        return Lengths(prompt.astype(np.uint32), output.astype(np.uint32), "log")
    output_one = _marginal(production, "output_length")
    if output_one is None:
        return None
    prompt_one = _marginal(production, "prompt_length")
    link = _link(production)
    rng = np.random.default_rng(1)
    first = rng.normal(size=PAIRS)
    second = link * first + np.sqrt(1 - link * link) * rng.normal(size=PAIRS)
    places = [(np.argsort(np.argsort(each)) + 0.5) / PAIRS for each in (first, second)]
    prompts = np.ones(PAIRS) if prompt_one is None else np.quantile(prompt_one, places[0], method="inverted_cdf")
    outputs = np.quantile(output_one, places[1], method="inverted_cdf")
    return Lengths(prompts.astype(np.uint32), outputs.astype(np.uint32), "histograms")


def _marginal(production: Production, name: str) -> NDArray[np.float64] | None:
    """Lengths, of equal weight; None without data."""
    import numpy as np

    buckets = production.steps.buckets.get(name)
    if buckets is None:
        return None
    known = np.isfinite(buckets.counts).all(axis=1)
    counts = np.diff(buckets.counts[known].sum(axis=0), prepend=0.0)
    total = float(production.steps.rise(f"{name}_count")[known].sum())
    if counts.sum() < FEWEST or not total > 0:
        return None
    mean = float(production.steps.rise(f"{name}_sum")[known].sum()) / total
    return within_buckets(buckets.bounds, np.maximum(counts, 0.0), mean, _variance(production, name, mean))


def _variance(production: Production, name: str, mean: float) -> float | None:
    """Of one length, by the sums of steps; None where there are too few."""
    return _covariance(production, name, mean, name, mean)


def _covariance(production: Production, first: str, first_mean: float, second: str, second_mean: float) -> float | None:
    import numpy as np

    steps = production.steps
    count = steps.rise(f"{first}_count")
    off = steps.rise(f"{first}_sum") - count * first_mean, steps.rise(f"{second}_sum") - count * second_mean
    known = np.isfinite(off[0]) & np.isfinite(off[1]) & (count > 0)
    if known.sum() < FEWEST_STEPS or count[known].sum() < FEWEST:
        return None
    return float((off[0] * off[1])[known].sum() / count[known].sum())


def _link(production: Production) -> float:
    """Correlation of prompts and answers of the same requests; 0 where nothing tells it."""
    import numpy as np

    names = ("prompt_length", "output_length")
    means = [
        float(np.nansum(production.steps.rise(f"{name}_sum")))
        / max(1.0, float(np.nansum(production.steps.rise(f"{name}_count"))))
        for name in names
    ]
    both = _covariance(production, names[0], means[0], names[1], means[1])
    each = [_covariance(production, name, mean, name, mean) for name, mean in zip(names, means, strict=True)]
    if both is None or not all(each):
        return 0.0
    found = both / float(np.sqrt((each[0] or 1.0) * (each[1] or 1.0)))
    steps = int((production.steps.rise("output_length_count") > 0).sum())
    # What chance alone makes of so many steps is none.
    return float(np.clip(found, -0.95, 0.95)) if abs(found) > 2 / np.sqrt(max(1, steps)) else 0.0


def within_buckets(
    bounds: NDArray[np.float64], counts: NDArray[np.float64], mean: float, variance: float | None
) -> NDArray[np.float64]:
    """Lengths of equal weight that lie in the buckets as counted, with this mean and variance as far as they can.

    Args:
        bounds: upper bounds, ascending, the last infinite; shape (b,).
        counts: in each bucket; shape (b,).
        mean: of all.
        variance: of all; None where nothing is known.

    Returns:
        Whole numbers from 1, ascending; shape (``PAIRS``,).
    """
    import numpy as np

    lows = np.concatenate([[0.0], bounds[:-1]])
    highs = np.where(np.isfinite(bounds), bounds, 4 * np.maximum(lows, 1.0))
    there = counts > 0
    grid, weight = [], []
    for low, high, count in zip(lows[there], highs[there], counts[there], strict=True):
        inside = np.unique(np.round(np.linspace(low + 1, max(high, low + 1), GRID))).astype(np.float64)
        grid.append(inside)
        weight.append(np.full(inside.size, count / counts.sum()))
    shares = _bent(mean, variance, grid, weight)
    values = np.concatenate(grid)
    upto = np.cumsum(shares) / shares.sum()
    places = (np.arange(PAIRS) + 0.5) / PAIRS
    return np.asarray(values[np.minimum(np.searchsorted(upto, places, "left"), values.size - 1)])


def _bent(
    mean: float, variance: float | None, grid: list[NDArray[np.float64]], weight: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Shares of the grid whose buckets, mean and variance are those wanted, as far as there are such.

    The mean rises with a, the variance with b, whatever the other is: both are found by bisection, one inside the
    other.
    Without a and b the density goes as 1/x inside a bucket: buckets grow as their bounds do.
    """
    import numpy as np

    u = [each / mean - 1 for each in grid]
    whole = np.concatenate(u)
    falls = [-np.log(each) for each in grid]

    def shares(a: float, b: float) -> NDArray[np.float64]:
        parts = []
        for inside, fall, each in zip(u, falls, weight, strict=True):
            power = fall + a * inside + b * inside * inside
            density = np.exp(power - power.max())
            parts.append(each[0] * density / density.sum())
        return np.concatenate(parts)

    def at_mean(b: float) -> NDArray[np.float64]:
        low, high = -STEEP - 2 * abs(b), STEEP + 2 * abs(b)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if float(shares(middle, b) @ whole) < 0 else (low, middle)
        return shares(0.5 * (low + high), b)

    if variance is None:
        return at_mean(0.0)
    wanted = variance / mean**2
    low, high = -SHARPEST, STEEP
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(at_mean(middle) @ (whole * whole)) < wanted else (low, middle)
    return at_mean(0.5 * (low + high))
