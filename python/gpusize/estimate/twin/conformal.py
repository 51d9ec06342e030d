"""What errors that nobody can calculate add to an interval, learnt where answers are known.

A standard error from batches knows of chance. What a model gets wrong beyond what the measured levels show, it cannot
know. On the suite's development seeds (docs/reference/estimate-suite.md) the error of every answer is known, so its
interval is widened until 95 % of these hold: split conformal prediction with a scaled score (Vovk, Gammerman and
Shafer, Algorithmic Learning in a Random World, 2005; Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, JASA 113, 2018):

    h' = kappa sqrt(h^2 + delta^2)

h is half the interval of the logarithm of the count. ``python -m benches.estimates.intervals`` finds kappa and delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

__all__ = ["SCALES", "wider"]

SCALES: Final[Mapping[tuple[str, bool], tuple[float, float]]] = {
    ("batching", True): (1.3, 0.05),
    ("batching", False): (2.05, 0.03),
    ("static", True): (1.4, 0.1),
    ("static", False): (1.4, 0.1),
    ("flow", False): (2.1, 0.12),
    ("measured", True): (1.0, 0.02),
}
"""(kappa, delta) by model and by whether the router keeps replicas within one request of each other."""


def wider(half: float, model: str, *, even: bool) -> float:
    """Half the interval with what experience adds; infinite stays infinite.

    Args:
        half: half an interval of 95 % of the logarithm of the count, by its standard error.
        model: of the replica.
        even: whether replicas keep within one request of each other.
    """
    kappa, delta = SCALES.get((model, even), (1.0, 0.0))
    return kappa * math.hypot(half, delta)
