"""When workloads of an open loop are due: by the schedule of the load engine, which sends requests by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpusize.base.errors import UsageError
from gpusize.cluster.submit.names import MOST_WORKLOADS
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.workload.load.load import Load
from gpusize.workload.load.stages import Process
from gpusize.workload.schedule.export import plan_frame, total_expected

if TYPE_CHECKING:
    import polars as pl

__all__ = ["due_times"]


def due_times(options: SubmitOptions) -> pl.Series:
    """Due times of all workloads in ns after the start, in order; the same for the same rates and seed.

    Args:
        options: of an open loop.

    Raises:
        UsageError: rates that cannot be, stages of concurrencies, or no workload at all.
    """
    import polars as pl

    process = cast("Process", options.process)
    if options.stages is not None:
        load = Load(stages=options.stages, process=process, seed=options.seed)
    else:
        load = Load(
            rates=(cast("float", options.rate),), count=options.num_workloads, process=process, seed=options.seed
        )
    if load.kind != "open":
        what = "stages of concurrencies are rounds, which -p and --delay describe"
        raise UsageError(what, "stages", "give stages of rates, as 10/s@1m")
    levels = load.levels(1)
    if (total_expected(levels) or 0) > MOST_WORKLOADS:
        raise UsageError(f"these are more than {MOST_WORKLOADS:,} workloads", "stages", "make them shorter")
    starts, at_ns = [], 0
    for level in levels:
        starts.append(at_ns)
        at_ns += int(level.plan["stop"]["duration_ns"] or 0)
    start = pl.col("level").replace_strict(dict(enumerate(starts)), return_dtype=pl.Int64)
    due = plan_frame(levels, 1).select(pl.col("due_ns").cast(pl.Int64) + start)["due_ns"].sort()
    if due.is_empty():
        raise UsageError("no workload is due in these stages", "stages", "make them longer, or the rates higher")
    return due
