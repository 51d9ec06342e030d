"""Runs as Apache Otava's CSV: one row per run, with its time and a column per level and figure.

Otava looks for changes in each column over time: https://otava.apache.org/docs/csv.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from gpusize.base.errors import UsageError

__all__ = ["FIGURES", "csv_of"]

FIGURES: Final = (
    *("achieved_rate", "tokens_out_per_s", "runtime_p50_s", "runtime_p95_s", "runtime_p99_s"),
    *("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s"),
)


def csv_of(runs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The file, oldest run first, and what is not in it.

    Otava reads no empty field, so that a figure that a run lacks is left out of all.

    Args:
        runs: the contents of each ``run.json``.
        rows: of the summary; those that were not measured to their end are left out, of repeats it is their mean.

    Raises:
        UsageError: a run does not say when it was, or no figure is known of every run.
    """
    figures: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["state"] != "done" or row["ramp"]:
            continue
        for name in FIGURES:
            value = row[name]
            if value is not None and math.isfinite(value):
                column = f"{_level(row)}_{name}"
                figures.setdefault(column, {}).setdefault(str(row["run"]), []).append(value)
    ids = [str(about["run"]) for about in runs]
    kept = {column: found for column, found in figures.items() if len(found) == len(ids)}
    if not kept:
        raise UsageError("no level was measured in every run", None, "name runs that have levels in common")
    notes = [f"{name} is left out: not every run has it" for name in figures if name not in kept]
    imported = [str(about["run"]) for about in runs if about.get("source")]
    if imported:
        notes.append(f"the time is that of the import, not of the measurement, of {', '.join(imported)}")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "run", *kept])
    for at, run in sorted((_time(about), str(about["run"])) for about in runs):
        means = (found[run] for found in kept.values())
        writer.writerow([at, run, *(repr(math.fsum(each) / len(each)) for each in means)])
    return out.getvalue(), notes


def _level(row: Mapping[str, Any]) -> str:
    return f"c{row['concurrency']}" if row["concurrency"] is not None else f"r{row['rate']:.12g}"


def _time(about: Mapping[str, Any]) -> str:
    """When a run began, UTC, in the format that sorts as text."""
    try:
        return datetime.fromisoformat(str(about.get("created"))).astimezone(UTC).isoformat(timespec="seconds")
    except ValueError:
        raise UsageError("it does not say when it was measured", str(about.get("run")), "leave this run out") from None
