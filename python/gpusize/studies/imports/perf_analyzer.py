"""What Triton's perf_analyzer wrote (``-f FILE.csv``) or printed: one level per row, in the order of their load.

A row of its CSV has throughput, percentiles in whole microseconds, the server's own averages, and with ``--verbose-csv
--collect-metrics`` figures per GPU as ``uuid:value;``. It has no requests, no errors and no settings. perf_analyzer
sorts rows by throughput; here they stand by concurrency or rate, each with the figures of its own line. Its text has
the same figures, and more: ``perf_analyzer_text``.

Its latency counts from when a request was sent. For a concurrency that is the runtime. At a rate what a request waited
before is missing, so there only ``service`` is known, and an answered rate that falls short is an alert.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.analysis.windows import LITTLE_TOLERANCE
from gpusize.base.errors import ConfigError, PathMissing, UsageError
from gpusize.base.text import decode
from gpusize.records.schema import SCHEMA_VERSION
from gpusize.studies.imports.figure_levels import KEPT_UP, Remarks
from gpusize.studies.imports.perf_analyzer_rows import RATE, THROUGHPUT, USERS, Row, gpu_values, parse_rows
from gpusize.studies.imports.perf_analyzer_text import is_printed, parse_text
from gpusize.studies.imports.run_folder import Imported, run_of, write_run
from gpusize.studies.imports.whole_file import read_whole

__all__ = ["PerfAnalyzerImport", "import_perf_analyzer", "looks_like", "missing_levels", "read_perf_analyzer"]

US: Final = 1e-6
_PARTS: Final = (
    *("Client Send", "Network+Server Send/Recv", "Server Queue", "Server Compute Input", "Server Compute Infer"),
    *("Server Compute Output", "Client Recv"),
)
_SERVER: Final = {
    "queue_time": "Server Queue",
    "compute_input_time": "Server Compute Input",
    "compute_infer_time": "Server Compute Infer",
    "compute_output_time": "Server Compute Output",
    "request_time": "Avg request latency",
}
_GPU: Final = {
    "gpu_utilization": ("Avg GPU Utilization", "share", "mean"),
    "gpu_power": ("Avg GPU Power Usage", "W", "sum"),
    "gpu_memory_used": ("Max GPU Memory Usage", "bytes", "sum"),
    "gpu_memory_total": ("Total GPU Memory", "bytes", "sum"),
}


class PerfAnalyzerImport(NamedTuple):
    """What was read.

    Attributes:
        levels: one per row, ascending by load, with ``percentiles`` instead of records.
        sha256: digest of the file.
        warnings: what is missing or odd, and where.
    """

    levels: list[LevelData]
    sha256: str
    warnings: list[str]


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is perf_analyzer's CSV, by its first line (a load and its inferences per second), or its text."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    columns = text.partition("\n")[0].strip().split(",")
    is_csv = THROUGHPUT in columns and (USERS in columns or RATE in columns)
    return not path.is_dir() and (is_csv or is_printed(text))


def read_perf_analyzer(
    path: Path, *, gpus: int = 0, batch: int = 1, expected: Sequence[int] = ()
) -> PerfAnalyzerImport:
    """Read one CSV file, or what was printed; the content says which.

    Args:
        path: the file.
        gpus: GPUs, or model instances, that were measured; the file does not say. 0 for unknown.
        batch: samples in a request (``-b``): the file counts inferences. The text says it itself.
        expected: concurrencies that were asked for. perf_analyzer ends a sweep at the first level that does not settle,
            with exit status 0; those that are missing are named.

    Raises:
        StoreError: there is no such file.
        ConfigError: it is no such file, has no level, or a field is broken; with line and column.
        UsageError: a batch below 1, or another one than the text says.
    """
    if batch < 1:
        raise UsageError(f"a batch must be 1 or more, not {batch}", "batch", "give the samples of one request")
    content = _bytes(path)
    text = decode(content, str(path), error=ConfigError)
    _refuse_others(text, str(path))
    told = None
    if is_printed(text):
        rows, told, warnings = parse_text(text, str(path))
        batch = _one_batch(batch, told, str(path))
    else:
        rows, warnings = parse_rows(csv.reader(io.StringIO(text, newline=""), strict=True), text, str(path))
    levels: dict[tuple[str, float], LevelData] = {}
    for row in sorted(rows, key=lambda r: (r.load, r.line)):
        if (row.kind, row.load) in levels:
            warnings.append(f"{path}, line {row.line}: {_load(row)} was there before; the first one counts")
            continue
        levels[row.kind, row.load] = _level(row, gpus, batch, str(path), batch_known=told is not None)
    if rows[0].kind == USERS:
        known = {row.load for row in rows if row.state == "done"}
        warnings += missing_levels(str(path), known, expected)
    ordered = [replace(level, visit=k) for k, level in enumerate(levels.values())]
    return PerfAnalyzerImport(ordered, hashlib.sha256(content).hexdigest(), warnings)


def missing_levels(path: str, users: Container[float], expected: Sequence[int]) -> list[str]:
    """A warning that names the concurrencies that were expected and are not there; empty where all are."""
    missing = [c for c in expected if c not in users]
    if not missing:
        return []
    which = ", ".join(map(str, missing))
    why = "perf_analyzer ends a sweep at the first level that does not settle"
    return [f"{path}: {len(missing)} of {len(expected)} levels are missing, concurrency {which}: {why}"]


def _refuse_others(text: str, path: str) -> None:
    """Tell JSON from what is read here."""
    todo = "run it again with -f FILE.csv, and import that file"
    if text.lstrip().startswith("{"):
        raise ConfigError("this is JSON, and neither perf_analyzer's CSV nor its profile export", path, todo)


def _one_batch(given: int, told: int | None, path: str) -> int:
    """Samples in a request, of what was given (1 where nobody said) and what the text says."""
    if given > 1 and told is not None and told != given:
        raise UsageError(f"--batch {given} and the text's {told} are two", path, "leave the option out")
    return told or given


def import_perf_analyzer(
    path: Path,
    out_dir: Path,
    gpus: int = 0,
    *,
    slos: Sequence[str] = (),
    batch: int = 1,
    expected: Sequence[int] = (),
) -> Imported:
    """Take a CSV file, or what was printed, over as a run folder below ``out_dir``.

    The run's id follows from the content and the arguments, so that importing the same twice gives the same folder.

    Args:
        slos: SLOs that later estimates ask for, unless told otherwise.

    Raises:
        StoreError, ConfigError, UsageError: as ``read_perf_analyzer``; or the folder cannot be written.
        SloError: an SLO that does not parse.
    """
    texts = [str(Slo.parse(each)) for each in slos]
    found = read_perf_analyzer(path, gpus=gpus, batch=batch, expected=expected)
    same = hashlib.sha256(repr((found.sha256, texts, batch, list(expected))).encode()).hexdigest()
    source = {
        "tool": "perf_analyzer",
        "files": [path.name],
        "sha256": found.sha256,
        "batch": batch,
        "warnings": found.warnings,
    }
    run, options = f"perf_analyzer-{same[:12]}-{gpus}gpu", {"slo": texts} if texts else {}
    about = run_of(run, found.levels, source, api="perf_analyzer", gpus=gpus, options=options)
    return Imported(write_run(out_dir, about, found.levels), found.warnings)


def _bytes(path: Path) -> bytes:
    if not path.exists():
        raise PathMissing("not found", str(path), "give the file that perf_analyzer wrote with -f")
    return read_whole(path, "is it perf_analyzer's CSV, or what it printed?")


def _load(row: Row) -> str:
    return f"concurrency {row.load:g}" if row.kind == USERS else f"{row.load:g} requests/s"


def _level(row: Row, gpus: int, batch: int, where: str, *, batch_known: bool) -> LevelData:
    closed = row.kind == USERS
    setting: dict[str, Any] = (
        {"kind": "closed", "concurrency": round(row.load)} if closed else {"kind": "open", "rate": row.load}
    )
    name = "runtime" if closed else "service"
    percentiles = {
        f"{name}_p{percent:g}_s": row.values[column] * US
        for column in row.values
        if (percent := _percent(column)) is not None
    }
    mean_s = _mean_s(row.values)
    if mean_s is not None:
        percentiles[f"{name}_mean_s"] = mean_s
    inferences = row.values.get(THROUGHPUT)
    rate = None if inferences is None else inferences / batch
    contradicted = [] if rate is None else _alerts(row, rate, mean_s, None if batch_known else batch)
    remarks = Remarks()
    remarks.falling(percentiles)
    client_us = _client_us(row.values)
    meta = {
        "schema": SCHEMA_VERSION,
        "visit": 0,
        "imported": True,
        "setting": setting,
        "state": row.state,
        "stop_reason": None,
        "intervals": [],
        "alerts": [*contradicted, *remarks.alerts, *row.doubts, *row.remarks],
        "flags": [*(["little" if closed else "not-delivered"] if contradicted else []), *remarks.flags],
        "percentiles": percentiles,
        "items": {},
        "achieved_rate": rate,
        "inferences_rate": inferences,
        "residence_ns": None if mean_s is None else round(mean_s * 1e9),
        "client_ns": None if client_us is None else round(client_us * 1e3),
        "server": _server(row, where),
        "perf_analyzer": {**row.values, **row.texts},
    }
    return LevelData(
        visit=0, setting=setting, state=row.state, intervals=(), gpus=gpus, run="", meta=meta, percentiles=percentiles
    )


def _percent(column: str) -> float | None:
    """95 for ``p95 latency``; None for other columns."""
    name, _, rest = column.partition(" ")
    if rest != "latency" or name[:1] != "p":
        return None
    try:
        percent = float(name[1:])
    except ValueError:
        return None
    return percent if 0 < percent <= 100 else None


def _mean_s(values: Mapping[str, float]) -> float | None:
    """Mean latency, s: as written, else from its two parts, else from its seven."""
    for parts in (("Avg latency",), ("request/response", "response wait"), _PARTS):
        if all(part in values for part in parts):
            total = sum(values[part] for part in parts)
            return total * US if total > 0 else None
    return None


def _client_us(values: Mapping[str, float]) -> float | None:
    """Mean time of a request in the client, us: what it takes to send it and to read the answer."""
    for parts in (("Client Send", "Client Recv"), ("request/response",)):
        if all(part in values for part in parts):
            return sum(values[part] for part in parts)
    return None


def _alerts(row: Row, rate: float, mean_s: float | None, batch: int | None) -> list[str]:
    """What a row says against itself; the batch is None where it is known for certain."""
    if row.kind == RATE:
        why = "the rest waited before it was sent, which no latency of this file counts"
        short = rate < KEPT_UP * row.load
        return [f"{rate:.4g} of {row.load:g} requests/s were answered: {why}"] if short else []
    if mean_s is None:
        return []
    ratio = rate * mean_s / row.load
    if abs(ratio - 1) <= LITTLE_TOLERANCE:
        return []
    text = f"Little's law: {rate:.4g}/s for {mean_s:.4g} s each are {ratio * row.load:.3g} in flight, not {row.load:g}"
    whole = round(ratio)
    if batch == 1 and whole > 1 and abs(ratio / whole - 1) <= LITTLE_TOLERANCE:
        text += f"; with {whole} samples in a request say --batch {whole}"
    return [text]


def _server(row: Row, where: str) -> list[dict[str, Any]]:
    """The server's and the GPUs' figures, as rows of ``level.json``'s ``server``."""
    found = [_fact(metric, "s", row.values[column] * US) for metric, column in _SERVER.items() if column in row.values]
    executions = row.values.get("Execution count")
    if executions and "Inference count" in row.values:
        found.append(_fact("batch_size", "inferences", row.values["Inference count"] / executions))
    for metric, (column, unit, join) in _GPU.items():
        each = gpu_values(row, column, where)
        if each:
            total = math.fsum(each.values())
            found.append(_fact(metric, unit, total / len(each) if join == "mean" else total))
            found += [_fact(metric, unit, value, f'gpu_uuid="{uuid}"') for uuid, value in each.items()]
    return found


def _fact(metric: str, unit: str, value: float, labels: str | None = None) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("min", "first", "last", "delta", "rate", "over_s", "n"))
    return row | {
        "metric": metric,
        "labels": labels,
        "unit": unit,
        "mean": value,
        "max": value if metric == "gpu_memory_used" else None,
        "source": "perf_analyzer",
    }
