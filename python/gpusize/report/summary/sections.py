"""Tables beside the summary, for what only some runs have: servers, replicas, models, calls in requests, lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpusize.analysis.metrics import METRICS
from gpusize.analysis.server_columns import SERVER_COLUMNS
from gpusize.report.summary.columns import (
    BAD,
    Cell,
    Column,
    failure_column,
    metric_columns,
    plain_column,
    time_column,
)
from gpusize.report.summary.delivery_section import delivery_section
from gpusize.report.summary.section import Section, section, text_column
from gpusize.report.summary.source import ReportSource
from gpusize.report.summary.sweep import Sweep, sweeps_of
from gpusize.report.text import DASH, finite, number, percent, plain_number, short_count

__all__ = ["Section", "sections"]

Rows = Sequence[Mapping[str, Any]]


def sections(source: ReportSource) -> list[Section]:
    """The tables that the result has something to show in, in reading order; of two sweeps those of both."""
    sweeps = sweeps_of(source)
    if len(sweeps) == 1:
        return _sections(source, sweeps[0])
    return [
        replace(each, key=f"{each.key}-{sweep.short}", title=f"{each.title} ({sweep.loop})")
        for sweep in sweeps
        for each in _sections(source, sweep)
    ]


def _sections(source: ReportSource, sweep: Sweep) -> list[Section]:
    made = [
        delivery_section(sweep, _of(source, sweep, "delivery")),
        _gpus(sweep),
        _server(sweep),
        resources_section(_of(source, sweep, "resources")),
        _parts("replicas", "Replicas", _of(source, sweep, "replicas")),
        _parts("models", "Models", _of(source, sweep, "models")),
        _model_stats(_of(source, sweep, "model_stats")),
        _calls(sweep),
        _server_times(sweep),
        _lengths(_of(source, sweep, "lengths")),
        _tokens(_of(source, sweep, "tokens")),
    ]
    return [each for each in made if each is not None]


def _of(source: ReportSource, sweep: Sweep, name: str) -> Sweep:
    """The rows of a table beside the summary, on the summary's axis and with its names of levels."""
    frame = source.tables.get(name)
    ramps = {(row.get("run"), row.get("visit")): row.get("ramp") for row in sweep.rows}
    rows = [] if frame is None else frame.to_dicts()
    rows = [{**row, "ramp": ramps.get((row.get("run"), row.get("visit")))} for row in rows]
    return replace(sweep, rows=tuple(row for row in rows if sweep.x(row) is not None))


def _gib(used_bytes: object) -> str:
    x = finite(used_bytes)
    return number(None if x is None else x / 2**30)


def _reported(rows: Rows, columns: Sequence[str]) -> bool:
    return any(finite(row.get(column)) is not None for row in rows for column in columns)


def _gpus(sweep: Sweep) -> Section | None:
    rows = sweep.rows
    if not _reported(rows, [name for name in SERVER_COLUMNS if name.startswith("server_gpu") or "energy" in name]):
        return None
    several = any((finite(row.get("server_gpus")) or 0) > 1 for row in rows)
    busiest = [plain_column(rows, "server_gpu_utilization_max", "busiest", "GPU", 4, percent)] if several else []
    columns = [
        plain_column(rows, "server_gpus", "GPUs", "n", 6, plain_number),
        plain_column(rows, "server_gpu_utilization", "busy", "mean", 1, percent),
        *busiest,
        plain_column(rows, "server_gpu_power_w", "power", "W, all" if several else "W", 2, number),
        plain_column(rows, "server_gpu_power_limit_w", "limit", "W, all" if several else "W", 6, number),
        plain_column(rows, "server_gpu_power_share", "power", "of limit", 4, percent),
        plain_column(rows, "server_energy_per_output_token_j", "energy", "J/token", 3, number),
        plain_column(rows, "server_gpu_memory_used_bytes", "memory", "GiB, all" if several else "GiB", 5, _gib),
        plain_column(rows, "server_gpu_memory_share", "memory", "used", 4, percent),
    ]
    note = "Means over the whole level, as the GPUs report them; memory in GiB is the peak."
    return section("gpus", "GPUs", note, sweep, columns)


