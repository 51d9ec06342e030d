"""Reports of GuideLLM (``benchmarks.json``): one level per benchmark.

``requests`` may be a sample, so that counts come from ``metrics.request_totals``. Where every request is there and the
tool left no part out as warm-up or cool-down, each becomes a record; else the level has the tool's figures, of requests
that succeeded. ``request_latency`` (s) is ``service`` and ``request_scheduled_latency``, which it has at a rate, is
``runtime``. Times to the first token count from the send. Two of its metrics are none of ours and stay out: its inter
token latency is the mean of a request, counted once per token; its time per output token is latency over tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.figure_levels import KEPT_UP, Remarks, both, figure_level
from gpusize.studies.imports.json_file import (
    count,
    is_json_with,
    listed,
    nanoseconds,
    number,
    part,
    read_documents,
    text,
)
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

if TYPE_CHECKING:
    import polars as pl

__all__ = ["import_guidellm", "looks_like"]

_TOOL: Final = "GuideLLM"
_VERSION: Final = 2
_STATES: Final = ("successful", "errored", "incomplete")
_PERCENTILES: Final = {
    **{f"p{n:02d}": f"p{n}" for n in (1, 5, 10, 25, 50, 75, 90, 95, 99)},
    "p001": "p0.1",
    "p999": "p99.9",
}
_EARLY_NS: Final = 1_000_000_000
"""A load may be planned so long before the scheduler's first moment."""
_STATUS: Final = re.compile(r"'([1-5]\d\d) ")
_KINDS: Final = (
    ("timeout", re.compile(r"Timeout", re.IGNORECASE)),
    ("connect_error", re.compile(r"Connect(ion)?Error|refused", re.IGNORECASE)),
    ("truncated", re.compile(r"RemoteProtocolError|ReadError")),
)
_STAMPS: Final = {
    "sent_ns": "request_start",
    "first_token_ns": "first_token_iteration",
    "first_output_ns": "first_output_token_iteration",
    "last_token_ns": "last_token_iteration",
    "end_ns": "request_end",
}


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is a report of GuideLLM."""
    return is_json_with(path, head, "metadata", "guidellm_version")


def import_guidellm(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take a report over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder.

    Raises:
        StoreError: the folder cannot be written.
        ConfigError: the file is missing or broken, with its place, or has no benchmark.
    """
    found = read_documents(path, _TOOL)
    report = found.objects[0]
    benchmarks = report.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise ConfigError("no benchmark in it", str(path), "was it ended before the first one was done?")
    warnings: list[str] = []
    version = part(report, "metadata", str(path)).get("version")
    if version != _VERSION:
        warnings.append(f"{path}: version {version} of its format; version {_VERSION} is the one that is known")
    levels = []
    for at, each in enumerate(benchmarks, 1):
        where = f"{path}, benchmark {at}"
        if not isinstance(each, dict):
            raise ConfigError("not a JSON object", where, "the file is damaged")
        levels.append(_level(each, where, gpus, warnings))
    backend = part(part(benchmarks[0], "config", str(path)), "backend", str(path))
    source = {"tool": _TOOL, "files": [path.name], "sha256": found.sha256, "warnings": warnings}
    run = f"guidellm-{found.sha256[:12]}-{gpus}gpu"
    model = text(backend, "model")
    about = run_of(run, levels, source, api="guidellm", gpus=gpus, model=model, nature="language_model")
    return Imported(write_run(out_dir, about, levels), warnings)


def _level(bench: Mapping[str, Any], where: str, gpus: int, warnings: list[str]) -> LevelData | RequestLevel:
    metrics, requests = part(bench, "metrics", where), part(bench, "requests", where)
    totals = part(metrics, "request_totals", where)
    counts = {state: count(totals, state, f"{where}, request_totals") for state in _STATES}
    total = count(totals, "total", f"{where}, request_totals")
    if not total:
        raise ConfigError("no request in its request_totals", where, "leave it out")
    remarks = Remarks()
    if sum(value or 0 for value in counts.values()) != total:
        remarks.add(f"its successful, errored and incomplete requests are not its {total:,} in total", "inconsistent")
    setting = _setting(bench, metrics, total, where, remarks)
    for note in listed(bench, "warnings", where):
        if isinstance(note, dict) and text(note, "message"):
            remarks.add(f"{_TOOL} warns: {note['message']}")
    kept = {state: len(listed(requests, state, where)) for state in _STATES}
    cut = any(number(bench, f"{name}_duration", where) for name in ("warmup", "cooldown"))
    # Requests that the end cut off it lists all, and does not count all.
    lacks = [state for state in _STATES if (kept[state] < (counts[state] or 0))]
    more = [state for state in _STATES if state != "incomplete" and kept[state] > (counts[state] or 0)]
    if not lacks and not more and not cut:
        frame = _rows(requests, where, closed=setting["kind"] == "closed")
        early = frame.height - frame["possible"].sum()
        if early:
            what = f"{early:,} of its {total:,} requests were due before the benchmark began, by targeted_start"
            remarks.add(f"{what}: when requests were due is not known")
            frame = frame.with_columns(due_ns=None)
        frame = frame.drop("possible")
        told = Told(alerts=remarks.alerts, flags=remarks.flags)
        return RequestLevel(setting, [frame], where, told)
    why = "it left out warm-up and cool-down" if cut else f"it kept {sum(kept.values()):,} of {total:,} requests"
    warnings.append(f"{where}: {why}: the level has its figures, and itl is not among them")
    if counts["incomplete"]:
        remarks.add(f"{counts['incomplete']:,} of {total:,} requests were cut off at the end")
    remarks.failures(counts["errored"] or 0, total, _failures(requests, kept, counts))
    return _of_figures(bench, metrics, setting, remarks, (total, counts["errored"]), where, gpus)


