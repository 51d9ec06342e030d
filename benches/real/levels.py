"""Load on so many replicas, and seconds of each request from the raw records: not by gpusize's own analysis.

The machine is as fast as its neighbours let it be, and differs over minutes. So all is measured in rounds: each sweeps
one replica and then loads every count, and what is told and what is true rest on all rounds together.
"""

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

__all__ = ["Measured", "Workload", "measured", "seconds"]

SETTLES = 0.25
"""The first part of a level, whose requests do not count: it fills the servers."""
KEEPS_UP = 0.9
"""Share of the requests of a rate that must have ended when the last one is due: else they become ever later."""
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
        router: which of several replicas a request goes to, as ``gpusize estimate --router`` takes it.
    """

    name: str
    words: tuple[str, ...]
    metric: str
    loads: tuple[Asked, ...]
    router: str = "least_loaded"


@dataclass(frozen=True)
class Measured:
    """What the rounds found.

    Attributes:
        runs: a user's runs on one replica, one for each round.
        alone: seconds of requests one at a time.
        times: seconds of each request that counts, by count of replicas and load; all infinite where a count did not
            keep up with a rate.
    """

    runs: tuple[Path, ...]
    alone: np.ndarray
    times: Mapping[int, Mapping[Asked, np.ndarray]]


def measured(
    of: Mapping[int, Workload], in_flight: Sequence[int], level_s: float, rounds: int, out: Path, core: int
) -> Measured:
    """Sweep one replica with each number in flight, load each count with each load, and so on.

    Args:
        of: what is sent to so many replicas, address included.
        in_flight: of the sweep; the first is one.
        level_s: length of each level.
        rounds: how often.
        out: for the run folders.
        core: that the load comes from.
    """
    runs: list[Path] = []
    alone: list[np.ndarray] = []
    times: dict[int, dict[Asked, list[np.ndarray]]] = {n: {load: [] for load in one.loads} for n, one in of.items()}
    sweeps = ["--concurrencies", ",".join(map(str, in_flight)), "--gpus", "1"]
    for _ in range(rounds):
        runs.append(_run([*sweeps, *of[1].words], level_s, out / "one", core))
        alone.append(seconds(_levels(runs[-1])[0], of[1].metric))
        for count, one in of.items():
            run = _run([*_load(one.loads), *one.words], level_s, out / "more", core)
            for asked, records in zip(one.loads, _levels(run), strict=True):
                times[count][asked].append(seconds(records, one.metric, due=asked.per_second))
    return Measured(
        tuple(runs),
        np.concatenate(alone),
        {n: {asked: np.concatenate(parts) for asked, parts in each.items()} for n, each in times.items()},
    )


def _levels(run: Path) -> list[Path]:
    """Folders of the records of each level, in order."""
    return [folder / "records" for folder in sorted((run / "levels").iterdir())]


def seconds(records: Path, metric: str, *, due: bool = False) -> np.ndarray:
    """Seconds of each request of a level but those of its first part; infinite for one that failed.

    Those are left out that were under way when the level closed and were cancelled, and answers without a token where
    the first one is asked for.

    Args:
        records: the folder of its parts.
        metric: ``runtime`` or ``ttft``.
        due: at a rate: counted from when a request was due, and all infinite where the replicas did not keep up.
    """
    # Parts of one level may differ in columns of later versions.
    parts = [pl.read_parquet(part, columns=COLUMNS) for part in sorted(records.glob("*.parquet"))]
    rows = pl.concat(parts).filter(pl.col("outcome") != CANCELLED)
    if due and rows.select((pl.col("end_ns") <= pl.col("due_ns").max()).mean()).item() < KEEPS_UP:
        return np.full(len(rows), math.inf)
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
