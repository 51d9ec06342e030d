"""Reports of inference-perf: a folder with ``stage_N_lifecycle_metrics.json``, one level per stage.

Times are in seconds and count from when a request was started: at a rate that is ``service``, not ``runtime``. Its TTFT
is ``ttft_sent``; its TPOT, (last token - first) / (tokens - 1), is ``itl_mean``; its inter-token latency, pooled gaps,
is ``itl``; its schedule delay is ``lateness``. Single requests (``per_request_lifecycle_metrics.json``) name neither
their stage nor when they were due, so that they belong to no level and are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.figure_levels import KEPT_UP, Remarks, both, figure_level
from gpusize.studies.imports.json_file import count, is_json_with, number, part, read_documents
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

__all__ = ["import_inference_perf", "looks_like"]

_TOOL: Final = "inference-perf"
_STAGE: Final = re.compile(r"stage_(\d+)_lifecycle_metrics\.json")
_SUMMARY: Final = "summary_lifecycle_metrics.json"
_SINGLE: Final = "per_request_lifecycle_metrics.json"
_KEYS: Final = ("benchmark_time_seconds", "load_summary", "successes")
_METRICS: Final = {
    "time_to_first_token": "ttft_sent",
    "time_per_output_token": "itl_mean",
    "inter_token_latency": "itl",
    "request_latency": "service",
}
_PERCENT: Final = re.compile(r"p(\d+(?:\.\d+)?)")
_OTHERS: Final = {"median": "p50", "max": "p100", "mean": "mean"}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a folder of its reports, or one of its reports of load."""
    return bool(_stages(path)) if path.is_dir() else is_json_with(path, head, *_KEYS)


def _stages(folder: Path) -> dict[int, Path]:
    found = {int(match[1]): file for file in folder.glob("stage_*.json") if (match := _STAGE.fullmatch(file.name))}
    return dict(sorted(found.items()))


def import_inference_perf(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take a folder of reports, or the report of one stage, over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder.

    Raises:
        StoreError: the folder cannot be written.
        ConfigError: a file is missing or broken, with its place, or none is of a stage.
    """
    stages = _stages(path) if path.is_dir() else {0: path}
    if not stages:
        raise ConfigError("no stage_N_lifecycle_metrics.json in it", str(path), "give the folder of its reports")
    digest = hashlib.sha256()
    warnings: list[str] = []
    levels: list[LevelData] = []
    for file in stages.values():
        found = read_documents(file, _TOOL)
        digest.update(found.sha256.encode())
        levels.append(_level(found.objects[0], str(file), gpus))
    if path.is_dir():
        warnings += _missing(path, stages, levels)
    source = {
        "tool": _TOOL,
        "files": [file.name for file in stages.values()],
        "sha256": digest.hexdigest(),
        "warnings": warnings,
    }
    run = f"inference_perf-{digest.hexdigest()[:12]}-{gpus}gpu"
    about = run_of(run, levels, source, api="inference_perf", gpus=gpus, nature="language_model")
    return Imported(write_run(out_dir, about, levels), warnings)


def _missing(folder: Path, stages: Mapping[int, Path], levels: list[LevelData]) -> list[str]:
    """What the folder lacks, or what its files say against each other."""
    said = []
    gone = [str(n) for n in range(max(stages) + 1) if n not in stages]
    if gone:
        said.append(f"{folder}: stage {', '.join(gone)} has no report: none of its requests ended, or it is lost")
    if (folder / _SINGLE).is_file():
        said.append(f"{folder / _SINGLE} is left out: its requests name no stage, and not when they were due")
    summary = folder / _SUMMARY
    if summary.is_file():
        found = read_documents(summary, _TOOL).objects[0]
        all_of_them = count(part(found, "load_summary", str(summary)), "count", str(summary))
        in_stages = sum(int(level.meta["counts"]["n"] or 0) for level in levels)
        if all_of_them is not None and all_of_them != in_stages:
            said.append(f"{summary}: {all_of_them:,} requests, and the stages have {in_stages:,}")
    return said


def _level(report: Mapping[str, Any], where: str, gpus: int) -> LevelData:
    load, ok, failures = (part(report, key, where) for key in ("load_summary", "successes", "failures"))
    remarks = Remarks()
    concurrency, rate = count(load, "concurrency", where), number(load, "requested_rate", where)
    if not concurrency and not rate:
        what = "neither requested_rate nor concurrency in its load_summary"
        raise ConfigError(what, where, "give the report of a stage, or the folder of its reports")
    good, bad = count(ok, "count", where), count(failures, "count", where)
    total = count(load, "count", where)
    if total is not None and good is not None and bad is not None and good + bad != total:
        remarks.add(f"{good:,} successes and {bad:,} failures are not its {total:,} requests", "inconsistent")
    kinds = {
        str(name): count(kind, "count", f"{where}, {name}") or 0
        for name, kind in part(failures, "by_label", where).items()
        if isinstance(kind, dict)
    }
    remarks.failures(bad or 0, total or (good or 0) + (bad or 0), kinds)
    closed = bool(concurrency)
    figures = _figures(part(ok, "latency", where), where, closed=closed)
    figures |= both(["lateness"], _quantiles(part(load, "schedule_delay", where), f"{where}, schedule_delay"))
    speed = part(ok, "throughput", where)
    answered = number(speed, "requests_per_sec", where)
    setting: dict[str, Any] = (
        {"kind": "closed", "concurrency": concurrency} if closed else {"kind": "open", "rate": rate}
    )
    if concurrency:
        remarks.little(answered, figures.get("service_mean_s"), concurrency)
    elif rate:
        sent = number(load, "achieved_rate", where)
        if sent and sent < KEPT_UP * rate:
            why = "what the rest waited before it was sent no latency of this file counts"
            remarks.add(f"{sent:.4g} of {rate:g} requests/s were sent: {why}", "not-delivered")
    facts = {
        "counts": {
            "n": total,
            "errors": bad,
            "tokens_out_per_s": number(speed, "output_tokens_per_sec", where),
            "tokens_in_per_s": number(speed, "input_tokens_per_sec", where),
        },
        "total_runtime_s": number(report, "benchmark_time_seconds", where),
        "achieved_rate": answered,
    }
    return figure_level(setting, figures, remarks, facts, gpus=gpus)


def _figures(latency: Mapping[str, Any], where: str, *, closed: bool) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for key, name in _METRICS.items():
        values = _quantiles(part(latency, key, where), f"{where}, {key}")
        due = {"ttft_sent": "ttft", "service": "runtime"}.get(name) if closed else None
        found |= both([name] if due is None else [name, due], values)
    return found


def _quantiles(values: Mapping[str, Any], where: str) -> dict[str, float | None]:
    """Percentiles and mean by their names here; a delay may be below 0, as a clock's reading is."""
    named = {key: f"p{float(match[1]):g}" for key in values if (match := _PERCENT.fullmatch(key))}
    named |= {key: name for key, name in _OTHERS.items() if key in values}
    early = where.endswith("schedule_delay")
    return {
        name: None if early and isinstance(values[key], float) and values[key] < 0 else number(values, key, where)
        for key, name in named.items()
    }
