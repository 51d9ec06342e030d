"""Folders of the Run:ai scale test tool, as tables: what it sampled has a resolution of one second."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import PathMissing, StoreError
from gpusize.base.regular_files import read_regular
from gpusize.base.text import shown
from gpusize.cluster.seed_files.keys import DEFAULTS, SAMPLED_KEYS, SUBMITTED_KEYS, parse_time
from gpusize.cluster.tables import SERVER_CLOCK, attempts_schema, stamps_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import polars as pl

__all__ = ["SAMPLED", "SUBMITTED", "is_seed_folder", "read_seed_folder"]

SUBMITTED: Final = "submitted.json"
SAMPLED: Final = "sampled.json"
_KINDS: Final = {
    "workloadCreatedTimestamp": ("TrainingWorkload", "", "created"),
    "jobCreatedTimestamp": ("RunaiJob", "/job", "created"),
    "podGroupCreatedTimestamp": ("PodGroup", "/group", "created"),
    "firstEvictionTimestamp": ("PodGroup", "/group", "evicted"),
    "firstPVCBindRequestTimestamp": ("PersistentVolumeClaim", "/claim", "bind_requested"),
    "firstPVCBindTimestamp": ("PersistentVolumeClaim", "/claim", "claim_bound"),
    "backendJobCreatedTimestamp": ("Backend", "/backend", "created"),
}
"""Of which object each time is. The first and the last pod stand for all; which pod was scheduled nobody noted."""
_PODS: Final = (("firstPodCreatedTimestamp", "/first"), ("lastPodCreatedTimestamp", "/last"))


def is_seed_folder(folder: Path) -> bool:
    """Whether a folder has the tool's files."""
    return (folder / SUBMITTED).is_file()


def read_seed_folder(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """The stamps, the attempts and the facts of a folder of that tool.

    It notes neither what was refused nor what had not been scheduled; what was submitted and is not in
    ``sampled.json`` is pending. It takes the submitter's clock and the server's for one.

    Raises:
        PathMissing: there is no ``submitted.json``.
        StoreError: a file that cannot be read, with the row.
    """
    import polars as pl

    if not is_seed_folder(folder):
        raise PathMissing(f"there is no {SUBMITTED} in it", str(folder), "name the folder of a cluster test")
    submitted = _rows(folder / SUBMITTED, SUBMITTED_KEYS)
    sampled = _rows(folder / SAMPLED, ("jobName", "projectName")) if (folder / SAMPLED).is_file() else []
    names = _names([*submitted, *sampled])
    attempts, twice = _attempts(folder, submitted, names)
    known = {row["workload"] for row in attempts}
    stamps: list[dict[str, Any]] = []
    backend = any(row.get("backendJobCreatedTimestamp") != row.get("workloadCreatedTimestamp") for row in sampled)
    unsubmitted = 0
    for number, row in enumerate(sampled):
        workload = names[row["jobName"], row["projectName"]]
        unsubmitted += workload not in known
        if workload in known:
            stamps += _stamps(folder / SAMPLED, number, row, workload, backend=backend)
    last = max((row["at_ns"] for row in stamps), default=max((row["sent_ns"] for row in attempts), default=0))
    facts = {
        "version": 1,
        "submit": {"project": submitted[0]["projectName"] if submitted else None},
        "sample": {
            "ended_ns": max([last, *(row["sent_ns"] for row in attempts)]),
            "partial": True,
            "clock": {"offset_ns": 0, "lo": 0, "hi": 0, "assumed": True},
        },
        "seed_files": {"twice": twice, "unsubmitted": unsubmitted},
    }
    return (
        pl.DataFrame(stamps, schema=stamps_schema(), orient="row"),
        pl.DataFrame(attempts, schema=attempts_schema(), orient="row"),
        facts,
    )


def _rows(file: Path, needed: Iterable[str]) -> list[dict[str, Any]]:
    try:
        found = json.loads(read_regular(file))
    except ValueError as problem:
        raise StoreError(f"broken JSON: {problem}", str(file), "restore it from a copy") from None
    if not isinstance(found, list):
        raise StoreError("it is no list of jobs", str(file), "name the folder of a cluster test")
    for number, row in enumerate(found):
        lacking = [key for key in needed if not isinstance(row, dict) or not isinstance(row.get(key), str)]
        if lacking:
            raise StoreError(f"job {number} has no {lacking[0]}", str(file), "restore it from a copy")
    return found


def _names(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """A name for each job of each project; with the project where several projects have it."""
    projects: dict[str, set[str]] = {}
    for row in rows:
        projects.setdefault(row["jobName"], set()).add(row["projectName"])
    return {
        (name, project): name if len(those) == 1 else f"{project}/{name}"
        for name, those in projects.items()
        for project in those
    }


def _attempts(
    folder: Path, submitted: list[dict[str, Any]], names: dict[tuple[str, str], str]
) -> tuple[list[dict[str, Any]], int]:
    """The submissions, and how many of them had a name that was taken: those changed what was there."""
    made, seen = [], set()
    for number, row in enumerate(submitted):
        sent, _ = _time(folder / SUBMITTED, number, "submitTimestamp", row["submitTimestamp"])
        workload = names[row["jobName"], row["projectName"]]
        again = workload in seen
        seen.add(workload)
        made.append(
            {
                **dict.fromkeys(attempts_schema()),
                "workload": workload,
                "index": number,
                "kind": "TrainingWorkload",
                "name": row["jobName"],
                "namespace": row["jobNamespace"],
                "attempt": int(again),
                "sent_ns": sent,
                "status": 201,
            }
        )
    return made, len(made) - len(seen)


def _stamps(file: Path, number: int, row: dict[str, Any], workload: str, *, backend: bool) -> list[dict[str, Any]]:
    made = []

    def add(key: str, kind: str, part: str, moment: str) -> None:
        text = row.get(key)
        if not isinstance(text, str) or (DEFAULTS.get(key) and text == row.get(DEFAULTS[key])):
            return
        at, resolution = _time(file, number, key, text)
        made.append(
            {
                **dict.fromkeys(stamps_schema()),
                "workload": workload,
                "kind": kind,
                "namespace": row.get("jobNamespace"),
                "name": f"{workload}{part}",
                "uid": f"{workload}{part}",
                "moment": moment,
                "at_ns": at,
                "resolution_ns": resolution,
                "source": SAMPLED,
                "clock": SERVER_CLOCK,
                "reported": False,
            }
        )

    for key, (kind, part, moment) in _KINDS.items():
        if key != "backendJobCreatedTimestamp" or backend:
            add(key, kind, part, moment)
    for key, part in _pods(file, number, row):
        add(key, "Pod", part, "created")
        add("podSchedulingDecisionTimestamp", "Pod", part, "scheduled")
    return made


def _pods(file: Path, number: int, row: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """The pods that a job is known to have: two where their creations differ.

    Jobs of one pod have the same time twice, and two pods of them would double all figures of pods.
    """
    told = [(key, part) for key, part in _PODS if isinstance(row.get(key), str)]
    times = {_time(file, number, key, row[key])[0] for key, _ in told}
    return told if len(times) > 1 else told[:1] or _PODS[:1]


def _time(file: Path, number: int, key: str, text: str) -> tuple[int, int]:
    try:
        return parse_time(text)
    except ValueError:
        raise StoreError(
            f"{key} of job {number} is no time: {shown(text, 60)}", str(file), f"correct it; all keys: {_ALL}"
        ) from None


_ALL: Final = ", ".join(SAMPLED_KEYS)
