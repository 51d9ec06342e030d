"""Which time to pull: what a user writes, what a run folder tells, what result files of GuideLLM and Tekton tell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import ConfigError, StoreError, UsageError
from gpusize.base.text import decode, read_bytes, shown
from gpusize.base.units import seconds_to_ns
from gpusize.engine.clock_log import ClockLog
from gpusize.observe.metrics.prometheus_pull import wall_from_mono
from gpusize.records.store import level_dirs, read_level, read_run

__all__ = ["TimeRange", "iso_ns", "of_result", "of_run", "parse_time_ns", "written_range"]

MOST_BYTES: Final = 1 << 28
_MOST_S: Final = 4e9
_STARTS, _ENDS = ("start-time", "start_time", "startTime"), ("end-time", "end_time", "endTime")
_TODO: Final = "give --from and --to instead"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From when to when.

    Attributes:
        start_ns: ns since 1970.
        end_ns: likewise.
        told_by: where that is from.
        ours: by this machine's clock; else by the cluster's, which is the server's too.
    """

    start_ns: int
    end_ns: int
    told_by: str
    ours: bool = False


def parse_time_ns(text: str, where: str) -> int:
    """A moment: ISO 8601 with its zone, as ``2026-11-20T21:03:12Z``, or seconds since 1970.

    Raises:
        UsageError: neither, or a time of day without its zone.
    """
    todo = "write it as 2026-11-20T21:03:12Z, or as seconds since 1970"
    stripped = text.strip()
    try:
        seconds = float(stripped)
    except ValueError:
        seconds = math.nan
    if 0 <= seconds <= _MOST_S:
        return seconds_to_ns(seconds)
    try:
        at = datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(f'"{shown(text)}" is not a time', where, todo) from None
    if at.tzinfo is None:
        raise UsageError(f'"{shown(text)}" has no time zone', where, "put Z behind it for UTC, or +01:00")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def iso_ns(ns: int) -> str:
    """A moment in UTC, to the millisecond, as `parse_time_ns` reads it."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written_range(start: str, end: str) -> TimeRange:
    """From two moments as they are written.

    Raises:
        UsageError: one is none, or the end is not after the start.
    """
    found = TimeRange(parse_time_ns(start, "from"), parse_time_ns(end, "to"), f"{start} to {end}")
    if found.end_ns <= found.start_ns:
        raise UsageError("it is not after the start", "to", "give a later one")
    return found


def of_run(path: Path) -> TimeRange:
    """From when the first level of a run began to when its last one ended, on the wall clock.

    Raises:
        StoreError: no run folder, no level in it that ended, or none of its clock's pairs.
    """
    run = read_run(path)
    levels = [read_level(each) for each in level_dirs(path)]
    starts = [each["start_ns"] for each in levels if each.get("start_ns") is not None]
    ends = [each["end_ns"] for each in levels if each.get("end_ns") is not None]
    pairs = ClockLog.resumed(path / "clocks.parquet").pairs
    if not starts or not ends or not pairs:
        what = "no level of it has ended" if pairs else "it has no pairs of clocks"
        raise StoreError(f"when the run was is not known: {what}", str(path), _TODO)
    start, end = wall_from_mono(pairs, min(starts)), wall_from_mono(pairs, max(ends))
    return TimeRange(start, end, f"run {run.get('id') or path.name}", ours=True)


def of_result(path: Path) -> TimeRange:
    """Out of a result file: GuideLLM's ``benchmarks.json``, or JSON of Tekton's TaskRuns and PipelineRuns.

    Of several benchmarks or runs it is from the first start to the last end.

    Raises:
        UsageError: it cannot be read.
        ConfigError: it is no JSON, or nothing in it says when it was.
    """
    data = read_bytes(path, error=ConfigError, most_bytes=MOST_BYTES)
    if len(data) > MOST_BYTES:
        raise ConfigError(f"it has more than {MOST_BYTES >> 20} MiB", str(path), _TODO)
    try:
        content = json.loads(decode(data, str(path), error=ConfigError))
    except json.JSONDecodeError as problem:
        where = f"{path}:{problem.lineno}:{problem.colno}"
        raise ConfigError(f"broken JSON: {problem.msg}", where, _TODO) from None
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"broken JSON: {problem}", str(path), _TODO) from None
    guidellm = isinstance(content, Mapping) and isinstance(content.get("benchmarks"), list)
    pairs = list(_guidellm(content["benchmarks"]) if guidellm else _tekton(content, str(path)))
    if not pairs:
        what = "no benchmark in it has a start and an end" if guidellm else "no results start-time and end-time in it"
        raise ConfigError(what, str(path), _TODO)
    start, end = min(start for start, _ in pairs), max(end for _, end in pairs)
    if end <= start:
        raise ConfigError("it ends before it starts", str(path), _TODO)
    return TimeRange(start, end, f"{'GuideLLM' if guidellm else 'Tekton'}: {path.name}")


def _guidellm(benchmarks: list[Any]) -> Iterator[tuple[int, int]]:
    for each in benchmarks:
        if not isinstance(each, Mapping):
            continue
        inner = each.get("scheduler_metrics")
        places = [each, inner] if isinstance(inner, Mapping) else [each]
        start = next((place[_STARTS[1]] for place in places if _is_time(place.get(_STARTS[1]))), None)
        end = next((place[_ENDS[1]] for place in places if _is_time(place.get(_ENDS[1]))), None)
        if start is not None and end is not None:
            yield seconds_to_ns(start), seconds_to_ns(end)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_S


def _tekton(content: Any, path: str) -> Iterator[tuple[int, int]]:
    """Of an object, a list (``kubectl get -o json``), or a bare list of results."""
    for objects in _objects(content):
        told = {
            str(each["name"]): each.get("value") for each in objects if isinstance(each, Mapping) and "name" in each
        }
        start = next((told[name] for name in _STARTS if isinstance(told.get(name), str)), None)
        end = next((told[name] for name in _ENDS if isinstance(told.get(name), str)), None)
        if start is not None and end is not None:
            yield parse_time_ns(start, f"{path}, start-time"), parse_time_ns(end, f"{path}, end-time")


def _objects(content: Any) -> Iterator[list[Any]]:
    """Lists of results: ``status.results``, ``taskResults`` and ``pipelineResults`` of older releases."""
    if isinstance(content, list):
        yield content
        for each in content:
            yield from _objects(each) if isinstance(each, Mapping) else ()
        return
    if not isinstance(content, Mapping):
        return
    if isinstance(content.get("items"), list):
        for each in content["items"]:
            yield from _objects(each)
    status = content.get("status")
    holders = (content, status) if isinstance(status, Mapping) else (content,)
    for holder in holders:
        for name in ("results", "taskResults", "pipelineResults"):
            if isinstance(holder.get(name), list):
                yield holder[name]
