"""Levels of random closed loops with servers' figures, and what follows from their records, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpusize.analysis.compare.matching import Run
from gpusize.analysis.level import LevelData
from tests.analysis.synthetic import MS, closed, level
from tests.report.folders import server_row

S = 1_000_000_000


def measured(
    users: int,
    *,
    mean_ms: float,
    seed: int,
    gpus: int = 1,
    watts: Sequence[float] = (),
    counters: Sequence[float] = (),
    cores: Sequence[float | None] = (),
    tokens: int | None = None,
    failed: float = 0.0,
    seconds: int = 3,
) -> LevelData:
    """A closed loop of lognormal times; ``watts`` by gauge and ``counters`` by energy counter, GPU by GPU."""
    rng = np.random.default_rng(seed)
    draws = rng.lognormal(math.log(mean_ms * MS), 0.3, 5000)
    columns: dict[str, Any] = closed(users, lambda k: int(draws[k % 5000]) + 1, duration_ns=seconds * S)
    n = len(columns["due_ns"])
    columns["tokens_out"] = [tokens] * n
    columns["outcome"] = (rng.random(n) < failed).astype(int).tolist()
    rows = [server_row("gpu_power", "W", f'gpu="{k}"', mean=each) for k, each in enumerate(watts)]
    rows += [server_row("gpu_energy", "J", f'gpu="{k}"', rate=each) for k, each in enumerate(counters)]
    for metric, field in (("gpu_power", "mean"), ("gpu_energy", "rate")):
        known = [row for row in rows if row["metric"] == metric]
        if known:
            rows.append(server_row(metric, "", **{field: sum(row[field] for row in known)}))
    made = level(users, columns, gpus=gpus, duration_s=seconds)
    more: dict[str, Any] = {"server": rows} if rows else {}
    if cores:
        more["resources"] = [{"source": f"pid {k}", "cpu_mean_cores": each} for k, each in enumerate(cores)]
    return replace(made, meta={**made.meta, **more})


def rate(level: LevelData, weights: str | None = None) -> float:
    """Answers (or the sum of a column) a second, of those that ended ok in the steady window."""
    [window] = [each for each in level.intervals if each["name"] == "steady"]
    low, high = window["start_ns"], min(window["end_ns"], level.meta["close_ns"])
    rows = [row for row in level.records.collect().to_dicts() if row["outcome"] == "ok" and low < row["end_ns"] <= high]
    return float(sum(1 if weights is None else row[weights] for row in rows) / ((high - low) / S))


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def said(users: int, rate: float, *, gpus: int = 1, more: Mapping[str, Any] | None = None) -> LevelData:
    """A level of another tool: a number of users and a rate, and no records."""
    setting = {"kind": "closed", "concurrency": users}
    meta = {"setting": setting, "state": "done", "imported": True, "achieved_rate": rate, **(more or {})}
    percentiles = {"runtime_p50_s": users / rate, "runtime_p95_s": users / rate, "runtime_p99_s": users / rate}
    return LevelData(
        visit=users, setting=setting, state="done", intervals=(), gpus=gpus, run="r", meta=meta, percentiles=percentiles
    )


def run(name: str, number: int, levels: Sequence[LevelData]) -> Run:
    return Run(name, f"2026-11-{number + 1:02d}", levels)


def about(gpus: int = 1, /, **labels: str) -> dict[str, Any]:
    """What a ``run.json`` says."""
    return {"targets": [{"gpus": gpus}], "models": ["m"], "labels": labels}
