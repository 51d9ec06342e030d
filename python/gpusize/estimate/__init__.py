"""How many GPUs: methods, the twin, laws of scaling, where to measure next, plans.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.base.lazy import lazily

if TYPE_CHECKING:
    from gpusize.estimate.methods import (
        ALL,
        AUTO,
        METHODS,
        Comparable,
        Estimate,
        Method,
        Question,
        comparable,
        estimate,
        estimate_frame,
        levels_from_frames,
        to_calc_output,
    )

__all__ = [
    "ALL",
    "AUTO",
    "METHODS",
    "Comparable",
    "Estimate",
    "Method",
    "Question",
    "comparable",
    "estimate",
    "estimate_frame",
    "levels_from_frames",
    "to_calc_output",
]

__getattr__, __dir__ = lazily(__name__, dict.fromkeys(__all__, "estimate.methods"))
