"""How many GPUs: methods, the twin, laws of scaling, where to measure next, plans.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.methods"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
