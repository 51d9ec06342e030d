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


def csv_of(runs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    """The file, oldest run first.

    Args:
        runs: the contents of each ``run.json``.
        rows: of the summary; those that were not measured to their end are left out, of repeats it is their mean.

    Raises:
        UsageError: a run does not say when it was, or no level was measured to its end.
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
    if not figures:
        raise UsageError("no level was measured to its end", None, "name other runs")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "run", *figures])
    for at, run in sorted((_time(about), str(about["run"])) for about in runs):
        means = [figures[column].get(run) for column in figures]
        writer.writerow([at, run, *("" if each is None else repr(math.fsum(each) / len(each)) for each in means)])
    return out.getvalue()


def _level(row: Mapping[str, Any]) -> str:
    return f"c{row['concurrency']}" if row["concurrency"] is not None else f"r{row['rate']:g}"


def _time(about: Mapping[str, Any]) -> str:
    """When a run began, UTC, in the format that sorts as text."""
    try:
        return datetime.fromisoformat(str(about.get("created"))).astimezone(UTC).isoformat(timespec="seconds")
    except ValueError:
        raise UsageError("it does not say when it was measured", str(about.get("run")), "leave this run out") from None
