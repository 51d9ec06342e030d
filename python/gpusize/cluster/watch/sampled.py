"""``sampled.json`` as the Run:ai scale test tool writes it, from stamps: one object for each workload that is complete.

Its keys and their order, its whole seconds. What it measures is mended: all pods of a workload count and not one of
them, a verdict of Unschedulable is no decision, an eviction belongs to its victim, and pods that are gone still count.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.files import write_atomic
from gpusize.cluster.folder import FACTS, read_facts, scan_table
from gpusize.cluster.own_rows import own_rows
from gpusize.cluster.seed_files.keys import SAMPLED_KEYS, SAMPLED_NAMES, SECOND_NS
from gpusize.cluster.seed_files.read import SAMPLED
from gpusize.cluster.tables import ATTEMPTS, SERVER_CLOCK, STAMPS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import polars as pl

__all__ = ["KEYS", "sampled_rows", "write_sampled"]

KEYS: Final = (*SAMPLED_NAMES, *SAMPLED_KEYS)
_RUN_AI: Final = ("TrainingWorkload", "DistributedWorkload", "InteractiveWorkload")
_JOBS: Final = ("RunaiJob", "PyTorchJob", "TrainJob", "JobSet", "Job", "Deployment")
_QUEUED: Final = ("PodGroup", "Workload")
_ENDED: Final = ("succeeded", "failed", "deleted")


def write_sampled(folder: Path, project: str) -> tuple[int, int]:
    """Write ``sampled.json`` anew; a reader sees the old one or the new one.

    Args:
        folder: of the test.
        project: what ``projectName`` says.

    Returns:
        How many workloads are in it, and how many were seen in all.

    Raises:
        StoreError: the folder cannot be read or written.
    """
    stamps, attempts = (scan_table(folder, table).collect() for table in (STAMPS, ATTEMPTS))
    facts = read_facts(folder) if (folder / FACTS).exists() else {}
    rows, seen = sampled_rows(own_rows(stamps, attempts, facts), project)
    write_atomic(folder / SAMPLED, (json.dumps(rows, indent=4) + "\n").encode())
    return len(rows), seen


def sampled_rows(stamps: pl.DataFrame, project: str) -> tuple[list[dict[str, str]], int]:
    """The objects of ``sampled.json``, by name, and how many workloads there are in all.

    Args:
        stamps: of `gpusize.cluster.tables.stamps_schema`.
        project: what ``projectName`` says.
    """
    import polars as pl

    known = stamps.filter(pl.col("workload").is_not_null())
    times = known.filter(pl.col("clock") == SERVER_CLOCK)
    created = times.filter(pl.col("moment") == "created", pl.col("source") == "creationTimestamp")
    kinds = set(known["kind"].unique())
    first = {
        key: _each(created.filter(pl.col("kind").is_in(of)), pl.col("at_ns").min())
        for key, of in (("run_ai", _RUN_AI), ("job", _JOBS), ("queued", _QUEUED), ("pod", ("Pod",)))
    }
    last_pod = _each(created.filter(pl.col("kind") == "Pod"), pl.col("at_ns").max())
    decided = _decisions(known)
    evicted = _each(times.filter(pl.col("moment").is_in(("evicted", "preempted"))), pl.col("at_ns").min())
    asked = _each(times.filter(pl.col("moment") == "bind_requested"), pl.col("at_ns").min())
    bound = _each(times.filter(pl.col("moment") == "claim_bound"), pl.col("at_ns").min())
    namespaces = _each(known, pl.col("namespace").drop_nulls().first())
    rows = []
    for name in sorted(namespaces):
        job = first["job"].get(name)
        top = (
            first["run_ai"].get(name) if kinds & set(_RUN_AI) else (job if job is not None else first["pod"].get(name))
        )
        job = job if job is not None or kinds & set(_JOBS) else top
        queued = first["queued"].get(name) if kinds & set(_QUEUED) else last_pod.get(name)
        decision = decided.get(name)
        told = (top, job, first["pod"].get(name), last_pod.get(name), queued, decision)
        if any(each is None for each in told):
            continue
        # As in that tool: what did not happen has the time of the decision, and no backend that of the workload.
        more = (evicted.get(name, decision), asked.get(name, decision), bound.get(name, decision), top)
        written = [_text(int(each or 0), zone) for each, zone in zip((*told, *more), _ZONES, strict=True)]
        rows.append(dict(zip(KEYS, (name, namespaces[name] or "", project, *written), strict=True)))
    return rows, len(namespaces)


_ZONES: Final = ("Z", "Z", "+00:00", "+00:00", "Z", "+00:00", "+00:00", "+00:00", "+00:00", "Z")
"""Raw objects have Z, and what the tool's client parses the other form."""


def _decisions(known: pl.DataFrame) -> Mapping[str, int]:
    """When the last pod of each workload was scheduled; none for one with a pod that waits.

    Pods that are over, and were never scheduled, wait no more: they were replaced.
    """
    import polars as pl

    pods = known.filter(pl.col("kind") == "Pod")
    by_condition = (pl.col("moment") == "scheduled") & (pl.col("clock") == SERVER_CLOCK)
    each = pods.group_by("workload", "uid").agg(
        pl.col("at_ns").filter(by_condition).min().alias("at_ns"),
        pl.col("moment").is_in(_ENDED).any().alias("over"),
    )
    whole = each.group_by("workload").agg(
        pl.col("at_ns").max(), (pl.col("at_ns").is_null() & ~pl.col("over")).any().alias("waits")
    )
    done = whole.filter(~pl.col("waits"), pl.col("at_ns").is_not_null())
    return dict(done.select("workload", "at_ns").iter_rows())


def _each(rows: pl.DataFrame, value: pl.Expr) -> dict[str, Any]:
    return dict(rows.group_by("workload").agg(value.alias("value")).iter_rows())


def _text(at_ns: int, zone: str) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%S") + zone
