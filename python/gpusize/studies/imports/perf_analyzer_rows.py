"""The rows of a perf_analyzer CSV: numbers by column, with line and column in every error."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown

__all__ = ["RATE", "THROUGHPUT", "USERS", "Row", "gpu_values", "number_of", "parse_rows"]

MOST: Final = 1e15
"""Of any number in its files: 30 years in microseconds, a petabyte."""
USERS: Final = "Concurrency"
RATE: Final = "Request Rate"
THROUGHPUT: Final = "Inferences/Second"
_TEXTS: Final = ("Avg GPU Utilization", "Avg GPU Power Usage", "Max GPU Memory Usage", "Total GPU Memory")
_WHAT: Final = "is it the file that perf_analyzer wrote with -f?"


@dataclass(frozen=True, slots=True)
class Row:
    """One level.

    Attributes:
        kind: ``Concurrency`` or ``Request Rate``: the column that ``load`` stands in.
        load: requests in flight, or requests per second; above 0.
        line: its line in the file, from 1.
        values: the other columns that are numbers and not empty, in the file's units (microseconds).
        texts: the columns with a value per GPU that are not empty.
        state: ``done``, or ``interrupted`` where perf_analyzer itself did not count the level.
        doubts: why its figures should not be trusted, or are missing.
        remarks: what else a reader of its figures should know.
    """

    kind: str
    load: float
    line: int
    values: Mapping[str, float]
    texts: Mapping[str, str]
    state: str = "done"
    doubts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def parse_rows(reader: Iterator[list[str]], text: str, path: str) -> tuple[list[Row], list[str]]:
    """All rows, and warnings.

    Args:
        reader: a strict CSV reader over ``text``.
        text: the file, to tell a last line that was cut short.
        path: how the file is called in errors.

    Raises:
        ConfigError: no header or no level, a row of another length, or a field that is no number.
    """
    try:
        lines = [(k, fields) for k, fields in enumerate(reader, 1) if any(field.strip() for field in fields)]
    except csv.Error as error:
        raise ConfigError(f"broken CSV: {error}", path, _WHAT) from None
    if not lines:
        raise ConfigError("the file is empty", path, "perf_analyzer ended before it wrote it; look at its output")
    header = [name.strip() for name in lines[0][1]]
    kind = _kind(header, f"{path}, line {lines[0][0]}")
    rows: list[Row] = []
    warnings: list[str] = []
    for at, (line, fields) in enumerate(lines[1:], 1):
        where = f"{path}, line {line}"
        last = at == len(lines) - 1
        if len(fields) < len(header) and last and not text.endswith(("\n", "\r")):
            warnings.append(f"{where}: breaks off after {len(fields)} of {len(header)} fields; it is left out")
            continue
        if len(fields) != len(header):
            raise ConfigError(f"{len(fields)} fields, and the header has {len(header)}", where, "the file is damaged")
        rows.append(_row(dict(zip(header, fields, strict=True)), kind, line, where))
    if not rows:
        todo = "its first level did not settle; look at its output, and give it a longer --measurement-interval"
        raise ConfigError("no level in it", path, todo)
    return rows, warnings


def _kind(header: Sequence[str], where: str) -> str:
    kind = next((name for name in (USERS, RATE) if name in header), None)
    if kind is None:
        raise ConfigError(f"neither {USERS} nor {RATE} is among its columns", where, _WHAT)
    if THROUGHPUT not in header:
        raise ConfigError(f"{THROUGHPUT} is not among its columns", where, _WHAT)
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"the column {shown(twice, 60)} is there twice", where, _WHAT)
    return kind


def _row(fields: Mapping[str, str], kind: str, line: int, where: str) -> Row:
    texts = {name: fields[name].strip() for name in _TEXTS if fields.get(name, "").strip()}
    values = {
        name: number_of(text, f"{where}, {shown(name, 60)}")
        for name, text in fields.items()
        if name not in _TEXTS and text.strip()
    }
    for needed in (kind, THROUGHPUT):
        if needed not in values:
            raise ConfigError("an empty field", f"{where}, {needed}", "the file is damaged")
    load = values.pop(kind)
    if load <= 0 or (kind == USERS and load != int(load)):
        raise ConfigError(f"{load:g} is not a load", f"{where}, {kind}", _WHAT)
    return Row(kind, load, line, values, texts)


def gpu_values(row: Row, column: str, path: str) -> dict[str, float]:
    """Value by GPU of a column such as ``uuid:0.5;uuid:0.6;``; empty where the field is.

    Raises:
        ConfigError: an entry is not uuid:number, or a GPU is there twice.
    """
    where = f"{path}, line {row.line}, {column}"
    found: dict[str, float] = {}
    for entry in row.texts.get(column, "").split(";"):
        if not entry.strip():
            continue
        uuid, colon, value = entry.strip().rpartition(":")
        if not colon or not uuid or uuid in found:
            raise ConfigError(f'"{shown(entry, 60)}" is not GPU:value', where, _WHAT)
        found[uuid] = number_of(value, where)
    return found


def number_of(text: str, where: str) -> float:
    """A number from 0 to ``MOST``.

    Raises:
        ConfigError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST:
        raise ConfigError(f'"{shown(text, 40)}" is not a number from 0 to {MOST:g}', where, "the file is damaged")
    return value
