"""Student's t distribution."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

__all__ = ["t_above", "t_quantile"]

_TINY: Final = 1e-300
_MOST: Final = 500
_LIKE_NORMAL: Final = 1e6
"""Degrees of freedom from which it is the normal distribution to six digits."""


def t_above(t: float, freedom: float) -> float:
    """Probability that Student's t with ``freedom`` degrees of freedom lies above ``t``.

    By the regularized incomplete beta function (Abramowitz and Stegun 26.7.1), its continued fraction by Lentz's
    method (Press et al., Numerical Recipes, 6.4).
    """
    if not freedom > 0:
        return math.nan
    if freedom > _LIKE_NORMAL:
        return 1 - NormalDist().cdf(t) if t < 0 else NormalDist().cdf(-t)
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=256)
def t_quantile(prob: float, freedom: float) -> float:
    """The value that Student's t lies below with probability ``prob``, to nine digits; 0 < prob < 1."""
    if prob < 0.5:
        return -t_quantile(1 - prob, freedom)
    above = 1 - prob
    low, high = 0.0, 1.0
    while t_above(high, freedom) > above:
        low, high = high, 2 * high
    while high - low > 1e-10 * (1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_above(middle, freedom) > above else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    product = d
    for m in range(1, _MOST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            product *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a * product


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