def _server(sweep: Sweep) -> Section | None:
    """What servers say of requests, beside what our side saw of them."""
    rows = sweep.rows
    own = ("cpu_utilization", "kv_cache_use", "running", "waiting", "batch_size", "queue_s", "compute_s", "request_s")
    if not _reported(rows, [f"server_{name}" for name in own]):
        return None
    seconds = ["server_queue_s", "server_compute_s", "server_request_s", "residence_s"]
    columns = [
        plain_column(rows, "server_cpu_utilization", "CPU", "busy", 3, percent),
        plain_column(rows, "server_kv_cache_use", "KV cache", "mean", 2, percent),
        plain_column(rows, "server_kv_cache_use_max", "KV cache", "most", 4, percent),
        plain_column(rows, "server_running", "running", "req", 3, number),
        plain_column(rows, "server_waiting", "waiting", "req", 1, number),
        plain_column(rows, "server_batch_size", "batch", "mean", 2, number),
        time_column(rows, "server_queue_s", "queue", "server", 1, seconds),
        time_column(rows, "server_compute_s", "compute", "server", 1, seconds),
        time_column(rows, "server_request_s", "request", "server", 3, seconds),
        time_column(rows, "residence_s", "service", "ours", 1, seconds),
    ]
    note = (
        "Means over the whole level, all replicas together. Queue, compute and request are the server's own times; "
        "service is what was measured here, so the rest of it is the way between."
    )
    return section("server", "In the server", note, sweep, columns)


def _parts(key: str, title: str, sweep: Sweep) -> Section | None:
    rows = sweep.rows
    if not rows:
        return None
    columns = [
        text_column(rows, "name", title.lower().removesuffix("s")),
        plain_column(rows, "n", "n", "req", 2, short_count),
        plain_column(rows, "share", "share", "of level", 5, percent),
        plain_column(rows, "achieved_rate", "achieved", "req/s", 1, number),
        *(column for each in METRICS.values() for column in metric_columns(rows, each, each.parts)),
        failure_column(rows, "errors", "errors", 2),
    ]
    what = "Each replica's" if key == "replicas" else "Each model's"
    return section(key, title, f"{what} share of the level's requests, judged as the level is.", sweep, columns)


def _model_stats(sweep: Sweep) -> Section | None:
    rows = sweep.rows
    if not rows:
        return None
    seconds = ["queue_s", "compute_infer_s", "execution_s", "request_s"]
    columns = [
        text_column(rows, "model", "model"),
        text_column(rows, "version", "version", 8),
        plain_column(rows, "requests", "requests", "n", 3, short_count),
        failure_column(rows, "failed", "failed", 4),
        plain_column(rows, "inferences", "inferences", "n", 5, short_count),
        plain_column(rows, "executions", "executions", "n", 6, short_count),
        plain_column(rows, "mean_batch", "batch", "mean", 2, number),
        time_column(rows, "queue_s", "queue", "mean", 1, seconds),
        time_column(rows, "compute_infer_s", "inference", "mean", 1, seconds),
        time_column(rows, "execution_s", "execution", "mean", 2, seconds),
        time_column(rows, "request_s", "request", "mean", 7, seconds),
    ]
    note = (
        "By the server's own statistics, other clients' requests included. A request is charged the whole inference "
        "time of the batch that it was in; an instance can do one execution in the time of an execution."
    )
    several = len({(row.get("model"), row.get("version")) for row in rows}) > 1
    return section("model_stats", "Models in the server", note, sweep, columns, terminal=several)


def _calls(sweep: Sweep) -> Section | None:
    rows = [row for row in sweep.rows if finite(row.get("llm_calls"))]
    if not rows:
        return None
    columns = [
        plain_column(rows, "llm_calls", "calls", "n", 1, short_count),
        plain_column(rows, "llm_calls_per_request", "calls", "per req", 1, number),
        failure_column(rows, "llm_calls_failed", "failed", 2),
        *(column for each in METRICS.values() if each.table == "calls" for column in metric_columns(rows, each)),
    ]
    note = "The calls of language models inside the requests; percentiles are over calls that ended ok."
    return section("calls", "LLM calls", note, replace(sweep, rows=tuple(rows)), columns)


