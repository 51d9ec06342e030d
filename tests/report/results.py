"""A result that never was: summaries and estimates with known numbers, for the tests of the report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gpusize.estimate.calculator_line import fit_line
from gpusize.estimate.question import Estimate, whole_gpus
from gpusize.report.summary.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

SLO = "p95 runtime <= 10s"
HOSTILE = '\x1b[31mred\x1b]0;owned\x07\u202e <script>alert(1)</script> [bold]big[/bold] & "quoted" $x^2$ \x00\x9b2J'
LEVELS = (1, 2, 4, 8, 16, 32)
P95_S = (4.03488, 4.71197, 5.67581, 7.90895, 12.677, 24.5307)
ATTAINMENT = (1.0, 1.0, 1.0, 0.99, 0.4, 0.0)
FACTORS = {"p50": 0.8, "p90": 0.95, "p95": 1.0, "p99": 1.1, "max": 1.25}


@dataclass
class Source:
    """What a report reads of a result."""

    summary: pl.DataFrame
    meta: Mapping[str, Any] = field(default_factory=dict)
    slos: Sequence[Any] = (SLO,)
    path: Path | None = None
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


def row(x: float, p95_s: float, *, kind: str = "closed", tokens: bool = True, **changes: Any) -> dict[str, Any]:
    """One row of a summary; ``x`` is the concurrency, or the rate of an open loop."""
    rate = x / (0.8 * p95_s) if kind == "closed" else x
    times = {"runtime": p95_s, "service": p95_s, "lateness": 20e-6}
    times |= {"ttft": p95_s / 10, "itl": p95_s / 160} if tokens else {}
    values: dict[str, Any] = {
        "visit": int(x),
        "run": "20261120T210312Z-7f3a9c",
        "kind": kind,
        "concurrency": int(x) if kind == "closed" else None,
        "rate": None if kind == "closed" else float(x),
        "state": "done",
        "n": 1234,
        "offered_rate": rate,
        "achieved_rate": rate,
        **{
            f"{metric}_{name}_s": times[metric] * factor if metric in times else None
            for metric in ("runtime", "service", "ttft", "itl", "lateness")
            for name, factor in FACTORS.items()
        },
        "total_runtime_s": 60.0,
        "tokens_out_per_s": rate * 128 if tokens else None,
        "errors": 0,
        "flags": [],
        "gpus": 8,
        "alerts": [],
        "slo_0": SLO,
        "slo_0_attainment": 1.0,
        "slo_0_met": True,
    }
    return {**values, **changes}


def frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A summary; lists are of texts even where all of them are empty."""
    lists = {"flags": pl.List(pl.String), "alerts": pl.List(pl.String)}
    return pl.DataFrame(rows, schema_overrides=lists, infer_schema_length=None)


def meta(**changes: Any) -> dict[str, Any]:
    """The contents of a run.json."""
    target = {"url": "http://gpu-07:8000/v1/chat/completions", "api": "openai-chat", "model": "m-70b", "gpus": 8}
    host = {"hostname": "bench-1", "cpu": "EPYC", "cores": 32, "memory_bytes": 64 * 2**30, "kernel": "6.1"}
    facts = {
        "schema": 1,
        "gpusize": "0.1.0",
        "run": "20261120T210312Z-7f3a9c",
        "created": "2026-11-20T21:03:12Z",
        "command": ["gpusize", "run", "--slo", SLO],
        "targets": [{**target, "tls_verified": None, "simulated": None}],
        "hosts": [{**host, "python": "3.11.7"}],
        "dataset": {"source": "prompts.jsonl", "rows": 120, "sha256": "ab" * 32},
        "seed": 1,
        "labels": {"node": "a"},
    }
    return {**facts, **changes}


def sweep(*more: Mapping[str, Any], **changes: Any) -> Source:
    """Six closed-loop levels, the last two of which miss the SLO, and further rows."""
    rows = [
        row(c, y, slo_0_attainment=share, slo_0_met=share >= 0.95)
        for c, y, share in zip(LEVELS, P95_S, ATTAINMENT, strict=True)
    ]
    return Source(frame([*rows, *more]), meta(**changes))


def interrupted(c: int = 64, p95_s: float = 60.0, alert: str = HOSTILE) -> dict[str, Any]:
    """A level that a failure voided, with an alert."""
    lost: dict[str, Any] = {"state": "interrupted", "errors": 3, "flags": ["interrupted"], "alerts": [alert]}
    return row(c, p95_s, **lost, slo_0_attainment=0.0, slo_0_met=False)


def slope(levels: Sequence[int] = LEVELS, p95_s: Sequence[float] = P95_S, **changes: Any) -> Estimate:
    """The slope method's answer for 100 users on 8 GPUs, with the details that figures read."""
    result = fit_line(list(levels), list(p95_s))
    line = result.fit or result.rejected
    gone = line.outliers_removed if line else ()
    details = {
        "target_s": 10.0,
        "fit": result.fit.to_json() if result.fit else None,
        "rejected_fit": result.rejected.to_json() if result.rejected else None,
        "points": [{"concurrency": c, "value_s": y, "used": c not in gone} for c, y in zip(levels, p95_s, strict=True)],
    }
    fields: dict[str, Any] = {"reason": result.reason}
    if result.fit:
        capacity = (10 - result.fit.intercept) / result.fit.slope
        raw = 100 / capacity * 8
        fields = {"gpus": whole_gpus(raw), "gpus_raw": raw, "capacity_concurrency": capacity}
        fields["outside_tested_range"] = capacity > max(levels)
    texts = {"assumptions": ("capacity grows in proportion",), "warnings": ("only 8 requests at level 1",)}
    return Estimate(**{"method": "slope", "tested_gpus": 8, "users": 100.0, "slo": SLO, "details": details,
                       "next_levels": (10, 13), **texts, **fields, **changes})  # fmt: skip


def crossing(**changes: Any) -> Estimate:
    """The crossing method's answer for the sweep above."""
    points = [
        {"concurrency": c, "attainment": a, "monotone": a, "n": 1234, "low": max(0, a - 0.02), "high": min(1, a + 0.02)}
        for c, a in zip(LEVELS, ATTAINMENT, strict=True)
    ]
    at = 8 + 8 * (0.99 - 0.95) / (0.99 - 0.4)
    fields: dict[str, Any] = {"gpus": 94, "gpus_raw": 100 / at * 8, "gpus_low": 50, "gpus_high": 100}
    fields |= {"capacity_concurrency": at, "details": {"share": 0.95, "points": points}}
    return Estimate(**{"method": "crossing", "tested_gpus": 8, "users": 100.0, "slo": SLO, **fields, **changes})


def console(width: int = 80, encoding: str = "utf-8") -> tuple[Console, io.BytesIO]:
    """A console that is no terminal, and what it wrote."""
    raw = io.BytesIO()
    return make_console(io.TextIOWrapper(raw, encoding=encoding, write_through=True), width=width), raw
