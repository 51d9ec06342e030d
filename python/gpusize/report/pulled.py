"""What a pull of series has left in its folder, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.units import format_duration
from gpusize.report.summary.columns import Cell, Column
from gpusize.report.summary.terminal import fitted_table, plain
from gpusize.report.text import clean, count, number

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["missing_lines", "print_pulled"]

MOST_NAMES: Final = 12
_NS: Final = 1e9


def print_pulled(facts: Mapping[str, Any], console: Console) -> None:
    """Print a row for each name that has samples, and sentences about those that have none and about clocks.

    Args:
        facts: the contents of ``series.json``.
        console: to print on.
    """
    from rich.text import Text

    names: Mapping[str, Mapping[str, Any]] = facts["names"]
    there = {name: each for name, each in names.items() if each["samples"]}
    if there:
        console.print(fitted_table(_columns(there, _asked(facts["range"])), console))
    empty = [name for name, each in names.items() if not each["samples"] and not name.endswith(("_sum", "_count"))]
    for line in (*_nothing(empty), *_doubles(names), _clock(facts["clock"])):
        console.print(Text(plain(console, clean(line, 600)), style="dim"))


def missing_lines(facts: Mapping[str, Any]) -> list[str]:
    """What was asked for and is not there, and what the server warned of, a line each."""
    lines = []
    for each in facts["missing"]:
        seconds = (each["to_ns"] - each["from_ns"]) / _NS
        lines.append(f"{_listed(each['names'])}: {format_duration(max(1, round(seconds)))} missing: {each['why']}")
    return [*lines, *(f"the server warns: {text}" for text in facts["warnings"])]


def _asked(span: Mapping[str, Any]) -> tuple[int, int]:
    """The range that was asked for, by the server's clock, without the margins: there may be nothing in those."""
    margin = max(0, span["to_ns"] - span["from_ns"] - (span["end_ns"] - span["start_ns"])) // 2
    return span["from_ns"] + margin, span["to_ns"] - margin


def _columns(names: Mapping[str, Mapping[str, Any]], span: tuple[int, int]) -> list[Column]:
    rows = list(names.items())
    return [
        Column("name", "name", "", tuple(Cell(name) for name, _ in rows), 0, left=True),
        Column("kind", "kind", "", tuple(Cell(each["kind"]) for _, each in rows), 2, left=True),
        Column("unit", "unit", "", tuple(Cell(each["unit"]) for _, each in rows), 3, left=True),
        Column("series", "series", "", tuple(Cell(count(each["series"])) for _, each in rows), 0),
        Column("samples", "samples", "", tuple(Cell(count(each["samples"])) for _, each in rows), 0),
        Column("every", "every", "s", tuple(Cell(_or_none(each["interval_s"])) for _, each in rows), 1),
        Column("gaps", "gaps", "s", tuple(Cell(_gaps(each, span)) for _, each in rows), 0),
    ]


def _or_none(value: float | None) -> str:
    return "-" if value is None else number(value, 3)


def _gaps(each: Mapping[str, Any], span: tuple[int, int]) -> str:
    """Seconds of gaps within a range; less than an interval at its ends is none."""
    parts = [(min(high, span[1]) - max(low, span[0])) / _NS for low, high in each["gaps"]]
    seconds = sum(part for part in parts if part > (each["interval_s"] or 0.0))
    return "-" if seconds <= 0 else number(seconds, 3)


def _nothing(names: list[str]) -> list[str]:
    return [f"no series of {_listed(names)}"] if names else []


def _doubles(names: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found: dict[str, set[str]] = {}
    for each in names.values():
        for dropped in each["dropped"]:
            found.setdefault(dropped["why"], set()).add(dropped["series"])
    return [f"left out: {_listed(sorted(series))}: {why}" for why, series in found.items()]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def _clock(clock: Mapping[str, Any]) -> str:
    if clock["method"] == "unknown":
        return "the server does not tell its time: how far its clock is off is not known"
    side = "ahead of" if clock["offset_ns"] >= 0 else "behind"
    off, sure = abs(clock["offset_ns"]) / 1e6, clock["uncertainty_ns"] / 1e6
    return f"the server's clock is {number(off, 3)} ms {side} ours, give or take {number(sure, 3)} ms"
