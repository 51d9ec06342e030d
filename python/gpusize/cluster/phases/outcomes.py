"""What became of each workload by the last look, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.timelines import POD
from gpusize.cluster.phases.workloads import CLOCKS, LOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["NEVER", "OUTCOMES", "outcomes"]

OUTCOMES: Final = {
    "completed": "the work is done",
    "running": "all pods run, or are ready",
    "scheduled": "all pods have a node and do not all run yet",
    "pending": "not all pods have a node, and the scheduler has not said why",
    "unschedulable": "the scheduler said that there is no place, and placed not all pods since",
    "evicted": "pods were evicted or preempted, and others have not taken their place",
    "failed": "pods failed, and others have not taken their place",
    "deleted": "it ran, and was deleted before its work was done, not by gpusize",
    "vanished": "it was deleted before it ran, or was granted and never seen",
    "refused": "the API granted no request for it",
}
"""Each outcome, and what it means."""
NEVER: Final = ("failed", "deleted", "vanished", "refused")
"""Outcomes after which nothing more comes of a workload; what was evicted may be placed again."""

_RUN: Final = ("started", "running", "ready")
_REASONS: Final = {"unschedulable": "unschedulable", "evicted": "evicted", "failed": "failed"}


def outcomes(
    table: pl.DataFrame, objects: pl.DataFrame, attempts: pl.DataFrame, facts: Mapping[str, Any]
) -> pl.DataFrame:
    """The outcome of each workload with its reason.

    Args:
        table: of `gpusize.cluster.phases.deltas.wide`, with ``pods``, ``pods_seen``, ``pods_lost``.
        objects: of `gpusize.cluster.phases.timelines.object_moments`.
        attempts: requests.
        facts: contents of ``cluster.json``. What is deleted after ``clean.started_ns`` has not vanished, and nothing
            has where it was cleaned nobody knows when. With ``sample.partial`` what was not seen may be there.

    Returns:
        ``workload``, ``outcome``, ``reason``, ``message``, ``attempts``.
    """
    import polars as pl

    asked = (
        attempts.sort("sent_ns")
        .group_by("workload", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("attempts"),
            # One whose answer was lost may have been found afterwards: 409, and ours by its uid.
            (pl.col("status").is_between(200, 299) | pl.col("uid").is_not_null()).any().alias("granted"),
            pl.col("reason").last().alias("refusal"),
            pl.col("message").last().alias("refusal_message"),
        )
    )
    seen = (
        objects.filter(pl.col("source") != "answer").select("workload").unique().with_columns(seen=pl.lit(value=True))
    )
    found = (
        table.join(asked, on="workload", how="left")
        .join(seen, on="workload", how="left")
        .join(_ran(objects), on="workload", how="left")
        .with_columns(pl.col("seen").fill_null(value=False), pl.col("attempts").fill_null(0))
    )

    def known(moment: str) -> pl.Expr:
        names = [f"{clock}.{moment}.lo" for clock in CLOCKS if f"{clock}.{moment}.lo" in table.columns]
        return pl.any_horizontal(pl.col(name).is_not_null() for name in names) if names else pl.lit(value=False)

    lacking = pl.col("pods_seen") - pl.col("pods_lost") < pl.col("pods")
    # A pod that started and failed runs no more; the one in its place may not run yet.
    running = (known("last_running") | known("last_ready") | known("last_started")) & (
        pl.col("ran").fill_null(0) >= pl.col("pods")
    )
    partial = bool((facts.get("sample") or {}).get("partial"))
    gone = known("deleted") & ~_cleaned(table, facts)
    outcome = (
        pl.when(known("completed"))
        .then(pl.lit("completed"))
        .when(~pl.col("granted").fill_null(value=True) & ~pl.col("seen"))
        .then(pl.lit("refused"))
        .when((known("evicted") | known("preempted")) & lacking)
        .then(pl.lit("evicted"))
        .when(known("failed") & lacking)
        .then(pl.lit("failed"))
        .when((gone & ~running) | (pl.lit(value=False) if partial else ~pl.col("seen")))
        .then(pl.lit("vanished"))
        .when(gone)
        .then(pl.lit("deleted"))
        .when(running)
        .then(pl.lit("running"))
        .when(known("last_scheduled") | known("last_bound"))
        .then(pl.lit("scheduled"))
        .when(known("unschedulable"))
        .then(pl.lit("unschedulable"))
        .otherwise(pl.lit("pending"))
    )
    named = found.with_columns(outcome.alias("outcome"))
    for moment in _REASONS:
        told = (
            objects.filter(pl.col("moment") == moment, pl.col("reason").is_not_null())
            .sort("lo")
            .group_by("workload", maintain_order=True)
            .agg(pl.col("reason").last().alias(f"{moment}_reason"), pl.col("message").last().alias(f"{moment}_message"))
        )
        named = named.join(told, on="workload", how="left")

    def why(what: str, refusal: str) -> pl.Expr:
        chain: Any = pl.when(pl.col("outcome") == "refused").then(pl.col(refusal))
        for named_outcome, moment in _REASONS.items():
            chain = chain.when(pl.col("outcome") == named_outcome).then(pl.col(f"{moment}_{what}"))
        never = pl.lit("never seen" if what == "reason" else None, pl.String)
        made: pl.Expr = chain.when(~pl.col("seen")).then(never).alias(what)
        return made

    return named.select("workload", "outcome", why("reason", "refusal"), why("message", "refusal_message"), "attempts")


def _ran(objects: pl.DataFrame) -> pl.DataFrame:
    """How many pods of each workload have run and were not lost, as ``workload`` and ``ran``."""
    import polars as pl

    pods = objects.filter(pl.col("kind") == POD).group_by("workload", "object")
    each = pods.agg(
        (pl.col("moment").is_in(_RUN).any() & ~pl.col("moment").is_in(LOST).any()).cast(pl.Int64).alias("ran")
    )
    return each.group_by("workload").agg(pl.col("ran").sum())


def _cleaned(table: pl.DataFrame, facts: Mapping[str, Any]) -> pl.Expr:
    """Whether a workload was deleted by our own cleaning up."""
    import polars as pl

    clean = facts.get("clean")
    begun = (clean or {}).get("started_ns")
    if clean and not isinstance(begun, int):
        return pl.lit(value=True)
    name = next((f"{clock}.deleted.hi" for clock in reversed(CLOCKS) if f"{clock}.deleted.hi" in table.columns), None)
    if not isinstance(begun, int) or name is None:
        return pl.lit(value=False)
    return (pl.col(name) >= begun).fill_null(value=False)
