"""Monotone regression, where a falling curve crosses a value, and the intervals of shares and means."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Z_95", "crossing_point", "decreasing", "t_quantile", "wilson"]

Z_95 = 1.959963984540054
"""Quantile of the normal distribution for a two-sided 95 % interval."""


def decreasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-increasing sequence nearest to ``values`` in weighted least squares.

    Pool adjacent violators (Ayer et al. 1955): neighbours in the wrong order are replaced by their weighted mean until
    none is left. Shapes (n,), weights above 0.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, size = value, weight, 1
        while blocks and blocks[-1][0] < mean:
            other, more, count = blocks.pop()
            mean = (mean * total + other * more) / (total + more)
            total, size = total + more, size + count
        blocks.append((mean, total, size))
    return [mean for mean, _, size in blocks for _ in range(size)]


def crossing_point(x: Sequence[float], falling: Sequence[float], level: float) -> float | None:
    """Largest x at which a falling curve, straight between its points, still reaches ``level``.

    None when the curve never reaches it, or never falls below it: there is no extrapolation.
    """
    at = next((k for k, value in enumerate(falling) if value < level), None)
    if at is None or at == 0:
        return None
    high, low = falling[at - 1], falling[at]
    return x[at - 1] + (high - level) / (high - low) * (x[at] - x[at - 1])


def wilson(share: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a share from n independent trials; n may be fractional (an effective number).

    E. B. Wilson, Journal of the American Statistical Association 22, 1927.
    """
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def t_quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t, for a two-sided 95 % interval.

    Cornish-Fisher expansion; Abramowitz and Stegun 26.7.5.
    """
    z, v = Z_95, max(1.0, freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return min(12.7, sum((term / v**power for power, term in enumerate(terms, start=1)), start=z))
