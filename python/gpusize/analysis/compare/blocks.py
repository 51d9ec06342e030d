"""The error of a mean of dependent values: resampling blocks of time, in closed form.

Requests that share a queue are not independent. Drawing blocks of neighbours instead of single requests keeps their
dependence (Künsch 1989); the variance of the mean under circular blocks needs no draws (Politis and Romano 1992).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FEWEST_BLOCKS", "BlockError", "block_error", "block_length"]

FEWEST_BLOCKS: Final = 5.0
"""With fewer there is no error to speak of."""
_SIGNIFICANT: Final = 2.0
"""Standard errors that an autocorrelation has to differ from 0 by."""


class BlockError(NamedTuple):
    """Standard error of a mean, and how many independent blocks say so; the error is NaN where these are too few."""

    error: float
    blocks: float


def block_error(values: NDArray[np.float64]) -> BlockError:
    """The standard error of the mean of values in order of time. Shape (n,)."""
    import numpy as np

    n = values.size
    if n < 2:
        return BlockError(math.nan, float(n))
    length = round(block_length(values))
    blocks = n / length
    if blocks < FEWEST_BLOCKS:
        return BlockError(math.nan, blocks)
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])) - values.mean())))
    means = (sums[length:] - sums[:-length]) / length
    # Means of blocks that make up the whole vary less about its mean than about the truth.
    return BlockError(math.sqrt(float(np.mean(means**2)) * length / n / (1 - length / n)), blocks)


def block_length(values: NDArray[np.float64]) -> float:
    """The best length of a block for the error of the mean, 1 for independent values.

    Politis and White, Automatic block-length selection for the dependent bootstrap (2004), for circular blocks, with
    the correction of Patton, Politis and White (2009).
    """
    import numpy as np

    n = values.size
    spread = values - values.mean()
    power = float(spread @ spread)
    if n < 8 or power <= 0:
        return 1.0
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(n))))
    most = min(n - 1, math.ceil(math.sqrt(n)) + in_a_row)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(spread, size)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum), size)[: most + 1] / n
    small = np.abs(covariances[1:]) < _SIGNIFICANT * math.sqrt(math.log10(n) / n) * covariances[0]
    quiet = next((m for m in range(most) if small[m : m + in_a_row].all()), most)
    lags = np.arange(1, min(2 * max(quiet, 1), most) + 1)
    window = np.minimum(1.0, 2 * (1 - lags / lags[-1]))
    slope = 2 * float(np.sum(window * lags * covariances[lags]))
    variance = float(covariances[0] + 2 * np.sum(window * covariances[lags]))
    if variance <= 0:
        return 1.0
    length = (2 * slope**2 / (4 / 3 * variance**2)) ** (1 / 3) * n ** (1 / 3)
    return float(min(max(1.0, length), math.ceil(min(3 * math.sqrt(n), n / 3))))
