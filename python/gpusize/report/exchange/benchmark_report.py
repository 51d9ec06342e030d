"""Levels as documents of llm-d's Benchmark Report v0.2.1, one for each level.

Its latencies count from the first write, as other tools count them: ``service`` and ``ttft_sent``. What it has no place
for, as times from when a request was due, stands under ``native.config.gpusize`` of a component of our own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.histograms import histogram_mean
from gpusize.analysis.metrics import QUANTILES
from gpusize.analysis.throughput import request_rate
from gpusize.report.export import strict

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["LATENCIES", "OWN", "PROBABILITIES", "VERSION", "documents"]

VERSION: Final = "0.2.1"
OWN: Final = "gpusize"
"""Label of our component, and key of what is in its ``native.config``."""
PROBABILITIES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "min": 0.0,
        "p0p1": 0.001,
        "p1": 0.01,
        "p5": 0.05,
        "p10": 0.1,
        "p25": 0.25,
        "p50": 0.5,
        "p75": 0.75,
        "p90": 0.9,
        "p95": 0.95,
        "p99": 0.99,
        "p99p9": 0.999,
        "max": 1.0,
    }
)
"""The schema's percentiles."""
LATENCIES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "request_latency": ("service", "s"),
        "time_to_first_token": ("ttft_sent", "s"),
        "time_per_output_token": ("itl_mean", "s/token"),
        "inter_token_latency": ("itl", "s/token"),
    }
)
"""By the schema's name our metric, and the unit there."""
_OBSERVED: Final = {
    "gpu_utilization": ("server_gpu_utilization", None, "percent", 100.0),
    "kv_cache_usage": ("server_kv_cache_use", "server_kv_cache_use_max", "percent", 100.0),
    "running_requests": ("server_running", None, "count", 1.0),
    "waiting_requests": ("server_waiting", None, "count", 1.0),
    "power_consumption": ("server_gpu_power_w", None, "Watts", 1.0),
    "cpu_utilization": ("server_cpu_utilization", None, "percent", 100.0),
}


def documents(
    levels: Sequence[LevelData], rows: Sequence[Mapping[str, Any]], versions: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The documents, by a name that tells them apart.

    Args:
        levels: single visits.
        rows: of the summary, one for each level.
        versions: of gpusize, by run.
    """
    several = len({level.run for level in levels}) > 1
    made = {}
    for level, row in zip(levels, rows, strict=True):
        name = f"{level.run}-{level.visit:04d}" if several else f"{level.visit:04d}"
        made[name] = _document(level, row, versions.get(level.run) or "unknown")
    return made


def _document(level: LevelData, row: Mapping[str, Any], version: str) -> dict[str, Any]:
    tokens_in = level.mean("tokens_in")
    window_s = level.window_s()
    aggregate = {
        "requests": _requests(level, row),
        "latency": {name: _latency(level, row, *which) for name, which in LATENCIES.items()},
        "throughput": _rates(row),
    }
    time = {"duration": f"PT{window_s!r}S"} if window_s > 0 and not level.imported else None
    document = {
        "version": VERSION,
        "run": {"uid": f"{level.run}-{level.visit:04d}", "eid": level.run, "time": time},
        "scenario": {
            "stack": [_own(level, row, version)],
            # A load of the schema needs a length of prompts.
            "load": None if tokens_in is None else _load(level, tokens_in, version),
        },
        "results": {"request_performance": {"aggregate": aggregate}, "observability": _observability(row)},
    }
    plain: dict[str, Any] = _without_nulls(strict(document))
    return plain


def _without_nulls(value: Any) -> Any:
    """Keys that say nothing are left out; our own figures keep their nulls."""
    if not isinstance(value, dict):
        return [_without_nulls(each) for each in value] if isinstance(value, list) else value
    return {key: each if key == OWN else _without_nulls(each) for key, each in value.items() if each is not None}


def _own(level: LevelData, row: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Our component: what the schema has no place for."""
    told = {"setting": dict(level.setting), "summary": dict(row), "server": level.meta.get("server") or []}
    digest = hashlib.sha256(json.dumps(strict(told["setting"]), sort_keys=True).encode()).hexdigest()
    return {
        "metadata": {"label": OWN, "cfg_id": digest[:32]},
        "standardized": {"kind": "generic", "tool": OWN, "tool_version": version},
        "native": {"config": {OWN: told}},
    }


def _load(level: LevelData, tokens_in: float, version: str) -> dict[str, Any]:
    tokens_out = level.mean("tokens_out")
    return {
        "metadata": {},
        "standardized": {
            "tool": OWN,
            "tool_version": version,
            "source": "unknown",
            "stage": level.visit,
            "input_seq_len": {"distribution": "other", "value": tokens_in},
            "output_seq_len": None if tokens_out is None else {"distribution": "other", "value": tokens_out},
            "rate_qps": request_rate(level) or None,
            "concurrency": level.concurrency,
        },
        "native": {},
    }


def _requests(level: LevelData, row: Mapping[str, Any]) -> dict[str, Any] | None:
    if row["n"] is None:
        return None
    outcomes = level.outcomes()
    counted = not level.imported
    return {
        "total": row["n"],
        "failures": row["errors"],
        "incomplete": outcomes.get("cancelled", 0) if counted else None,
        "input_length": _statistics(level, "tokens_in", "count"),
        "output_length": _statistics(level, "tokens_out", "count"),
    }


def _latency(level: LevelData, row: Mapping[str, Any], name: str, unit: str) -> dict[str, Any] | None:
    if name != "itl":
        return _statistics(level, name, unit)
    mean = level.mean(name) if level.imported else histogram_mean(level, name)
    figures = {quantile: row[f"itl_{quantile}_s"] for quantile in QUANTILES}
    return None if mean is None else {"units": unit, "mean": mean, **figures}


def _statistics(level: LevelData, name: str, unit: str) -> dict[str, Any] | None:
    """Over steady requests that ended ok; None where there is no mean, which the schema asks for."""
    mean = level.mean(name)
    if mean is None or not math.isfinite(mean):
        return None
    figures = {key: level.quantile(name, share) for key, share in PROBABILITIES.items()}
    spread = float(level.values(name).std()) if level.sampled == 1 and not level.imported else None
    return {"units": unit, "mean": mean, "stddev": spread, **figures}


def _rates(row: Mapping[str, Any]) -> dict[str, Any]:
    tokens_in, tokens_out = row["tokens_in_per_s"], row["tokens_out_per_s"]
    both = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    figures = {
        "request_rate": (row["achieved_rate"], "queries/s"),
        "input_token_rate": (tokens_in, "tokens/s"),
        "output_token_rate": (tokens_out, "tokens/s"),
        "total_token_rate": (both, "tokens/s"),
    }
    return {name: {"units": unit, "mean": mean} for name, (mean, unit) in figures.items() if mean is not None}


def _observability(row: Mapping[str, Any]) -> dict[str, Any] | None:
    found = {}
    for name, (mean_of, most_of, unit, times) in _OBSERVED.items():
        mean, most = row.get(mean_of), row.get(most_of) if most_of else None
        if mean is not None:
            found[name] = {"units": unit, "mean": mean * times, "max": None if most is None else most * times}
    return {"components": [{"component_label": "target", "aggregate": found}]} if found else None
