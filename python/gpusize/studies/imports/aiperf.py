"""Artifacts of AIPerf (0.13): ``profile_export_aiperf.json``, the summary, and ``profile_export.jsonl``, the requests.

The summary has the load that was asked for, the rows have every request. With both, a level has records; with the
summary alone it has that tool's figures. A row says when AIPerf let its request go (``credit_issued_ns``) and when it
was written, and not when it was due: at a rate, what it waited before is not known.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError, PathMissing, StoreError
from gpusize.base.files import storing
from gpusize.base.regular_files import check_regular
from gpusize.base.text import shown
from gpusize.studies.imports.figure_levels import Remarks, figure_level
from gpusize.studies.imports.json_file import finite, read_object
from gpusize.studies.imports.json_lines import json_lines
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import Imported, RunDraft, imported_before, run_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["import_aiperf", "looks_like"]

SUMMARY: Final = "profile_export_aiperf.json"
ROWS: Final = "profile_export.jsonl"
_TODO: Final = f"is it what AIPerf wrote as {SUMMARY} or {ROWS}?"
_BATCH: Final = 1 << 15
_MS: Final = 1e6
_FAR_NS: Final = 1 << 61
_MOST_COUNT: Final = 1 << 32
_LANGUAGE: Final = ("chat", "completions", "responses")
_COUNTS: Final = {
    "tokens_in": ("usage_prompt_tokens", "input_sequence_length"),
    "tokens_out": ("usage_completion_tokens", "output_sequence_length"),
    "tokens_cached": ("usage_prompt_cache_read_tokens",),
    "tokens_reasoning": ("reasoning_token_count",),
}
"""The server's usage, where a row has it; else AIPerf's count by its own tokenizer."""
_FIGURES: Final = {"request_latency": "service", "time_to_first_token": "ttft_sent", "inter_chunk_latency": "itl"}
_FROM_DUE: Final = {"service": "runtime", "ttft_sent": "ttft"}
_QUANTILES: Final = ("p50", "p90", "p95", "p99")
_KINDS: Final = (
    ("timeout", "timeout"),
    ("cancel", "cancelled"),
    ("ssl", "tls_error"),
    ("certificate", "tls_error"),
    ("connect", "connect_error"),
)
"""What the name of an error has in it, and the outcome that it is."""


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is AIPerf's: a folder with its summary, or one of its two files."""
    if path.is_dir():
        return bool(_folders(path))
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith(b"{"):
        return False
    return b'"aiperf_version"' in head or (b'"benchmark_phase"' in head and b'"request_start_ns"' in head)


