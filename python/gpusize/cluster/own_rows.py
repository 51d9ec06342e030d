"""Stamps of a test's own workloads. In a namespace that others use, watches see theirs too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["own_rows"]


def own_rows(stamps: pl.DataFrame, attempts: pl.DataFrame, facts: Mapping[str, Any]) -> pl.DataFrame:
    """The stamps without those of workloads that the folder's run has not submitted; all where it knows of no run.

    Kinds that controllers make have no label of the run, so those of the whole namespace are watched: Jobs and pod
    groups of an earlier test are among them. They are not workloads of this one.

    Args:
        stamps: of `gpusize.cluster.tables.stamps_schema`.
        attempts: of `gpusize.cluster.tables.attempts_schema`.
        facts: contents of ``cluster.json``.
    """
    import polars as pl

    run = (facts.get("submit") or {}).get("run")
    if not run:
        return stamps
    # The rows of the last second of a submission that was killed are not there: its names tell, too.
    named = pl.col("workload").str.contains(f"-{run}-", literal=True)
    sent = pl.col("workload").is_in(attempts["workload"].unique().to_list())
    return stamps.filter(pl.col("workload").is_null() | named | sent)
