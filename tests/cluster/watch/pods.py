"""Pods in all states of a life, whose truth is known, lines of a watch, and what was written of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from gpusize.cluster.folder import scan_table
from gpusize.cluster.tables import LABEL_RUN, LABEL_WORKLOAD, STAMPS
from gpusize.cluster.watch.stamp_book import StampBook

__all__ = ["STATES", "line", "pod", "stamps", "take", "text"]

STATES = ("new", "refused", "scheduled", "started", "ready", "ended")


def text(second: int) -> str:
    """A time as the API writes it, so many seconds after a fixed one."""
    return datetime.fromtimestamp(1_795_825_000 + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(number: int, state: str, *, run: str = "r1", second: int | None = None) -> dict[str, Any]:
    """A pod, as far as ``state``; it gets from one to the next in a second, from ``second`` on."""
    began = 10 * number if second is None else second
    reached = STATES.index(state)
    at = {name: text(began + place) for place, name in enumerate(STATES)}
    conditions: list[dict[str, Any]] = []
    status: dict[str, Any] = {"phase": "Pending", "conditions": conditions}
    if state == "refused":
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU",
             "lastTransitionTime": at["refused"]}
        )  # fmt: skip
    elif reached >= 2:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at["scheduled"]})
    if reached >= 3:
        ran = {"startedAt": at["started"]}
        ended = {"terminated": {**ran, "finishedAt": at["ended"]}}
        status["containerStatuses"] = [{"name": "main", "state": ended if state == "ended" else {"running": ran}}]
        status["phase"] = "Succeeded" if state == "ended" else "Running"
    if state == "ready":
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": at["ready"]})
    labels = {LABEL_RUN: run, LABEL_WORKLOAD: f"w-{number}"}
    metadata = {"name": f"p-{number}", "namespace": "team", "uid": f"uid-{number}", "labels": labels,
                "creationTimestamp": at["new"]}  # fmt: skip
    spec = {"nodeName": "n1"} if reached >= 2 else {}
    return {"metadata": metadata, "spec": spec, "status": status}


def stamps(folder: Path) -> pl.DataFrame:
    """What was written."""
    return scan_table(folder, STAMPS).collect()


def line(what: str, item: dict[str, Any]) -> bytes:
    """Of a watch."""
    return json.dumps({"type": what, "object": item}).encode() + b"\n"


def take(book: StampBook, kind: str, item: dict[str, Any], at_ns: int, *, reported: bool = True) -> None:
    """Let a book hear of an object, as it happens or as a watch list begins."""
    told = book.take_lines(kind, line("MODIFIED", item), at_ns, initial=not reported, late=False)
    assert told.ended is None
