"""How long a replica takes to start, out of a cluster test: from the submission of a workload until it is ready."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.cluster.opened import open_test
from gpusize.cluster.phases.deltas import CENSORED, DONE
from gpusize.cluster.phases.statistics import lasting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["StartDelay", "measured_start_delay"]

SHARE: Final = 0.95
_PHASE: Final = "ready"


@dataclass(frozen=True, slots=True)
class StartDelay:
    """What a test says of it.

    Attributes:
        seconds: so long, or less, took 95 of 100 workloads, those that never became ready included.
        workloads: how many it is of.
        unready: how many of them were not ready at the last look.
    """

    seconds: float
    workloads: int
    unready: int


def measured_start_delay(folder: Path) -> StartDelay:
    """The 95th percentile of the time from submission to ready pods.

    A planned replica that starts later than planned for is missing when it is needed: so not the middle.

    Args:
        folder: of a cluster test.

    Raises:
        PathMissing, StoreError: it is none, or cannot be read.
        UsageError: nothing became ready in it, or too few for a 95th percentile.
    """
    import polars as pl

    rows = open_test(folder).rows(_PHASE).filter(pl.col("state").is_in((DONE, CENSORED)))
    unready = rows.filter(pl.col("state") == CENSORED).height
    seconds = lasting(rows).percentile(SHARE).value if rows.height else math.inf
    if not math.isfinite(seconds):
        what = f"{unready} of {rows.height} workloads were not ready at the last look: too many for a 95th percentile"
        raise UsageError(what if rows.height else "no workload became ready in it", str(folder), "give a time, as 90s")
    return StartDelay(seconds, rows.height, unready)