def _server_times(sweep: Sweep) -> Section | None:
    said = [each for each in METRICS.values() if each.said]
    rows = [row for row in sweep.rows if any(finite(row.get(each.column("p50"))) is not None for each in said)]
    if not rows:
        return None
    shown = {"p50": 1, "p95": 2, "max": 5}
    columns = [
        column
        for each in (METRICS["service"], *said)
        for column in metric_columns(rows, each, shown)
        if any(cell.text != DASH for cell in column.cells)
    ]
    note = (
        "By the server's own clock, request by request: how long it let it wait, and from its turn to its end. "
        "What is left of service is outside: network, proxies, the server's front, the client."
    )
    return section("server_times", "What the server says of requests", note, replace(sweep, rows=tuple(rows)), columns)


def _lengths(sweep: Sweep) -> Section | None:
    rows = sweep.rows
    if not rows:
        return None
    off = tuple(Cell(_signed(row.get("off")), BAD if row.get("flagged") else "") for row in rows)
    columns = [
        text_column(rows, "name", "tokens"),
        plain_column(rows, "requests", "n", "req", 2, short_count),
        plain_column(rows, "asked_mean", "asked", "mean", 1, number),
        plain_column(rows, "reported_mean", "reported", "mean", 1, number),
        Column("off", "off", "", off, 1),
    ]
    flagged = any(row.get("flagged") for row in rows)
    note = "Lengths that the dataset asks for beside those that the server reports; off by more than 2 % is marked."
    return section("lengths", "Lengths", note, sweep, columns, terminal=flagged)


def _tokens(sweep: Sweep) -> Section | None:
    rows = sweep.rows
    if not rows:
        return None
    tone = [BAD if row.get("flagged") else "" for row in rows]
    off = {
        key: tuple(Cell(_signed(row.get(key)), each) for row, each in zip(rows, tone, strict=True))
        for key in ("events_off", "dataset_off")
    }
    columns = [
        text_column(rows, "name", "tokens"),
        plain_column(rows, "requests", "n", "req", 2, short_count),
        plain_column(rows, "events_mean", "events", "mean", 1, number),
        plain_column(rows, "dataset_mean", "dataset", "mean", 1, number),
        plain_column(rows, "usage_mean", "usage", "mean", 1, number),
        Column("events_off", "events", "off", off["events_off"], 2),
        Column("dataset_off", "dataset", "off", off["dataset_off"], 2),
    ]
    note = (
        "Three counts per request, over the same requests: stream events with content, the dataset's own count, and "
        "the server's usage; off is against the usage, more than 2 % is marked. The token that ends an answer has no "
        "event."
    )
    flagged = any(row.get("flagged") for row in rows)
    return section("tokens", "Token counts", note, sweep, columns, terminal=flagged)


def _signed(share: object) -> str:
    x = finite(share)
    return DASH if x is None else f"{100 * x:+.1f}%"


THROTTLED = 0.01
"""Share of throttled periods from which on it is marked."""


def resources_section(sweep: Sweep) -> Section | None:
    """CPU, memory and waiting of each source; None where none was sampled."""
    rows = sweep.rows
    if not rows:
        return None
    marked = [(finite(row.get("throttled_share")) or 0) >= THROTTLED for row in rows]
    throttled = tuple(
        Cell(percent(row.get("throttled_share")), BAD if bad else "") for row, bad in zip(rows, marked, strict=True)
    )
    columns = [
        text_column(rows, "source", "source"),
        plain_column(rows, "cpu_mean_cores", "CPU", "cores", 1, number),
        plain_column(rows, "cpu_p95_cores", "CPU p95", "over 1 s", 3, number),
        plain_column(rows, "cpu_peak_cores", "CPU peak", "over 100 ms", 2, number),
        Column("throttled_share", "throttled", "of periods", throttled, 4),
        plain_column(rows, "mem_working_set_bytes", "working set", "MiB", 1, _mib),
        plain_column(rows, "mem_peak_bytes", "memory peak", "MiB", 2, _mib),
        plain_column(rows, "cpu_wait_share", "waited", "for a CPU", 5, percent),
        plain_column(rows, "mem_wait_share", "waited", "for memory", 6, percent),
    ]
    note = (
        "Over the whole level. The peak of memory has page cache in it, the working set less of it; a throttled source "
        "was held back by a CPU limit, so that the level shows the limit."
    )
    return section("resources", "Containers and processes", note, sweep, columns)


def _mib(used_bytes: object) -> str:
    x = finite(used_bytes)
    return number(None if x is None else x / 2**20)
