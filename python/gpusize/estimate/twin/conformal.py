"""What errors that nobody can calculate add to an interval, learnt where answers are known.

A standard error from batches knows of chance. What a model gets wrong beyond what the measured levels show, it cannot
know. On development seeds of both families of the suite (docs/reference/estimate-suite.md) every right count is known,
so intervals are widened until 95 % of those of counts hold: split conformal prediction with a scaled score (Vovk,
Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, JASA
113, 2018), by model and situation, as the errors of one say little of another's:

    h' = kappa sqrt(h^2 + delta^2)

h is half the interval of the logarithm of the count. ``python -m benches.estimates.intervals`` finds kappa, which is
never below 1, and delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.estimate.twin.load import Situation

__all__ = ["SCALES", "wider"]

SCALES: Final[Mapping[tuple[str, Situation], tuple[float, float]]] = {
    ("batching", "even"): (1.3, 0.05),
    ("batching", "varying"): (2.05, 0.03),
    ("batching", "in turn"): (2.05, 0.03),
    ("static", "even"): (1.4, 0.1),
    ("static", "varying"): (1.4, 0.1),
    ("static", "in turn"): (1.4, 0.1),
    ("flow", "varying"): (2.1, 0.12),
    ("flow", "in turn"): (2.1, 0.12),
    ("measured", "even"): (1.0, 0.02),
}
"""(kappa, delta) by model and situation."""


def wider(half: float, model: str, situation: Situation) -> float:
    """Half the interval with what experience adds; infinite stays infinite.

    Args:
        half: half an interval of 95 % of the logarithm of the count, by its standard error.
        model: of the replica.
        situation: of the load (``ClusterLoad.situation``).
    """
    kappa, delta = SCALES.get((model, situation), (1.0, 0.0))
    return kappa * math.hypot(half, delta)
