"""Load on so many replicas, and seconds of each request from the raw records: not by gpusize's own analysis."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.real.question import Asked

__all__ = ["Workload", "measured", "seconds", "sweep"]

SETTLES = 0.25
"""The first part of a level, whose requests do not count: it fills the servers."""
COLUMNS = ["due_ns", "sent_ns", "first_token_ns", "end_ns", "outcome"]
OK, CANCELLED = 0, 8
"""Codes of outcomes (docs/reference/records.md)."""


@dataclass(frozen=True)
class Workload:
    """What is sent, and how much of it is asked about.

    Attributes:
        name: for tables.
        words: options of ``gpusize run`` that say what a request is.
        metric: ``runtime`` or ``ttft``.
        loads: that questions are about; all are users, or all rates.
    """

    name: str
    words: tuple[str, ...]
    metric: str
    loads: tuple[Asked, ...]


def sweep(url: str, workload: Workload, in_flight: Sequence[int], level_s: float, out: Path, core: int) -> Path:
    """A user's run on one replica, a level for each number in flight; its folder."""
    words = ["--concurrencies", ",".join(map(str, in_flight)), "--gpus", "1"]
    return _run([*words, "--url", url, *workload.words], level_s, out, core)


def measured(
    urls: Mapping[int, str], workload: Workload, level_s: float, out: Path, core: int
) -> dict[int, dict[Asked, np.ndarray]]:
    """What each load took on so many replicas: seconds of each request that counts."""
    found = {}
    for count, url in urls.items():
        run = _run([*_load(workload.loads), "--url", url, *workload.words], level_s, out, core)
        folders = sorted((run / "levels").iterdir())
        found[count] = {
            asked: seconds(folder / "records", workload.metric, due=asked.per_second)
            for asked, folder in zip(workload.loads, folders, strict=True)
        }
    return found


def seconds(records: Path, metric: str, *, due: bool = False) -> np.ndarray:
    """Seconds of each request of a level but those of its first part; infinite for one that failed.

    Those are left out that were under way when the level closed and were cancelled, and answers without a token where
    the first one is asked for.

    Args:
        records: the folder of its parts.
        metric: ``runtime`` or ``ttft``.
        due: counted from when a request was due, as at a rate, and not from when it was sent.
    """
    # Parts of one level may differ in columns of later versions.
    parts = [pl.read_parquet(part, columns=COLUMNS) for part in sorted(records.glob("*.parquet"))]
    rows = pl.concat(parts).filter(pl.col("outcome") != CANCELLED)
    start, last = rows["due_ns"].min(), rows["due_ns"].max()
    rows = rows.filter(pl.col("due_ns") >= start + SETTLES * (last - start))
    end = pl.col("end_ns" if metric == "runtime" else "first_token_ns")
    took = (end - pl.col("due_ns" if due else "sent_ns")) / 1e9
    each = pl.when(pl.col("outcome") == OK).then(took).otherwise(math.inf)
    return rows.select(each).to_series().drop_nulls().to_numpy()


def _load(loads: Sequence[Asked]) -> list[str]:
    amounts = ",".join(f"{each.amount:g}" for each in loads)
    if loads[0].per_second:
        return ["--rates", amounts]
    pause = loads[0].think_s
    return ["--concurrencies", amounts, *(["--think", f"exp({pause:g}s)"] if pause else [])]


def _run(words: Sequence[str], level_s: float, out: Path, core: int) -> Path:
    more = ["--duration", f"{level_s:g}s", "--out", str(out), "--json", "--no-plots", "--metrics-url", "none"]
    done = run_measured(pinned([sys.executable, "-m", "gpusize", "run", *words, *more], core))
    run = Path(json.loads(done.stdout)["path"])
    for level in sorted(run.glob("levels/*/level.json")):
        told = json.loads(level.read_text(encoding="utf-8"))
        if failed := {name: count for name, count in told["outcomes"].items() if name not in ("ok", "cancelled")}:
            raise BenchFailed(f"requests failed, so this is no measurement: {failed} {told['errors'][:1]}")
    return run
