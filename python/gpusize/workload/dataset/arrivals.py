"""When requests arrived, from a trace or any file that has a column of times; prompts are not looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import read_bytes, shown
from gpusize.workload.dataset.dataset import Dataset
from gpusize.workload.dataset.formats import check_format, contained
from gpusize.workload.dataset.published_traces import TRACES, exact_s, has_zone, looks_like_trace, stamp_s, trace_times
from gpusize.workload.dataset.request_bodies import from_perf_analyzer, looks_like_payloads

__all__ = ["TIME_COLUMNS", "ArrivalTimes", "arrivals_of_rows", "read_arrivals", "time_of"]

TIME_COLUMNS: Final = ("arrival_s", "due_s", "time_s", "timestamp")
"""Columns that hold the time of a row, the first that there is: seconds, or a date and time."""


_FAR_S: Final = 1e11
"""In the year 5138: times since 1970 in milliseconds are above it, and in seconds they are not."""
_MOST_S: Final = 10 * 366 * 86400


@dataclass(frozen=True)
class ArrivalTimes:
    """Times of arrivals.

    Args:
        times_s: seconds after the first, ascending.
        rows: the row of the dataset that goes with each, where the times are the dataset's own.
        sha256: of the file.
        fmt: the format that it was read as.
        notes: what the user should know.
        tokens: of prompts and of answers, one each, where the file has them for every request.
    """

    times_s: Sequence[float]
    rows: Sequence[int] | None = None
    sha256: str = ""
    fmt: str = ""
    notes: tuple[str, ...] = ()
    tokens: tuple[Sequence[int], Sequence[int]] | None = None


def read_arrivals(path: str | Path, fmt: str | None = None) -> ArrivalTimes:
    """The times in a file.

    Args:
        path: a Mooncake, Azure or BurstGPT trace, perf_analyzer's input with timestamps, or CSV, TSV, JSON, JSON
            Lines or Parquet with one of `TIME_COLUMNS`.
        fmt: a dataset format; None for the suffix and what stands in the file.

    Raises:
        DatasetError: unreadable, no times, or something that is no time, with its line.
    """
    source = str(path)
    check_format(source, fmt)
    data = read_bytes(path, error=DatasetError)
    parsed, container = contained(data, source, fmt)
    if not parsed.rows:
        raise DatasetError("there are no arrivals in the file", source, "give at least one row")
    kind = fmt if fmt in (*TRACES, "perf-analyzer") else _recognised(parsed.rows) if fmt in (None, container) else None
    notes: list[str] = []
    tokens: list[tuple[int, int]] | None = None
    if kind in TRACES:
        requests, empty = trace_times(parsed, source, kind)
        times, tokens = [each[0] for each in requests], [each[1:] for each in requests]
        notes += [f"{source}: {empty} requests of 0 tokens are left out"] if empty else []
    else:
        rows = from_perf_analyzer(parsed, source).rows if kind == "perf-analyzer" else parsed.rows
        times = [time_of(row, _place(source, parsed.lines, number)) for number, row in enumerate(rows)]
        tokens = _tokens_of(rows)
    if not times:
        raise DatasetError("there are no arrivals in the file", source, "give at least one row")
    if kind not in TRACES and {True, False} <= {has_zone(row[name]) for row in parsed.rows if (name := _named(row))}:
        notes.append(f"{source}: times without a zone stand beside others with one, and are taken as UTC")
    order = sorted(range(len(times)), key=times.__getitem__)
    ordered = [times[place] for place in order]
    if ordered != times:
        notes.append(f"{source}: requests are put in order of time")
    sha256 = hashlib.sha256(data).hexdigest()
    lengths = None if tokens is None else ([tokens[place][0] for place in order], [tokens[place][1] for place in order])
    return ArrivalTimes(_from_first(ordered, source), None, sha256, kind or container, tuple(notes), lengths)


def _from_first(ordered: Sequence[Decimal], source: str) -> list[float]:
    """Seconds since the first arrival.

    Raises:
        DatasetError: the last one is later than a run can last, or the first in thousands of years.
    """
    if ordered[0] >= _FAR_S:
        what = f"the first arrival is at {float(ordered[0]):.4g} s since 1970, in a year far ahead"
        raise DatasetError(what, source, "give times in seconds; are they in milliseconds or nanoseconds?")
    lasts_s = float(ordered[-1] - ordered[0])
    if lasts_s > _MOST_S:
        what = f"the last arrival is {lasts_s:g} s after the first, more than ten years"
        raise DatasetError(what, source, "give times in seconds; are they in milliseconds or nanoseconds?")
    return [round(float(time - ordered[0]), 9) for time in ordered]


def _tokens_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]] | None:
    """Tokens of prompt and answer by request; None unless every row has whole numbers of both, 1 or more."""
    found = []
    for row in rows:
        try:
            pair = int(row["input_tokens"]), int(row["output_tokens"])
        except (KeyError, TypeError, ValueError):
            return None
        if min(pair) < 1 or max(pair) >= 2**31:
            return None
        found.append(pair)
    return found


def arrivals_of_rows(dataset: Dataset) -> ArrivalTimes:
    """The times of a dataset's own rows: row by row, in order of time.

    Raises:
        UsageError: a row without a time.
    """
    pairs = []
    for number, row in enumerate(dataset.rows):
        if not any(name in row for name in TIME_COLUMNS):
            todo = f"give each row one of {', '.join(TIME_COLUMNS)}, or name a trace with --arrivals FILE"
            raise UsageError(f"row {number} has no time of arrival", dataset.where(number), todo)
        pairs.append((time_of(row, dataset.where(number)), number))
    pairs.sort()
    times = _from_first([time for time, _ in pairs], dataset.source)
    return ArrivalTimes(times, [row for _, row in pairs], dataset.sha256, dataset.fmt or "rows")


def _recognised(rows: Sequence[Mapping[str, Any]]) -> str | None:
    if looks_like_payloads(rows):
        return "perf-analyzer"
    kind = looks_like_trace(rows)
    # Beside lengths a bare timestamp is Mooncake's, in milliseconds, also where the hashes were left out.
    names = rows[0].keys()
    return "mooncake" if kind is None and {"timestamp", "input_length", "output_length"} <= names else kind


def _named(row: Mapping[str, Any]) -> str | None:
    """Which of `TIME_COLUMNS` a row has."""
    return next((name for name in TIME_COLUMNS if row.get(name) not in (None, "")), None)


def time_of(row: Mapping[str, Any], where: str) -> Decimal:
    """The time of a row in seconds, exactly as it is written, from the first of `TIME_COLUMNS` that it has.

    Raises:
        DatasetError: it has none, or something that is no time.
    """
    name = _named(row)
    if name is None:
        names = ", ".join(f'"{shown(each)}"' for each in row) or "nothing"
        raise DatasetError(f"there is no time of arrival; the row has {names}", where, f"name it {TIME_COLUMNS[0]}")
    value = row[name]
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return stamp_s(value, where)
    if number is None or not 0 <= number < 1e15:
        raise DatasetError(f'"{name}" is {shown(value)}, not a time', where, "write seconds, 0 or more")
    return exact_s(value)


def _place(source: str, lines: Sequence[int], number: int) -> str:
    return f"{source}:{lines[number]}" if number < len(lines) else f"{source}, row {number}"
