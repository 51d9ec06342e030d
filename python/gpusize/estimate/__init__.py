"""How many GPUs: methods, the twin, telemetry alone, laws of scaling, where to measure next, plans.

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
    from gpusize.estimate.telemetry.access_log import read_access_log
    from gpusize.estimate.telemetry.method import estimate_telemetry

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
    "estimate_telemetry",
    "levels_from_frames",
    "read_access_log",
    "to_calc_output",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        **dict.fromkeys(__all__, "estimate.methods"),
        "estimate_telemetry": "estimate.telemetry.method",
        "read_access_log": "estimate.telemetry.access_log",
    },
)
