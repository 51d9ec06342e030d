"""The engine's own schedule: what it would send, worked out by the code that sends it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpusize.engine.session import core

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from gpusize.workload.schedule.arrival_arrays import Explicit

__all__ = ["arrivals", "count_arrivals"]


def count_arrivals(plan: Mapping[str, Any], rows: int, explicit: Explicit | None = None) -> int:
    """How many requests a level will send if nothing ends it early.

    Args:
        plan: the LevelPlan of an open loop that ends.
        rows: rows of the dataset.
        explicit: arrivals beside the plan.

    Raises:
        UsageError: a closed loop, whose requests depend on the answers.
    """
    arrays = {} if explicit is None else explicit.arrays()
    return int(core().schedule_count(_text(plan), rows, **arrays))


def arrivals(plan: Mapping[str, Any], rows: int, explicit: Explicit | None = None) -> pl.DataFrame:
    """Every arrival of a level: ``index``, ``stream``, ``seq``, ``due_ns``, ``row``, ``target`` and ``priority``.

    Args:
        plan: the LevelPlan of an open loop that ends.
        rows: rows of the dataset.
        explicit: arrivals beside the plan.

    Raises:
        UsageError: a closed loop, whose requests depend on the answers.
    """
    import polars as pl

    arrays = {} if explicit is None else explicit.arrays()
    return pl.DataFrame(core().schedule(_text(plan), rows, **arrays))


def _text(plan: Mapping[str, Any]) -> str:
    """The plan as the engine reads it; what only a run knows is filled in, and plays no part."""
    return json.dumps({"visit": 0, "dir": None, "keep_bytes": 0, **plan})
