"""The moments of workloads: of the object that was submitted, its job, its gang of pods, its queue, its volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.timelines import POD
from gpusize.cluster.tables import CLIENT_CLOCK, SERVER_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["GANG_MOMENTS", "LOST", "MOMENTS", "gangs", "workload_moments"]

CLAIM: Final = "PersistentVolumeClaim"
POD_GROUP: Final = "PodGroup"
BACKEND: Final = "Backend"
"""The kind that rows of a control plane's database have, in folders of the seed's tool."""

JOB_KINDS: Final = (
    "RunaiJob",
    "PyTorchJob",
    "MPIJob",
    "TFJob",
    "XGBoostJob",
    "JAXJob",
    "RayJob",
    "TrainJob",
    "JobSet",
    "LeaderWorkerSet",
    "Job",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
)
"""Kinds whose controllers make pods, the nearest to the user first."""

GANG_MOMENTS: Final = (
    "created",
    "scheduled",
    "bound",
    "initialized",
    "ready_to_start",
    "started",
    "running",
    "containers_ready",
    "ready",
    "succeeded",
)
"""Moments of pods that a workload reaches with its first pod, with a quorum of them, and with all."""

_FIRST: Final = {
    "queued": "queued",
    "quota_reserved": "quota_reserved",
    "admitted": "admitted",
    "pods_ready": "pods_ready",
    "unschedulable": "unschedulable",
    "evicted": "evicted",
    "preempted": "preempted",
    "requeued": "requeued",
    "failed": "failed",
    "bind_requested": "pvc_bind_requested",
    "claim_bound": "pvc_bound",
}
"""What happens to a workload as soon as it happens to one of its objects."""

MOMENTS: Final = (
    "due",
    "submitted",
    "acknowledged",
    "workload_created",
    "job_created",
    "pod_group_created",
    *(f"{which}_{moment}" for moment in GANG_MOMENTS for which in ("first", "quorum", "last")),
    *_FIRST.values(),
    "completed",
    "deleted",
    "backend_created",
)
"""Moments of a workload, as columns of ``workloads.parquet`` have them."""

LOST: Final = ("evicted", "failed")
"""Moments of pods that others have to replace."""

_GONE: Final = (*LOST, "deleted")


def gangs(objects: pl.DataFrame, names: pl.DataFrame, facts: Mapping[str, Any]) -> pl.DataFrame:
    """How many pods each workload should have, with how many it may begin, how many were seen, and how many lost.

    The number is what `submit` noted (``submit.pods``, else its option ``num_workers``), or the pods that were seen and
    are not gone, if these are more. Pods that replace others so count once. The quorum is ``submit.quorum``, else all.

    Args:
        objects: of `gpusize.cluster.phases.timelines.object_moments`.
        names: the workloads, in a column ``workload``.
        facts: contents of ``cluster.json``.
    """
    import polars as pl

    noted = facts.get("submit") or {}
    either = (noted.get("pods"), (noted.get("options") or {}).get("num_workers"))
    told = next((int(each) for each in either if isinstance(each, int)), 0)
    pods = objects.filter(pl.col("kind") == POD)
    counted = (
        pods.group_by("workload", "object")
        .agg(
            pl.col("moment").is_in(_GONE).any().alias("gone"),
            pl.col("moment").is_in(LOST).any().alias("lost"),
        )
        .group_by("workload")
        .agg(
            pl.len().cast(pl.Int64).alias("seen"),
            (~pl.col("gone")).sum().cast(pl.Int64).alias("staying"),
            pl.col("lost").sum().cast(pl.Int64),
        )
    )
    quorum = noted.get("quorum")
    found = names.select("workload").join(counted, on="workload", how="left").with_columns(pl.all().fill_null(0))
    expected = pl.max_horizontal(pl.lit(told, pl.Int64), "staying")
    found = found.with_columns(
        pl.when(expected > 0).then(expected).otherwise(pl.max_horizontal("seen", pl.lit(1, pl.Int64))).alias("pods")
    )
    least = pl.col("pods")
    if isinstance(quorum, int):
        least = pl.min_horizontal(pl.lit(max(1, quorum), pl.Int64), "pods")
    return found.select("workload", "pods", least.alias("quorum"), pods_seen="seen", pods_lost="lost")


def workload_moments(objects: pl.DataFrame, attempts: pl.DataFrame, gang: pl.DataFrame) -> pl.DataFrame:
    """The moments of each workload on both timelines.

    The k-th of several pods that each lie in an interval lies between the k-th lower and the k-th upper end.

    Args:
        objects: of `gpusize.cluster.phases.timelines.object_moments`.
        attempts: requests.
        gang: of `gangs`.

    Returns:
        One row for each workload, moment (of `MOMENTS`) and clock: ``lo``, ``at``, ``hi``, ``source``, ``moved``.
    """
    import polars as pl

    main = _submitted_objects(objects, attempts)
    made = [
        _of_attempts(attempts),
        _pods(objects, gang),
        *_of_objects(objects, main),
        *(
            _earliest(objects.filter(pl.col("moment") == moment), named)
            for moment, named in _FIRST.items()
            if moment != "failed"
        ),
        _earliest(objects.filter(pl.col("moment") == "failed", pl.col("kind").is_in((POD, *JOB_KINDS))), "failed"),
    ]
    found = pl.concat([each.select(_COLUMNS) for each in made])
    return pl.concat([found, _completed(found, objects)])


_COLUMNS: Final = ("workload", "moment", "clock", "lo", "at", "hi", "source", "moved")


def _submitted_objects(objects: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Kind of the object that was submitted for each workload: of attempts, else the one with the workload's name."""
    import polars as pl

    sent = (
        attempts.filter(pl.col("kind") != CLAIM)
        .sort("sent_ns")
        .group_by("workload", maintain_order=True)
        .agg(pl.col("kind").first())
    )
    beside = (CLAIM, POD_GROUP, BACKEND, "Workload", "Event")
    seen = (
        objects.filter(pl.col("name") == pl.col("workload"), ~pl.col("kind").is_in(beside))
        # Run:ai's own kinds come before the jobs that they make.
        .sort(pl.col("kind").is_in((*JOB_KINDS, POD)), pl.col("kind") == POD)
        .group_by("workload", maintain_order=True)
        .agg(pl.col("kind").first())
    )
    return pl.concat([sent, seen.join(sent, on="workload", how="anti")])


