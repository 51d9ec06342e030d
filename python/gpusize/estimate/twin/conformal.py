"""What errors that nobody can calculate add to an interval, learnt where answers are known.

A standard error from batches knows of chance. What a model gets wrong beyond what the measured levels show, it cannot
know. On development seeds of both families of the suite (docs/reference/estimate-suite.md) every right count is known,
so intervals are widened until some 95 % of those of counts hold in each group that has many of them: split conformal
prediction with a scaled score (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Lei, G'Sell,
Rinaldo, Tibshirani and Wasserman, JASA 113, 2018), by model and situation, as the errors of one say little of
another's:

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

__all__ = ["SCALES", "bound_error", "wider"]

LEAST: Final = 0.003
"""No bound is known better, as a logarithm of the load that keeps it."""

SCALES: Final[Mapping[tuple[str, Situation], tuple[float, float]]] = {
    ("batching", "even"): (1.0, 0.02),
    ("batching", "varying"): (1.2, 0.02),
    ("batching", "in turn"): (1.1, 0.12),
    ("static", "even"): (1.2, 0.06),
    ("static", "varying"): (1.2, 0.06),
    ("static", "in turn"): (1.2, 0.06),
    ("flow", "varying"): (1.4, 0.12),
    ("flow", "in turn"): (1.2, 0.2),
    ("measured", "even"): (1.0, 0.02),
}
"""(kappa, delta) by model and situation.

Behind batching delta is a little more than 95 % take, as errors that were calculated as nothing were a twentieth at
times. Of static batches, replicas in turn and the measured curve there are 2 to 80 answers, which tell little of the
rarest twentieth: theirs were learnt for 92 %.
"""


def wider(half: float, model: str, situation: Situation) -> float:
    """Half the interval with what experience adds; infinite stays infinite.

    Args:
        half: half an interval of 95 % of the logarithm of the count, by its standard error.
        model: of the replica.
        situation: of the load (``ClusterLoad.situation``).
    """
    kappa, delta = SCALES.get((model, situation), (1.0, 0.0))
    return kappa * math.hypot(half, delta)


def bound_error(error: float, misfit: float, felt: float, loss: float = 0.0) -> float:
    """Standard error of the logarithm of a bound, of everything that can be calculated together.

    Args:
        error: by the measurement at the capacity.
        misfit: by what the model does not repeat there.
        felt: what an error of one percent of the load is of the bound.
        loss: by what replicas cost each other.
    """
    return math.hypot(error, 0.5 * misfit, LEAST * felt, loss)
