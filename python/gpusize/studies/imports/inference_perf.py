"""Reports of inference-perf: a folder with ``stage_N_lifecycle_metrics.json``, one level per stage.

Times are in seconds and count from when a request was started: at a rate that is ``service``, not ``runtime``. Its TTFT
is ``ttft_sent``; its TPOT, (last token - first) / (tokens - 1), is ``itl_mean``; its inter-token latency, pooled gaps,
is ``itl``; its schedule delay is ``lateness``. It counts tokens by its own tokenizer, unless told otherwise, and gives
all tokens of one event the same time: where the server counts others its TPOT is none of ours, and where gaps are 0 its
inter-token latency is none. With ``per_request_lifecycle_metrics.json`` each request becomes a record.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.figure_levels import KEPT_UP, Remarks, both, figure_level
from gpusize.studies.imports.inference_perf_requests import StageSums, read_requests
from gpusize.studies.imports.json_file import count, is_json_with, number, part, read_documents
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

if TYPE_CHECKING:
    import polars as pl

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
_LATE: Final = 0.05
"""Of the mean latency: a longer wait before the send is told."""
_DIFFER: Final = 0.01
"""Relative difference from which two figures are not of the same."""
_CHANCE: Final = 3.0
"""Standard deviations of the number of requests that a random process sends in a time."""
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
    found: list[_Stage] = []
    for file in stages.values():
        document = read_documents(file, _TOOL)
        digest.update(document.sha256.encode())
        found.append(_Stage(document.objects[0], str(file)))
    files = list(stages.values())
    frames: list[pl.DataFrame] = []
    if path.is_dir():
        warnings += _missing(path, stages, found)
        single = path / _SINGLE
        if single.is_file():
            frames, sha256 = read_requests(single, [stage.sums for stage in found], warnings)
            digest.update(sha256.encode())
            files.append(single)
    levels: list[LevelData | RequestLevel] = (
        [stage.with_requests(frame) for stage, frame in zip(found, frames, strict=True)]
        if frames
        else [stage.with_figures(gpus) for stage in found]
    )
    source = {
        "tool": _TOOL,
        "files": [file.name for file in files],
        "sha256": digest.hexdigest(),
        "warnings": warnings,
    }
    run = f"inference_perf-{digest.hexdigest()[:12]}-{gpus}gpu"
    about = run_of(run, levels, source, api="inference_perf", gpus=gpus, nature="language_model")
    return Imported(write_run(out_dir, about, levels), warnings)


def _missing(folder: Path, stages: Mapping[int, Path], found: list[_Stage]) -> list[str]:
    """What the folder lacks, or what its files say against each other."""
    said = []
    gone = [str(n) for n in range(max(stages) + 1) if n not in stages]
    if gone:
        said.append(f"{folder}: stage {', '.join(gone)} has no report: none of its requests ended, or it is lost")
    summary = folder / _SUMMARY
    if summary.is_file():
        report = read_documents(summary, _TOOL).objects[0]
        all_of_them = count(part(report, "load_summary", str(summary)), "count", str(summary))
        in_stages = sum(stage.sums.total for stage in found)
        if all_of_them is not None and all_of_them != in_stages:
            said.append(f"{summary}: {all_of_them:,} requests, and the stages have {in_stages:,}")
    return said


class _Stage:
    """The report of one stage.

    Attributes:
        sums: what its requests have to add up to.
    """

    def __init__(self, report: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._load, self._ok, self._bad = (
            part(report, key, where) for key in ("load_summary", "successes", "failures")
        )
        self._remarks = Remarks()
        self._other_tokens = False
        users, rate = count(self._load, "concurrency", where), number(self._load, "requested_rate", where)
        if not users and not rate:
            what = "neither requested_rate nor concurrency in its load_summary"
            raise ConfigError(what, where, "give the report of a stage, or the folder of its reports")
        # Of a concurrency the rate is so many requests over 1 s, in which they are handed out.
        self._setting: dict[str, Any] = (
            {"kind": "closed", "concurrency": users} if users else {"kind": "open", "rate": rate}
        )
        self._latency = part(self._ok, "latency", where)
        self._took = _quantiles(part(self._latency, "request_latency", where), f"{where}, request_latency")
        good, bad = count(self._ok, "count", where), count(self._bad, "count", where)
        total = count(self._load, "count", where)
        self._total, self._failed = total, bad
        known = total if total is not None else (good or 0) + (bad or 0)
        self.sums = StageSums(known, bad or 0, self._took.get("mean"), self._took.get("p100"))
        if total is not None and good is not None and bad is not None and good + bad != total:
            said = f"{good:,} successes and {bad:,} failures are not its {total:,} requests"
            self._remarks.add(said, "inconsistent")
        self._seconds = number(report, "benchmark_time_seconds", where)
        self._speed = part(self._ok, "throughput", where)
        self._answered = number(self._speed, "requests_per_sec", where)
        self._delays = _quantiles(part(self._load, "schedule_delay", where), f"{where}, schedule_delay")
        self._check_rate()

    def _check_rate(self) -> None:
        """Note a rate that was not sent as asked for, and requests that waited before they were sent."""
        rate = self._setting.get("rate")
        if rate is None:
            return
        sent, sending_s = (number(self._load, key, self._where) for key in ("achieved_rate", "send_duration"))
        if not sent:
            return
        n, latest_s = self.sums.total, self._delays.get("p100")
        if sending_s and abs(n / sending_s / sent - 1) > _DIFFER:
            what = f"its {n:,} requests in {sending_s:.4g} s are not its achieved_rate of {sent:.4g}/s"
            self._remarks.add(what, "inconsistent")
        if sent >= KEPT_UP * rate:
            return
        text = f"{sent:.4g} of {rate:g} requests/s were sent"
        in_time = latest_s is not None and latest_s < (1 - KEPT_UP) * (sending_s or 0)
        if in_time and 1 - sent / rate < _CHANCE / math.sqrt(n):
            self._remarks.add(f"{text}, and none was more than {latest_s or 0:.2g} s late: by chance so few were due")
        else:
            why = "what the rest waited before it was sent no latency of this file counts"
            self._remarks.add(f"{text}: {why}", "not-delivered")

    def with_requests(self, requests: pl.DataFrame) -> RequestLevel:
        """A level of its requests, in ns on the tool's clock. When they were due it does not say."""
        late_s = self._delays.get("p95")
        if "rate" in self._setting and late_s is not None and late_s > _LATE * (self._took.get("mean") or 0):
            self._remarks.add(f"5 % were sent {late_s:.3g} s or more after they were due, by its schedule_delay")
        told = Told(alerts=self._remarks.alerts, flags=self._remarks.flags)
        return RequestLevel(self._setting, [requests], self._where, told)

    def with_figures(self, gpus: int) -> LevelData:
        """A level of the tool's own figures."""
        where, remarks = self._where, self._remarks
        kinds = {
            str(name): count(kind, "count", f"{where}, {name}") or 0
            for name, kind in part(self._bad, "by_label", where).items()
            if isinstance(kind, dict)
        }
        remarks.failures(self._failed or 0, self.sums.total, kinds)
        users = self._setting.get("concurrency")
        if users is not None:
            mean_s, longest_s = self._took.get("mean"), self._took.get("p100")
            others = self._failed or 0
            remarks.little(self._answered, mean_s, users, longest_s=longest_s, seconds=self._seconds, others=others)
        tokens_out_per_s = self._output_rate()
        facts = {
            "counts": {
                "n": self._total,
                "errors": self._failed,
                "tokens_out_per_s": tokens_out_per_s,
                "tokens_in_per_s": number(self._speed, "input_tokens_per_sec", where),
            },
            "total_runtime_s": self._seconds,
            "achieved_rate": self._answered,
        }
        figures = self._figures()
        return figure_level(self._setting, figures, remarks, facts, gpus=gpus, where=self._where)

    def _output_rate(self) -> float | None:
        """Output tokens per second as the server counts them, where it does; else as the tool."""
        told = number(self._speed, "output_tokens_per_sec", self._where)
        made = self._server_tokens()
        if made is None or not self._seconds or told is None:
            return told
        counted = made / self._seconds
        self._other_tokens = abs(counted - told) > _DIFFER * told
        if self._other_tokens:
            what = f"its {told:.4g} output tokens/s are those of its own tokenizer, and the server's are {counted:.4g}"
            self._remarks.add(f"{what}: its TPOT, which goes by the former, is left out")
        return counted

    def _server_tokens(self) -> float | None:
        """Output tokens that the server reported; None where it did not for all requests."""
        fallback = part(self._ok, "client_fallback_requests", self._where)
        if count(fallback, "output", self._where) != 0:
            return None
        return number(part(self._ok, "output_tokens", self._where), "total", self._where)

    def _figures(self) -> dict[str, float | None]:
        where, closed = self._where, "concurrency" in self._setting
        pieces = number(part(self._latency, "inter_token_latency", where), "min", where)
        if pieces == 0:
            what = "tokens that came in one event have gaps of 0 in its inter-token latency"
            self._remarks.add(f"{what}: it is none of gaps between events, and is left out")
        # In a closed loop all requests are handed out in 1 s, and a wait for a place is no delay.
        found: dict[str, float | None] = {} if closed else both(["lateness"], self._delays)
        for key, name in _METRICS.items():
            if (name == "itl_mean" and self._other_tokens) or (name == "itl" and pieces == 0):
                continue
            values = _quantiles(part(self._latency, key, where), f"{where}, {key}")
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