def _of_attempts(attempts: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    granted = pl.col("status").is_between(200, 299)
    each = attempts.group_by("workload").agg(
        pl.col("due_ns").min().alias("due"),
        pl.col("sent_ns").min().alias("submitted"),
        # Of a workload of several objects, when the last of them had been granted.
        pl.col("acknowledged_ns").filter(granted).max().alias("acknowledged"),
    )
    long = each.unpivot(index="workload", variable_name="moment", value_name="lo").drop_nulls("lo")
    return long.with_columns(
        pl.lit(CLIENT_CLOCK).alias("clock"),
        pl.col("lo").alias("at"),
        pl.col("lo").alias("hi"),
        pl.lit("request").alias("source"),
        pl.lit(value=False).alias("moved"),
    )


def _pods(objects: pl.DataFrame, gang: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    each = (
        objects.filter(pl.col("kind") == POD, pl.col("moment").is_in(GANG_MOMENTS))
        .group_by("workload", "moment", "clock")
        .agg(
            pl.col("lo").sort(),
            pl.col("at").sort(),
            pl.col("hi").sort(),
            # The source of the widest interval: the figure is no better than that.
            pl.col("source").sort_by(pl.col("hi") - pl.col("lo")).last(),
            pl.col("moved").any(),
        )
        .join(gang, on="workload")
    )
    places = {"first": pl.lit(0), "quorum": pl.col("quorum") - 1, "last": pl.col("pods") - 1}
    return pl.concat(
        [
            each.with_columns(
                pl.col("lo", "at", "hi").list.get(place, null_on_oob=True),
                pl.concat_str(pl.lit(f"{which}_"), "moment").alias("moment"),
            )
            .drop_nulls("lo")
            .select(_COLUMNS)
            for which, place in places.items()
        ]
    )


def _of_objects(objects: pl.DataFrame, main: pl.DataFrame) -> list[pl.DataFrame]:
    import polars as pl

    mine = objects.join(main, on=["workload", "kind"])
    created = objects.filter(pl.col("moment") == "created")
    jobs = created.filter(pl.col("kind").is_in(JOB_KINDS))
    # A job that was submitted itself is the job; what it makes below it is its own affair.
    own = jobs.join(main.filter(pl.col("kind").is_in(JOB_KINDS)), on=["workload", "kind"])
    others = jobs.join(main.filter(pl.col("kind").is_in(JOB_KINDS)).select("workload"), on="workload", how="anti")
    return [
        _earliest(mine.filter(pl.col("moment") == "created"), "workload_created"),
        _earliest(mine.filter(pl.col("moment") == "deleted"), "deleted"),
        _earliest(pl.concat([own.select(jobs.columns), others]), "job_created"),
        _earliest(created.filter(pl.col("kind") == POD_GROUP), "pod_group_created"),
        _earliest(created.filter(pl.col("kind") == BACKEND), "backend_created"),
    ]


def _earliest(rows: pl.DataFrame, named: str) -> pl.DataFrame:
    """The first of several moments: between the least lower and the least upper end."""
    import polars as pl

    return (
        rows.sort("hi")
        .group_by("workload", "clock", maintain_order=True)
        .agg(pl.col("lo", "at", "hi").min(), pl.col("source", "moved").first())
        .with_columns(pl.lit(named).alias("moment"))
    )


def _completed(found: pl.DataFrame, objects: pl.DataFrame) -> pl.DataFrame:
    """When a workload had completed: its job says so, else its last pod had succeeded."""
    import polars as pl

    said = _earliest(
        objects.filter(pl.col("moment").is_in(("completed", "finished")), pl.col("kind") != POD), "completed"
    ).select(_COLUMNS)
    pods = found.filter(pl.col("moment") == "last_succeeded").with_columns(pl.lit("completed").alias("moment"))
    return pl.concat([said, pods.join(said, on="workload", how="anti").select(_COLUMNS)])


CLOCKS: Final = (SERVER_CLOCK, CLIENT_CLOCK)