def _failures(
    requests: Mapping[str, Any], kept: Mapping[str, int], counts: Mapping[str, int | None]
) -> dict[str, int] | None:
    """Failures by kind, where each of them is there."""
    if kept["errored"] != counts["errored"]:
        return None
    kinds: dict[str, int] = {}
    for each in requests.get("errored") or []:
        info = each.get("info") if isinstance(each, dict) else None
        kind = _outcome(str(info.get("error") or "") if isinstance(info, dict) else "")
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def _setting(
    bench: Mapping[str, Any], metrics: Mapping[str, Any], total: int, where: str, remarks: Remarks
) -> dict[str, Any]:
    strategy = part(part(bench, "config", where), "strategy", where)
    kind, limit = text(strategy, "type_"), count(strategy, "max_concurrency", where)
    if number(strategy, "rampup_duration", where):
        remarks.add(f"its load rose over the first {strategy['rampup_duration']:g} s", "ramp")
    if kind == "synchronous":
        return {"kind": "closed", "concurrency": 1}
    if kind == "concurrent":
        streams = count(strategy, "streams", where)
        if not streams:
            raise ConfigError("its strategy has no streams", where, "the file is damaged")
        return {"kind": "closed", "concurrency": streams}
    if kind == "throughput":
        held = limit or _most(metrics, where) or total
        if held >= total:
            what = f"{total:,} requests were sent as fast as they went"
            remarks.add(f"{what}, and its figures are of no steady load", "burst")
        return {"kind": "closed", "concurrency": min(held, total)}
    if kind in ("constant", "poisson"):
        rate = number(strategy, "rate", where)
        if not rate:
            raise ConfigError("its strategy has no rate", where, "the file is damaged")
        return {"kind": "open", "rate": rate, "process": kind}
    seconds = number(bench, "duration", where)
    if not seconds:
        raise ConfigError(f"neither a duration nor a known strategy ({kind})", where, "the file is damaged")
    remarks.add(f"its load is of the strategy {kind}, which has no rate: that of all its requests stands for it")
    return {"kind": "open", "rate": total / seconds}


def _most(metrics: Mapping[str, Any], where: str) -> int | None:
    held = number(part(part(metrics, "request_concurrency", where), "total", where), "max", where)
    return None if held is None else round(held)


