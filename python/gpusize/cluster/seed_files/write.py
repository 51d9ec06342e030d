"""``submitted.json``, ``sampled.json`` and ``times.csv`` from the tables of a test."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from gpusize.base.files import write_atomic
from gpusize.cluster.phases.deltas import DONE
from gpusize.cluster.seed_files.keys import (
    DEFAULTS,
    DELTAS,
    SAMPLED_KEYS,
    SAMPLED_NAMES,
    STAMP_COLUMNS,
    SUBMITTED_KEYS,
    time_text,
)
from gpusize.cluster.seed_files.read import SAMPLED, SUBMITTED

if TYPE_CHECKING:
    from pathlib import Path

    from gpusize.cluster.phases.timed import Timed

__all__ = ["TIMES", "write_sampled", "write_submitted", "write_times"]

TIMES = "times.csv"


def write_submitted(folder: Path, timed: Timed) -> Path:
    """Write ``submitted.json``: every workload that was granted, with the time of its first request.

    Raises:
        StoreError: it cannot be written.
    """
    made = [
        dict(zip(SUBMITTED_KEYS, (*_names(row, timed), _time(row, "submitted")), strict=True))
        for row in timed.workloads.iter_rows(named=True)
        if row["submitted_ns"] is not None and row["outcome"] != "refused"
    ]
    file = folder / SUBMITTED
    write_atomic(file, json.dumps(made).encode())
    return file


def write_sampled(folder: Path, timed: Timed) -> Path:
    """Write ``sampled.json``: every workload of which pods were scheduled, as the tool that reads it expects.

    Where nothing was evicted and no volume was bound it has the time of the scheduling decision, and where no control
    plane was asked that of the workload's creation, as that tool writes it. What has no default, such as the pod group
    of a workload without one, is null.

    Raises:
        StoreError: it cannot be written.
    """
    made = []
    for row in timed.workloads.iter_rows(named=True):
        if row["last_scheduled_ns"] is None or row["workload_created_ns"] is None:
            continue
        name, project, namespace = _names(row, timed)
        times = {key: _time(row, moment) for key, moment in SAMPLED_KEYS.items()}
        if times["jobCreatedTimestamp"] is None:
            times["jobCreatedTimestamp"] = times["workloadCreatedTimestamp"]
        filled = {key: text or times.get(DEFAULTS.get(key, "")) for key, text in times.items()}
        made.append({**dict(zip(SAMPLED_NAMES, (name, namespace, project), strict=True)), **filled})
    file = folder / SAMPLED
    write_atomic(file, json.dumps(made).encode())
    return file


def write_times(folder: Path, timed: Timed) -> Path:
    """Write ``times.csv``: a row for each workload by submission, those that never ended included.

    A cell of what did not happen, or was not measured, is empty. Deltas are seconds.

    Raises:
        StoreError: it cannot be written.
    """
    import polars as pl

    values: dict[tuple[str, str], float] = {
        (workload, phase): value / 1e9
        for workload, phase, value in timed.deltas.filter(
            pl.col("state") == DONE, pl.col("phase").is_in(list(DELTAS.values()))
        )
        .select("workload", "phase", "value_ns")
        .iter_rows()
    }
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["Job Name", "Namespace", "projectName", *STAMP_COLUMNS, *DELTAS])
    for row in timed.workloads.filter(~pl.col("workload").is_in(list(timed.left_out))).iter_rows(named=True):
        name, project, namespace = _names(row, timed)
        times = [(_time(row, moment) or "").replace("T", " ").rstrip("Z") for moment in STAMP_COLUMNS.values()]
        deltas = [values.get((row["workload"], phase)) for phase in DELTAS.values()]
        writer.writerow(
            [name, namespace, project, *times, *("" if each is None else f"{each:.6f}".rstrip("0") for each in deltas)]
        )
    file = folder / TIMES
    write_atomic(file, out.getvalue().encode())
    return file


def _names(row: dict[str, Any], timed: Timed) -> tuple[str, str, str]:
    """Job, project, namespace."""
    told = timed.facts.get("submit") or {}
    namespace = row.get("namespace") or told.get("namespace") or ""
    project = told.get("project") or namespace.removeprefix("runai-")
    return row["workload"], project, namespace


def _time(row: dict[str, Any], moment: str) -> str | None:
    middle, error = row[f"{moment}_ns"], row[f"{moment}_error_ns"]
    return None if middle is None else time_text(middle - error, middle + error)
