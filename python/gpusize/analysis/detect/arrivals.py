"""Do arrivals look like the process that was asked for? Effect sizes in operational time, where the rate is 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.detect.blocks import lag1

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Autocorrelation", "Dispersion", "band", "chi2_quantile", "gap_autocorrelation", "index_of_dispersion"]

LEAST_WINDOWS: Final = 30
LEAST_GAPS: Final = 30
WINDOW: Final = 10.0
"""Expected arrivals in a window."""
SMALLEST: Final = 4.0
"""The same where a window of ten leaves fewer than 30 of them."""
CLEAR: Final = 100.0
"""Windows are this many times longer than arrivals are late, so that lateness, judged apart, does not enter."""
JITTER: Final = 0.005
"""Share of the variance of gaps that may come from lateness: from there on every k-th arrival is looked at."""
TAIL: Final = 3.8906
"""Standard normal quantile of the band, 1 in 10,000 in both tails together."""
NARROWEST: Final = 0.1
"""Half width of the band, relative to its middle, below which a deviation is no effect."""
CONSTANT: Final = 0.1
"""Index up to which equal gaps count as equal."""


class Autocorrelation(NamedTuple):
    """Lag-1 autocorrelation of gaps; ``every`` k-th arrival was looked at. ``bound`` is what its size may be."""

    value: float | None
    bound: float | None
    gaps: int
    every: int


class Dispersion(NamedTuple):
    """Variance over mean of the counts in windows, with its band; None where there are fewer than 30 windows."""

    value: float | None
    low: float
    high: float
    windows: int
    window: float


def gap_autocorrelation(arrivals: ArrayLike, *, spread: float = 0.0, variation: float = 1.0) -> Autocorrelation:
    """Lag-1 autocorrelation of the gaps between arrivals.

    Independent gaps have 0, within 3 / sqrt(n). Lateness that differs from arrival to arrival makes neighbouring gaps
    vary against each other; where it is more than a trace of the gaps, every k-th arrival is taken, and sums of
    independent gaps are independent too.

    Args:
        arrivals: sorted operational times, shape (n,).
        spread: standard deviation of the lateness, in operational time.
        variation: coefficient of variation of the gaps that was asked for.
    """
    import numpy as np

    times = np.asarray(arrivals, dtype=float)
    every = max(1, math.ceil((spread / variation) ** 2 / JITTER))
    gaps = np.diff(times[::every])
    if gaps.size < LEAST_GAPS:
        return Autocorrelation(None, None, gaps.size, every)
    return Autocorrelation(lag1(gaps), max(0.02, 3 / math.sqrt(gaps.size)), gaps.size, every)


def index_of_dispersion(
    arrivals: ArrayLike, length: float, process: str, shape: float = 1.0, *, late: float = 0.0
) -> Dispersion:
    """Index of dispersion of counts in equal windows of operational time, and the band for the process asked for.

    Windows hold ten arrivals on average; more for gamma gaps that cluster (10 / shape), whose index reaches its limit
    in long windows only, and 100 times as many as come within the lateness.

    Args:
        arrivals: operational times, shape (n,).
        length: operational length of the whole.
        process: ``constant``, ``poisson`` or ``gamma``.
        shape: of gamma gaps.
        late: lateness that is usual (its 99th percentile), in operational time.
    """
    import numpy as np

    clustered = 1 / shape if process == "gamma" and shape < 1 else 1.0
    least = max(SMALLEST * clustered, CLEAR * late)
    window = max(least, min(WINDOW * clustered, length / LEAST_WINDOWS))
    windows = math.floor(length / window)
    low, high = band(process, shape, max(windows, 2), window)
    if windows < LEAST_WINDOWS:
        return Dispersion(None, low, high, windows, window)
    number = (np.asarray(arrivals, dtype=float) / window).astype(int)
    counts = np.bincount(number[(number >= 0) & (number < windows)], minlength=windows)
    mean = float(counts.mean())
    value = float(counts.var(ddof=1)) / mean if mean > 0 else None
    return Dispersion(value, low, high, windows, window)


def band(process: str, shape: float, windows: int, window: float) -> tuple[float, float]:
    """Between which values the index lies, but for one in 10,000 of correct schedules.

    Poisson: (windows - 1) times the index is close to chi-squared distributed with windows - 1 degrees of freedom
    (Cox and Lewis 1966, The statistical analysis of series of events, section 6.3). Gamma gaps of mean 1: counts of an
    equilibrium renewal process in windows of length t have the index 1 / shape + (1 - 1 / shape^2) / (6 t) (Cox 1962,
    Renewal theory, section 4.5). Equal gaps: 0, up to a count more or less at the edges. No band is narrower than a
    tenth.

    Args:
        process: ``constant``, ``poisson`` or ``gamma``.
        shape: of gamma gaps.
        windows: number of windows.
        window: expected arrivals in each.
    """
    if process == "constant":
        return 0.0, CONSTANT + 0.25 / window
    clustering = 1 / shape if process == "gamma" else 1.0
    middle = clustering + (1 - clustering**2) / (6 * window)
    # The variance of a sample variance grows with the excess kurtosis of the counts, about index / mean.
    wider = math.sqrt(1 + max(clustering, 1.0) / (2 * window) * (1 if process == "poisson" else 3))
    ends = []
    for z in (-TAIL, TAIL):
        off = (chi2_quantile(z, windows - 1) / (windows - 1) - 1) * wider
        ends.append(middle * (1 + (min(off, -NARROWEST) if z < 0 else max(off, NARROWEST))))
    return max(0.0, ends[0]), ends[1]


def chi2_quantile(z: float, freedom: int) -> float:
    """Quantile of chi-squared at the standard normal quantile ``z`` (Wilson and Hilferty 1931).

    From 20 degrees of freedom on it is right within 1 %, far down in the lower tail within 4 %.
    """
    part = 2 / (9 * freedom)
    return float(freedom * max(0.0, 1 - part + z * math.sqrt(part)) ** 3)