def _summary(metrics: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """A metric's figures of requests that succeeded."""
    return part(part(metrics, name, where), "successful", f"{where}, {name}")


def _quantiles(metrics: Mapping[str, Any], name: str, where: str, scale: float = 1.0) -> dict[str, float | None]:
    """Its percentiles and mean, s, by their names here; null where nothing was counted."""
    found = _summary(metrics, name, where)
    place = f"{where}, {name}"
    if not count(found, "count", place):
        return {}
    percentiles = part(found, "percentiles", place)
    made = {here: number(percentiles, there, place) for there, here in _PERCENTILES.items()}
    made |= {"p100": number(found, "max", place), "mean": number(found, "mean", place)}
    return {key: None if value is None else value * scale for key, value in made.items()}


def _possible(
    metrics: Mapping[str, Any], name: str, bench: Mapping[str, Any], where: str, remarks: Remarks
) -> dict[str, float | None]:
    """Percentiles of a time from when a request was due; none where one is longer than all that was measured.

    Of a Poisson load GuideLLM 0.8.1 wrote times since 1970, for requests without a moment at which they were due.
    """
    found = _quantiles(metrics, name, where)
    ran = part(bench, "scheduler_metrics", where)
    begun, ended = number(ran, "start_time", where), number(ran, "end_time", where)
    longest = found.get("p100")
    if longest is None or begun is None or ended is None or longest <= ended - begun:
        return found
    remarks.add(f"its {name} has {longest:.4g} s, and the benchmark took {ended - begun:.4g} s: it is left out")
    return {}


def _of_figures(
    bench: Mapping[str, Any],
    metrics: Mapping[str, Any],
    setting: Mapping[str, Any],
    remarks: Remarks,
    counts: tuple[int, int | None],
    where: str,
    gpus: int,
) -> LevelData:
    closed = setting["kind"] == "closed"
    total, failed = counts
    good = count(part(metrics, "request_totals", where), "successful", where)
    others = total - (good or 0)
    cut_off = 0 if failed is None or good is None else total - failed - good
    figures = both(["service", "runtime"] if closed else ["service"], _quantiles(metrics, "request_latency", where))
    first = _quantiles(metrics, "time_to_first_token_ms", where, 1e-3)
    figures |= both(["ttft_sent", "ttft"] if closed else ["ttft_sent"], first)
    if not closed:
        for name, there in (("runtime", "request_scheduled_latency"), ("lateness", "request_dispatch_delay")):
            figures |= both([name], _possible(metrics, there, bench, where, remarks))
    answered = number(_summary(metrics, "requests_per_second", where), "mean", where)
    seconds = number(bench, "duration", where)
    if closed:
        mean_s, longest_s = figures.get("service_mean_s"), figures.get("service_p100_s")
        users = setting["concurrency"]
        remarks.little(answered, mean_s, users, longest_s=longest_s, seconds=seconds, others=others)
    elif seconds is not None and total / setting["rate"] / KEPT_UP + (figures.get("service_p100_s") or 0) < seconds:
        what = f"{total:,} requests at {setting['rate']:g}/s are {total / setting['rate']:.4g} s"
        remarks.add(f"{what}, and it took {seconds:.4g} s", "not-delivered")
    facts = {
        "counts": {
            "n": total,
            "errors": failed,
            # Cut off at the end: neither answered nor failed.
            **({"cancelled": cut_off} if cut_off > 0 else {}),
            "tokens_out_per_s": number(_summary(metrics, "output_tokens_per_second", where), "mean", where),
            "tokens_in_per_s": number(_summary(metrics, "prompt_tokens_per_second", where), "mean", where),
        },
        "total_runtime_s": seconds,
        "achieved_rate": answered,
    }
    return figure_level(setting, figures, remarks, facts, gpus=gpus, where=where)


def _rows(requests: Mapping[str, Any], where: str, *, closed: bool) -> pl.DataFrame:
    import polars as pl

    integers = (*_STAMPS, "due_ns", "status", "tokens_in", "tokens_out", "tokens_cached")
    schema: dict[str, Any] = {**dict.fromkeys(integers, pl.Int64), **dict.fromkeys(("outcome", "error"), pl.String)}
    schema["possible"] = pl.Boolean
    return pl.DataFrame(list(_row_by_row(requests, where, closed=closed)), schema=schema)


def _row_by_row(requests: Mapping[str, Any], where: str, *, closed: bool) -> Iterator[dict[str, Any]]:
    for state in _STATES:
        for at, each in enumerate(requests.get(state) or [], 1):
            place = f"{where}, {state} request {at:,}"
            if not isinstance(each, dict):
                raise ConfigError("not a JSON object", place, "the file is damaged")
            yield _row(each, state, place, closed=closed)


def _row(request: Mapping[str, Any], state: str, where: str, *, closed: bool) -> dict[str, Any]:
    info = part(request, "info", where)
    timings = part(info, "timings", where)
    row: dict[str, Any] = {name: _ns(timings, key, where) for name, key in _STAMPS.items()}
    if row["sent_ns"] is not None and row["end_ns"] is None:
        # Of what it cut off, and of failures, it says when it was done with them.
        row["end_ns"] = _ns(timings, "resolve_end", where)
    if not closed or row["sent_ns"] is None:
        # Of a closed loop it says when a worker took the request; the time from there is that of the tool itself.
        wanted = (_ns(timings, key, where) for key in ("targeted_start", "dequeued", "queued"))
        row["due_ns"] = next((each for each in wanted if each is not None), None)
    begun = _ns(info, "scheduler_start_time", where)
    due = row.get("due_ns")
    row["possible"] = due is None or begun is None or due >= begun - _EARLY_NS
    error = text(info, "error")
    said = error or state
    status = _STATUS.search(said)
    ended = {"successful": "ok", "incomplete": "cancelled"}
    return row | {
        "outcome": ended.get(state) or _outcome(said),
        "error": None if state == "successful" else said,
        "status": int(status[1]) if status else None,
        "tokens_in": count(request, "prompt_tokens", where),
        "tokens_out": count(request, "output_tokens", where),
        "tokens_cached": count(request, "cached_tokens", where),
    }


def _ns(timings: Mapping[str, Any], key: str, where: str) -> int | None:
    value = number(timings, key, where)
    return None if value is None else nanoseconds(value, f"{where}, {key}")


def _outcome(error: str) -> str:
    """The kind of a failure by its text, an exception of the tool's HTTP client."""
    return next((kind for kind, pattern in _KINDS if pattern.search(error)), "http_error")