def import_aiperf(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take an artifact folder, a folder of several, or a file of one over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder.

    Args:
        path: a folder with the summary, a folder of such folders (a sweep), or one of the two files: the other one is
            read where it lies beside it.
        out_dir: the folder of runs; made when it is missing.
        gpus: GPUs that were measured; the files do not say. 0 for unknown.

    Raises:
        StoreError: nothing can be read there, or the run cannot be written.
        ConfigError: a file is broken, with its line, or the load is of a kind that is not known.
    """
    if not path.exists():
        raise PathMissing("not found", str(path), "give AIPerf's artifact folder")
    folders = _folders(path) if path.is_dir() else [path.parent]
    pairs = [(folder / SUMMARY, folder / ROWS) for folder in folders]
    if path.is_file():
        pairs = [_pair(path)]
    if not pairs:
        if (path / ROWS).is_file():
            why = f"no {SUMMARY} in it, so that nothing says which load was asked for"
            raise StoreError(why, str(path), "AIPerf did not come to its end: measure that again")
        raise StoreError(f"no {SUMMARY} in it", str(path), "give AIPerf's artifact folder")
    digest = hashlib.sha256()
    for file in itertools.chain(*pairs):
        if file.exists():
            check_regular(file)
            with storing(file), file.open("rb") as handle:
                digest.update(hashlib.file_digest(handle, "sha256").digest())
    run = f"aiperf-{digest.hexdigest()[:12]}-{gpus}gpu"
    if (before := imported_before(out_dir, run)) is not None:
        return before
    benchmarks = _in_order([_Benchmark(*pair) for pair in pairs])
    with RunDraft(out_dir, run) as draft:
        levels = []
        for benchmark in benchmarks:
            level = benchmark.level(gpus)
            draft.add(level)
            levels.append(level)
        warnings = [*_unfinished(path), *(note for benchmark in benchmarks for note in benchmark.warnings)]
        files = [str(each.summary.relative_to(path) if path.is_dir() else each.summary.name) for each in benchmarks]
        first = benchmarks[0]
        source = {
            "tool": "AIPerf",
            "version": first.version,
            "files": files,
            "sha256": digest.hexdigest(),
            "warnings": warnings,
        }
        about = run_of(run, levels, source, api="aiperf", gpus=gpus, model=first.model, nature=first.nature)
        return Imported(draft.publish(about), warnings)


def _in_order(benchmarks: list[_Benchmark]) -> list[_Benchmark]:
    """As they were measured, where all of them say when that was: a folder ``c16`` stands before ``c2``."""
    began = [each.began for each in benchmarks]
    if None in began:
        return benchmarks
    return [each for _, each in sorted(zip(began, benchmarks, strict=True), key=lambda pair: str(pair[0]))]


def _folders(path: Path) -> list[Path]:
    """The folders with a summary: this one, or those in it."""
    if (path / SUMMARY).is_file():
        return [path]
    return sorted(file.parent for file in path.glob(f"*/{SUMMARY}"))


def _unfinished(path: Path) -> list[str]:
    """What is said of the folders of a sweep that have requests and no summary: their levels are missing."""
    if not path.is_dir() or (path / SUMMARY).is_file():
        return []
    rows = sorted(path.glob(f"*/{ROWS}"))
    lost = [file.parent for file in rows if not file.with_name(SUMMARY).is_file()]
    return [f"{folder}: no {SUMMARY}, so that its level is missing: AIPerf did not come to its end" for folder in lost]


def _pair(path: Path) -> tuple[Path, Path]:
    """Both files, whichever is given; renamed ones go by the names that they have then."""
    with storing(path), path.open("rb") as file:
        is_rows = b'"benchmark_phase"' in file.readline(1 << 16)
    if not is_rows:
        return path, path.with_name(path.name.removesuffix("_aiperf.json") + ".jsonl")
    summary = path.with_name(path.name.removesuffix(".jsonl") + "_aiperf.json")
    if not summary.is_file():
        raise StoreError("not found: the load that was asked for stands in it", str(summary), "put it beside the rows")
    return summary, path


class _Benchmark:
    """One benchmark.

    Attributes:
        summary: its file.
        warnings: what is odd in it.
        version, model, nature, began: as the summary says; None where it does not.
    """

    def __init__(self, summary: Path, rows: Path) -> None:
        self.summary, self._rows = summary, rows
        self.warnings: list[str] = []
        self._told = _load(summary)
        config = _object(self._told, "input_config")
        version = self._told.get("aiperf_version")
        self.version = version if isinstance(version, str) else None
        models = _object(config, "models").get("items")
        first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
        self.model = first.get("name") if isinstance(first.get("name"), str) else None
        self.nature = "language_model" if _object(config, "endpoint").get("type") in _LANGUAGE else None
        self.began = began if isinstance(began := self._told.get("start_time"), str) else None
        self._setting = _setting(config, str(summary))
        self._pause_ms = _pause_ms(config)
        self._ok = self._count("request_count")
        self._failed = self._failures()

    def level(self, gpus: int) -> RequestLevel | LevelData:
        """Its requests where the rows are there, else its figures."""
        if not self._rows.is_file():
            self.warnings.append(f"{self._rows}: not there, so that figures are AIPerf's own, and SLOs are not judged")
            return self._figures(gpus)
        rows = _Rows(self._rows, self.warnings)

        def told() -> Told:
            return Told(
                rows.window, "AIPerf's profiling phase", None, self._state, [*self._alerts(), *self._differs(rows)]
            )

        frames = rows.frames()
        first = next(frames, None)
        if first is None:
            raise ConfigError("no request in it", str(self._rows), "AIPerf ended before it wrote one")
        return RequestLevel(self._setting, itertools.chain([first], frames), str(self._rows), told)

    @property
    def _state(self) -> str:
        return "cancelled" if self._told.get("was_cancelled") is True else "done"

    def _alerts(self) -> list[str]:
        alerts = []
        if self._told.get("is_complete") is False:
            alerts.append(
                f"AIPerf says that it is not complete: {shown(str(self._told.get('incomplete_reason')), 200)}"
            )
        if self._pause_ms:
            alerts.append(
                f"AIPerf paused for {self._pause_ms:g} ms on average between the turns of a conversation (turn_delay): "
                "meanwhile that conversation has no request in flight"
            )
        return alerts

    def _differs(self, rows: _Rows) -> list[str]:
        """Where the rows are not those that the summary counts."""
        pairs = (("answered", rows.ok, self._ok), ("failed", rows.failed, self._failed))
        differ = [f"{found:,} {what} and not {told:,}" for what, found, told in pairs if told not in (None, found)]
        if not differ:
            return []
        return [f"the rows are not those of AIPerf's summary: {'; '.join(differ)}"]

    def _failures(self) -> int | None:
        """Requests that failed: the errors by kind, each with its count, and never the number of kinds."""
        kinds = self._told.get("error_summary")
        if isinstance(kinds, list):
            counts = [each.get("count") if isinstance(each, dict) else None for each in kinds]
            known = [int(n) for n in counts if type(n) is int and 0 <= n < _MOST_COUNT]
            if len(known) == len(counts):
                return sum(known)
            raise ConfigError("error_summary should have counts", str(self.summary), _TODO)
        return self._count("error_request_count")

    def _count(self, tag: str) -> int | None:
        value = self._figure(tag, "avg")
        return None if value is None else round(value)

    def _figure(self, tag: str, what: str) -> float | None:
        entry = _object(self._told, tag)
        return None if entry.get(what) is None else finite(entry[what], f"{self.summary}, {tag}, {what}")

    def _figures(self, gpus: int) -> LevelData:
        closed = self._setting["kind"] == "closed"
        percentiles: dict[str, float] = {}
        for tag, name in _FIGURES.items():
            names = [name, _FROM_DUE[name]] if closed and name in _FROM_DUE else [name]
            unit = _object(self._told, tag).get("unit", "ms")
            if unit != "ms":
                raise ConfigError(f"{shown(str(unit), 20)} is not ms", f"{self.summary}, {tag}, unit", _TODO)
            for what, column in ((q, q) for q in _QUANTILES):
                value = self._figure(tag, column)
                percentiles |= {} if value is None else {f"{each}_{what}_s": value / 1e3 for each in names}
            mean = self._figure(tag, "avg")
            percentiles |= {} if mean is None else {f"{each}_mean_s": mean / 1e3 for each in names}
        if not percentiles:
            raise ConfigError("no latency in it", str(self.summary), "every request of it failed, or none was sent")
        remarks = Remarks()
        for alert in self._alerts():
            remarks.add(alert)
        total = None if self._ok is None else self._ok + (self._failed or 0)
        if self._failed:
            remarks.failures(self._failed, total or self._failed, self._kinds())
        rate, seconds = self._figure("request_throughput", "avg"), self._figure("benchmark_duration", "avg")
        if closed:
            mean_s, longest_s = percentiles.get("service_mean_s"), self._figure("request_latency", "max")
            longest_s = None if longest_s is None else longest_s / 1e3
            users, others = self._setting["concurrency"], self._failed or 0
            remarks.little(rate, mean_s, users, longest_s=longest_s, seconds=seconds, others=others)
        facts = {
            "achieved_rate": rate,
            "total_runtime_s": seconds,
            "counts": {"n": total, "errors": self._failed if self._failed is not None or total is None else 0},
        }
        return figure_level(
            self._setting, percentiles, remarks, facts, gpus=gpus, where=str(self.summary), state=self._state
        )

    def _kinds(self) -> dict[str, int]:
        """Failures by kind, as AIPerf counts them."""
        kinds: dict[str, int] = {}
        for each in self._told.get("error_summary") or []:
            about = _object(each, "error_details")
            name = shown(str(about.get("type") or about.get("code") or "failed"), 60)
            kinds[name] = kinds.get(name, 0) + int(each["count"])
        return kinds


class _Rows:
    """The requests of one benchmark, counted as they go by.

    Attributes:
        ok, failed: of the profiling phase.
    """

    def __init__(self, path: Path, warnings: list[str]) -> None:
        self.ok = self.failed = 0
        self._path, self._warnings = path, warnings
        self._first: int | None = None
        self._last = self._last_warm = 0

    def frames(self) -> Iterator[pl.DataFrame]:
        """All requests, warm-up included."""
        held: list[dict[str, Any]] = []
        with storing(self._path), self._path.open("rb") as file:
            for number, row in json_lines(file, str(self._path), _TODO, self._warnings):
                held.append(self._request(row, f"{self._path}, line {number}"))
                if len(held) >= _BATCH:
                    yield _frame(held)
                    held = []
        if held:
            yield _frame(held)
        if self._first is not None and self._last_warm >= self._first:
            self._warnings.append(f"{self._path}: requests of the warm-up were sent while it measured; they count")

    @property
    def window(self) -> tuple[int, int] | None:
        """From the first request of the profiling phase to its last; None without any."""
        return None if self._first is None else (self._first, self._last + 1)

    def _request(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        about, metrics = _object(row, "metadata", where), _object(row, "metrics", where)
        sent, end = (_stamp(about, key, where) for key in ("request_start_ns", "request_end_ns"))
        if sent is None or end is None or end < sent:
            raise ConfigError("request_start_ns and request_end_ns should be there, in order", where, _TODO)
        error = row.get("error")
        failed = isinstance(error, dict) or about.get("was_cancelled") is True
        found: dict[str, Any] = {
            "sent_ns": sent,
            "end_ns": end,
            "fired_ns": _stamp(about, "credit_issued_ns", where),
            "first_byte_ns": _stamp(about, "request_ack_ns", where),
            "turn": _count(about.get("turn_index"), f"{where}, turn_index", 1 << 16),
            "session": _count(about.get("session_num"), f"{where}, session_num", 1 << 62),
            **{name: _first_count(metrics, tags, where) for name, tags in _COUNTS.items()},
            **_times(metrics, sent, where),
            **(_failure(error if isinstance(error, dict) else {}) if failed else {"outcome": "ok"}),
        }
        if about.get("benchmark_phase") == "warmup":
            self._last_warm = max(self._last_warm, sent)
            return found
        self.ok, self.failed = self.ok + (not failed), self.failed + failed
        self._first = sent if self._first is None else min(self._first, sent)
        self._last = max(self._last, sent)
        return found


def _times(metrics: Mapping[str, Any], sent: int, where: str) -> dict[str, Any]:
    """Of a stream, the times of its first token and its pieces."""
    first, output = (_ns(metrics, f"time_to_first_{each}token", where) for each in ("", "output_"))
    found: dict[str, Any] = {
        "first_token_ns": None if first is None else sent + first,
        "first_output_ns": None if output is None else sent + output,
    }
    gaps = _ms(metrics, "inter_chunk_latency", where)
    if first is None or not isinstance(gaps, list):
        return found
    each = [round(finite(gap, f"{where}, inter_chunk_latency") * _MS) for gap in gaps]
    times = list(itertools.accumulate(each, initial=sent + first))
    if times[-1] > 2 * _FAR_NS:
        raise ConfigError("inter_chunk_latency is out of range", where, _TODO)
    return found | {"events_ns": times, "last_token_ns": times[-1]}


def _failure(error: Mapping[str, Any]) -> dict[str, Any]:
    code, kind = error.get("code"), str(error.get("type") or "")
    text = ": ".join(str(each) for each in (kind, error.get("message")) if each)
    status = code if type(code) is int and 400 <= code < 600 else None
    named = next((outcome for word, outcome in _KINDS if word in kind.lower()), "api_error")
    # AIPerf numbers what it cancels itself as if a server had said so.
    outcome = "http_error" if status is not None and status != 499 else named
    return {"outcome": outcome if error else "cancelled", "status": status, "error": shown(text, 500)}


def _frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    import polars as pl

    from gpusize.records.schema import record_dtypes

    kinds = {**record_dtypes(), "outcome": pl.String(), "error": pl.String()}
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame({name: pl.Series([row.get(name) for row in rows], dtype=kinds[name]) for name in names})


def _load(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise PathMissing("not found", str(file), "give AIPerf's artifact folder")
    return read_object(file, "AIPerf")[0]


def _setting(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The load of the phase that was measured."""
    phases = config.get("phases")
    known = [each for each in phases if isinstance(each, dict)] if isinstance(phases, list) else []
    measured = [each for each in known if each.get("kind") == "profiling" and not each.get("exclude_from_results")]
    if len(measured) != 1:
        raise ConfigError(f"{len(measured)} phases were measured, and one can be taken", f"{where}, phases", _TODO)
    [phase] = measured
    kind, rate, users = phase.get("type"), phase.get("rate"), phase.get("concurrency")
    if kind == "concurrency" and type(users) is int and 0 < users < 10**8:
        return {"kind": "closed", "concurrency": users}
    if isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate < 1e9:
        process = {"process": kind} if kind in ("constant", "poisson") else {}
        return {"kind": "open", "rate": float(rate), **process}
    raise ConfigError(f"a load of type {shown(str(kind), 40)} is not known here", f"{where}, phases", _TODO)


def _pause_ms(config: Mapping[str, Any]) -> float | None:
    """The mean pause between the turns of a conversation, ms; None without one."""
    datasets = config.get("datasets")
    delays = [_object(each, "turn_delay").get("mean") for each in datasets or () if isinstance(each, dict)]
    known = [float(each) for each in delays if isinstance(each, int | float) and not isinstance(each, bool)]
    return max(known, default=0.0) or None


def _object(of: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    found = of.get(key)
    if isinstance(found, dict):
        return found
    if where:
        raise ConfigError(f"{key} should be an object", where, _TODO)
    return {}


def _value(metrics: Mapping[str, Any], tag: str, where: str) -> Any:
    entry = metrics.get(tag)
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise ConfigError(f"{tag} should have a value and a unit", where, _TODO)
    return entry.get("value")


def _ms(metrics: Mapping[str, Any], tag: str, where: str) -> Any:
    """As ``_value``, of what is in ms."""
    value = _value(metrics, tag, where)
    if value is not None and (unit := metrics[tag].get("unit", "ms")) != "ms":
        raise ConfigError(f"{shown(str(unit), 20)} is not ms", f"{where}, {tag}, unit", _TODO)
    return value


def _ns(metrics: Mapping[str, Any], tag: str, where: str) -> int | None:
    """A metric in ms as nanoseconds."""
    value = _ms(metrics, tag, where)
    return None if value is None else round(min(finite(value, f"{where}, {tag}") * _MS, _FAR_NS))


def _count(value: Any, where: str, most: int = _MOST_COUNT) -> int | None:
    if value is None:
        return None
    number = finite(value, where)
    if number != math.floor(number) or number >= most:
        raise ConfigError(f"{value} is not a count", where, _TODO)
    return int(number)


def _first_count(metrics: Mapping[str, Any], tags: Sequence[str], where: str) -> int | None:
    """The first of these counts that a row has."""
    found = ((tag, _value(metrics, tag, where)) for tag in tags)
    return next((_count(value, f"{where}, {tag}") for tag, value in found if value is not None), None)


def _stamp(about: Mapping[str, Any], key: str, where: str) -> int | None:
    value = about.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 < value < _FAR_NS:
        raise ConfigError(f"{key} should be a time in nanoseconds", where, _TODO)
    return int(value)
