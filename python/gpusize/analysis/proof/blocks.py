"""Blocks of requests that follow each other, so long that what happens in one says little of the next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpusize.analysis.detect.blocks import lag1

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["block_length", "block_means", "correlation_length"]

WINDOW: Final = 5.0
"""Lags up to so many correlation lengths are summed (Sokal 1997): further ones are noise."""
OF_MISSES: Final = 4.0
"""Correlation lengths of the misses in a block: of AR(1) the lag-1 correlation of block means is 0.07 then."""
OF_TIMES: Final = 2.0
"""Correlation lengths of the runtimes in a block: they are there where no request has missed yet, and misses are seldom
correlated for as long."""
MOST_LAG1: Final = 0.15
"""Lag-1 correlation of the blocks' means beyond which a block is made twice as long."""
LEAST_BLOCKS: Final = 16
"""Fewer tell nothing, neither of their correlation nor of the share."""
CHANCE: Final = 1.3
"""Standard errors that the lag-1 correlation may be above its bound, as it is drawn as well."""


def correlation_length(parts: Sequence[ArrayLike]) -> float:
    """Integrated autocorrelation time: 1 + 2 times the sum of autocorrelations; how many requests are worth one.

    The sum ends at the first lag beyond ``WINDOW`` times itself (Sokal 1997, Monte Carlo methods in statistical
    mechanics, section 3). At least 1; 1 where nothing varies.

    Args:
        parts: values in order, each part without a gap, shape (n,) each.
    """
    import numpy as np

    found = [np.asarray(each, dtype=float) for each in parts if np.size(each) > 1]
    if not found:
        return 1.0
    mean = float(np.concatenate(found).mean())
    longest = max(each.size for each in found)
    products, pairs = np.zeros(longest), np.zeros(longest)
    for each in found:
        n = each.size
        size = 1 << (2 * n - 1).bit_length()
        spectrum = np.fft.rfft(each - mean, size)
        products[:n] += np.fft.irfft(spectrum * spectrum.conj(), size)[:n]
        pairs[:n] += n
    if products[0] <= 1e-12:
        return 1.0
    # Over all n, not n - k: of few pairs far apart the noise must not count for much.
    rho = (products / np.maximum(pairs, 1)) / (products[0] / pairs[0])
    lengths = 2.0 * np.cumsum(rho) - 1.0
    beyond = np.flatnonzero(np.arange(longest) >= WINDOW * lengths)
    return max(1.0, float(lengths[beyond[0] if beyond.size else -1]))


def block_means(parts: Sequence[ArrayLike], length: int) -> NDArray[np.float64]:
    """Means of blocks of ``length`` values; what is left over at the end of a part counts in no block. Shape (k,)."""
    import numpy as np

    found = []
    for part in parts:
        values = np.asarray(part, dtype=float)
        count = values.size // length
        found.append(values[: count * length].reshape(count, length).mean(axis=1))
    return np.concatenate(found) if found else np.zeros(0)


def block_length(misses: Sequence[ArrayLike], runtimes: Sequence[ArrayLike], least: int = 1) -> int:
    """How many requests a block must have, so that its mean says little of the next one's.

    ``OF_MISSES`` correlation lengths of the misses or ``OF_TIMES`` of the runtimes' ranks, whichever is longer; doubled
    while the means of neighbouring blocks are correlated beyond chance.

    Args:
        misses: parts without a gap, 1 where a request kept the SLO and 0 where not, shape (n,) each.
        runtimes: of the same requests, any unit.
        least: no shorter than this: a block that was longer before does not become shorter again.
    """
    length = max(
        least,
        math.ceil(OF_MISSES * correlation_length(misses)),
        math.ceil(OF_TIMES * correlation_length(_ranks(runtimes))),
    )
    while True:
        means = block_means(misses, length)
        if means.size < 2 * LEAST_BLOCKS or lag1(means) <= MOST_LAG1 + CHANCE / math.sqrt(means.size):
            return length
        length *= 2


def _ranks(parts: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    """Values by their place among all: a few that are wild do not decide what is correlated."""
    import numpy as np

    sizes = np.cumsum([np.size(each) for each in parts])
    if not sizes.size or not sizes[-1]:
        return []
    whole = np.concatenate([np.asarray(each, dtype=float) for each in parts])
    ranks = np.empty(whole.size)
    ranks[np.argsort(whole, kind="stable")] = np.arange(whole.size)
    return list(np.split(ranks, sizes[:-1]))
