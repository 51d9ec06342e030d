"""What more requests near the capacity would make of an answer's interval.

Only the standard error of the bounds that comes from batches falls, with the root of the requests, and Student's t with
its degrees of freedom. What a model gets wrong between the levels (misfit), and what experience adds
(`gpusize.estimate.twin.conformal`), stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.twin.conformal import bound_error, wider

if TYPE_CHECKING:
    from gpusize.estimate.twin.load import Situation

__all__ = ["foretold_interval"]


def foretold_interval(details: Mapping[str, Any], raw: float, times: float) -> tuple[float, float] | None:
    """Ends of the interval of the unrounded count with ``times`` times as many requests near the capacity.

    Args:
        details: of an answer of the twin.
        raw: its unrounded count, in the unit of ``details["raw_interval"]``.
        times: from 1 on.

    Returns:
        None where an end is open, or several numbers of GPUs were measured, whose losses have errors of their own.
    """
    sides, ends = details.get("halves") or (None, None), details.get("raw_interval") or (None, None)
    if details.get("slowness") or None in (*sides, *ends):
        return None
    error, misfit, freedom = (float(details[name]) for name in ("error", "misfit", "freedom"))
    felt = float(details.get("felt", 1.0))
    model: str = details["model"]
    situation: Situation = details["situation"]
    now = t_quantile(freedom) * bound_error(error, misfit, felt)
    then = t_quantile(times * freedom) * bound_error(error / math.sqrt(times), misfit, felt)
    found = []
    for side, end in zip(sides, ends, strict=True):
        half = abs(math.log(end / raw))
        # What the gap between two levels adds, where the model is the curve itself, stays as well.
        beside = half**2 - wider(side, model, situation) ** 2
        found.append(min(half, math.sqrt(max(0.0, wider(side * then / now, model, situation) ** 2 + beside))))
    return raw * math.exp(-found[0]), raw * math.exp(found[1])
