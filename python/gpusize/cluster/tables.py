"""The tables of a folder of `gpusize cluster`: their columns, and the names of what can be stamped.

A *moment* is something that happens to an object of the cluster, such as ``created`` or ``scheduled``. A *stamp* is one
source's word on when it happened. Times are ns since 1970 throughout.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "ATTEMPTS",
    "CLIENT_CLOCK",
    "LABEL_INDEX",
    "LABEL_RUN",
    "LABEL_WORKLOAD",
    "MOMENTS",
    "SERVER_CLOCK",
    "STAMPS",
    "TABLES",
    "attempts_schema",
    "stamps_schema",
]

ATTEMPTS: Final = "attempts"
STAMPS: Final = "stamps"

LABEL_RUN: Final = "gpusize.dev/run"
"""On every object that a run creates, so that all of them can be listed and deleted."""

LABEL_WORKLOAD: Final = "gpusize.dev/workload"
"""The workload's name: on its objects, and on the pods of kinds whose pod template is known."""

LABEL_INDEX: Final = "gpusize.dev/index"
"""The workload's number in its run, from 0."""

CLIENT_CLOCK: Final = "client"
"""Our own (`gpusize.cluster.clock`)."""

SERVER_CLOCK: Final = "server"
"""The API server's and the controllers': of the control plane's machines, which are taken for one clock."""

MOMENTS: Final = (
    # of any object: `deleting` is when its deletion was asked for
    "created",
    "deleting",
    "deleted",
    # of a pod
    "scheduled",
    "unschedulable",
    "bound",
    "initialized",
    "ready_to_start",
    "started",
    "running",
    "containers_ready",
    "ready",
    "succeeded",
    "failed",
    "evicted",
    # of a workload that waits in a queue
    "queued",
    "quota_reserved",
    "admitted",
    "pods_ready",
    "preempted",
    "requeued",
    "finished",
    # of a job
    "suspended",
    "resumed",
    "completed",
    # of a volume claim
    "bind_requested",
    "claim_bound",
)
"""What the column ``moment`` may hold; ``condition:TYPE`` is the word for other conditions."""


def attempts_schema() -> dict[str, Any]:
    """Columns of ``attempts`` and their types: one row for each request that was to create an object.

    ``workload``, ``index``: name and number in the run. ``kind``, ``name``, ``namespace``: its own. ``attempt``: 0 for
    the first, then one more each retry. ``due_ns``: when it was due by the schedule (of a retry: when the pause
    had ended); ``sent_ns``: when it was sent; ``acknowledged_ns``: when the answer had come, null without one.
    ``status``: of HTTP, 0 without an answer. ``reason``, ``message``: the server's, or what went wrong here.
    ``retry_after_s``: what the server asked for. ``uid``: of the object created; with status 409, of one
    that an unanswered request had created. ``server_date_s``: the answer's
    ``Date`` header, whole seconds.
    """
    import polars as pl

    return {
        "workload": pl.String,
        "index": pl.Int64,
        "kind": pl.String,
        "name": pl.String,
        "namespace": pl.String,
        "attempt": pl.Int32,
        "due_ns": pl.Int64,
        "sent_ns": pl.Int64,
        "acknowledged_ns": pl.Int64,
        "status": pl.Int32,
        "reason": pl.String,
        "message": pl.String,
        "retry_after_s": pl.Float64,
        "uid": pl.String,
        "server_date_s": pl.Int64,
    }


def stamps_schema() -> dict[str, Any]:
    """Columns of ``stamps`` and their types: one row for each source's word on each moment of each object.

    ``workload``: the workload's name, null where the object belongs to none that is known. ``kind``, ``namespace``,
    ``name``, ``uid``: of the object; ``part``: of which part of it, such as a container, else null. ``moment``: one of
    `MOMENTS`, or ``condition:TYPE``. ``at_ns``: when, by that source. ``resolution_ns``: the true time lies in
    ``[at_ns, at_ns + resolution_ns)``; 1 for an exact one. ``source``: such as ``creationTimestamp``,
    ``condition PodScheduled``, ``event Scheduled``, ``watch``. ``clock``: ``client`` or ``server``. ``received_ns``:
    when it reached us, by our clock. ``reason``, ``message``: of the condition or event, null without. ``reported``:
    whether it was seen as it happened (a watch), or found later in a list, when ``watch`` gives only an upper bound.
    """
    import polars as pl

    return {
        "workload": pl.String,
        "kind": pl.String,
        "namespace": pl.String,
        "name": pl.String,
        "uid": pl.String,
        "part": pl.String,
        "moment": pl.String,
        "at_ns": pl.Int64,
        "resolution_ns": pl.Int64,
        "source": pl.String,
        "clock": pl.String,
        "received_ns": pl.Int64,
        "reason": pl.String,
        "message": pl.String,
        "reported": pl.Boolean,
    }


TABLES: Final = {ATTEMPTS: attempts_schema, STAMPS: stamps_schema}
