"""The summary and the estimates on a terminal.

Tables adapt to the width: columns leave in order of importance, and a line says which. Without a terminal there are no
escapes and, unless ``COLUMNS`` says otherwise, all columns; without UTF-8 there are no marks beyond ASCII.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

from gpusize.estimate.question import Estimate
from gpusize.estimate.truth import Truth
from gpusize.report.summary.columns import (
    BAD,
    FAINT,
    GOOD,
    Column,
    notes,
    run_notes,
    summary_columns,
    users_by_level,
)
from gpusize.report.summary.sections import sections
from gpusize.report.summary.source import ReportSource, each_slo, shown
from gpusize.report.summary.sweep import judged_slos, sweeps_of
from gpusize.report.summary.words import (
    answer,
    capacity_text,
    counts_text,
    decides_text,
    interval_text,
    method_text,
    neighbours_text,
    next_text,
    remark,
    truth_text,
    ways_to_scale,
)
from gpusize.report.text import number, plain_number

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table

__all__ = [
    "estimate_panel",
    "facts_table",
    "fitted_table",
    "make_console",
    "plain",
    "print_estimates",
    "print_sections",
    "print_summary",
]

_STYLES: Final = {GOOD: "green", BAD: "bold red", FAINT: "dim", "": ""}
_WIDE: Final = 160
"""Columns of an output that is no terminal: a file or a pipe has no width to fit."""

FLAGS_WIDTH: Final = 19
"""Characters of the column of flags where there is no room for all of them in one line: the longest, and a comma."""

MOST_ROWS: Final = 12
"""Rows of a table beside the summary on a terminal; the page and the files have all of them."""

_ASCII: Final = str.maketrans(
    dict(zip("\u2713\u2717\u2013\u2026\u00b5\u00d7\u00b2\u2022\u00b7\u2191\u2192", "+x-~ux2*-^>", strict=True))
)
"""What stands for our own marks where the output takes ASCII only."""


def make_console(file: IO[str] | None = None, *, width: int | None = None) -> Console:
    """A console for ``file`` (standard output by default) that never interprets markup or emoji codes in text."""
    from rich.console import Console

    out = sys.stdout if file is None else file
    if width is None and not out.isatty() and "COLUMNS" not in os.environ:
        width = _WIDE
    return Console(file=out, width=width, markup=False, emoji=False, highlight=False)


def fitted_table(columns: Sequence[Column], console: Console) -> Table:
    """A table of columns that fits the console's width, with what was left out as its caption."""
    kept, dropped = list(columns), []
    table = _table(kept, console)
    if _width(table, console) > console.width:
        # Flags go over several lines before a figure leaves.
        table = _table(kept, console, FLAGS_WIDTH)
    while _width(table, console) > console.width and any(column.rank for column in kept):
        least = max(kept, key=lambda column: column.rank)
        kept.remove(least)
        dropped.append(least)
        table = _table(kept, console, FLAGS_WIDTH)
    # A wide column that left may have made room for a narrow one that left before.
    for column in sorted(dropped, key=lambda column: column.rank):
        more = [each for each in columns if each in kept or each is column]
        if _width(wider := _table(more, console, FLAGS_WIDTH), console) <= console.width:
            table, kept = wider, more
            dropped.remove(column)
    if dropped:
        names = ", ".join(f"{each.title} {each.unit.split()[0] if each.unit else ''}".strip() for each in dropped)
        table.caption = plain(console, f"hidden, the terminal is too narrow: {names}")
        table.caption_style = "dim"
        table.caption_justify = "left"
    return table


def _table(columns: Sequence[Column], console: Console, flags_width: int | None = None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        header = Text(plain(console, column.title))
        header.append(f"\n{plain(console, column.unit)}", style="not bold dim")
        most = flags_width if column.key == "flags" else None
        table.add_column(header, justify="left" if column.left else "right", no_wrap=not column.left, max_width=most)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(plain(console, cell.text), style=_STYLES[cell.tone]) for cell in cells))
    return table


def _width(table: Table, console: Console) -> int:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=10_000), table).maximum


def plain(console: Console, text: str) -> str:
    """The text as it is where the console takes UTF-8, else with marks of ASCII for our own."""
    return text if console.encoding.startswith("utf") else text.translate(_ASCII).encode("ascii", "replace").decode()


def facts_table(rows: Iterable[tuple[str, str | None]], console: Console, styles: Mapping[str, str]) -> Table:
    """Names with what is said of each; a name that repeats stands once, one without a text not at all.

    Args:
        rows: names and texts.
        console: where they will stand.
        styles: of texts, by name.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    previous = ""
    for name, text in rows:
        if text:
            shown_name = "" if name == previous else plain(console, name)
            table.add_row(Text(shown_name), Text(plain(console, text), style=styles.get(name, "")))
            previous = name
    return table


def print_summary(source: ReportSource, console: Console, estimates: Sequence[Estimate] = ()) -> None:
    """Print the summary table, the SLOs that its marks stand for, and the alerts of its levels.

    ``estimates``: those that are printed below it; its column "GPUs by level" is about the same users.
    """
    from rich.text import Text

    sweeps = sweeps_of(source)
    users = users_by_level(estimates)
    if sweeps[0].about:
        console.print(Text(plain(console, sweeps[0].about), style="dim"))
    for sweep in sweeps:
        if len(sweeps) > 1:
            console.print(Text(f"{sweep.loop}:", style="bold"))
        console.print(fitted_table(summary_columns(sweep, users), console))
    for k, slo in judged_slos(sweeps):
        which = f" {k + 1}" if len(sweeps[0].slos) > 1 else ""
        console.print(Text(plain(console, f"SLO{which}: {slo.text}"), style="dim"))
    for level, alerts in [*(each for sweep in sweeps for each in notes(sweep)), *run_notes(source)]:
        for alert in alerts:
            line = Text(plain(console, f"! {level}: "), style="bold yellow")
            line.append(plain(console, alert), style="not bold")
            console.print(line)


def print_sections(source: ReportSource, console: Console) -> None:
    """Print the tables beside the summary; of one with many rows to a level those of the highest levels."""
    from rich.text import Text

    for section in sections(source):
        if not section.terminal:
            continue
        levels = [cell.text for cell in section.columns[0].cells]
        start = _first_shown(levels)
        left = f" (the last {len(levels) - start} of {len(levels)} rows)" if start else ""
        console.print()
        console.print(Text(plain(console, f"{section.title}{left}"), style="bold"))
        console.print(fitted_table([replace(each, cells=each.cells[start:]) for each in section.columns], console))


def _first_shown(levels: Sequence[str]) -> int:
    """From which row on a table is printed: whole levels, as far as ``MOST_ROWS`` allow."""
    if len(levels) <= MOST_ROWS or len(set(levels)) == len(levels):
        return 0
    start = len(levels) - MOST_ROWS
    while start < len(levels) and levels[start] == levels[start - 1]:
        start += 1
    return start if start < len(levels) else len(levels) - MOST_ROWS


def estimate_panel(estimates: Sequence[Estimate], console: Console, truth: Truth | None = None) -> RenderableType:
    """The answer in one sentence, then what it rests on; several methods side by side; the truth where it is known."""
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    if not estimates:
        return Text("No estimate was requested.", style="dim")
    answers = [shown(each) for each in estimates]
    best = answers[0]
    body = _body(answers, console, truth)
    style = "green" if best.answered and not best.outside_tested_range else "yellow"
    return Panel(
        body,
        title=Text("estimate", style="bold"),
        title_align="left",
        border_style=style,
        padding=(0, 1),
        box=box.ROUNDED if console.encoding.startswith("utf") else box.ASCII,
    )


def _body(answers: Sequence[Estimate], console: Console, truth: Truth | None) -> Group:
    from rich.console import Group
    from rich.text import Text

    best = answers[0]
    rows: list[tuple[str, str | None]] = [("capacity", capacity_text(best)), ("interval", interval_text(best))]
    rows += [("decides", decides_text(best)), ("neighbours", neighbours_text(best))]
    rows += [("method", method_text(best)), ("falls back", best.fallback), ("counts", counts_text(best))]
    rows += [("ways", f"• {each}") for each in ways_to_scale(best)]
    if best.answered:
        rows += [("why", best.reason), *(("assumes", f"• {each}") for each in best.assumptions)]
    rows += [("weakens it", f"• {each}") for each in best.warnings]
    rows += [("changes it", f"• {each}") for each in best.changes]
    rows += [("measure next", next_text(best)), ("true answer", truth_text(best, truth))]
    facts = facts_table(rows, console, {"weakens it": "yellow", "true answer": "bold"})
    parts: list[RenderableType] = [Text(plain(console, answer(best)), style="bold"), Text(""), facts]
    if len(answers) > 1 or best.per_slo:
        parts += [Text(""), _methods(answers, console)]
    return Group(*parts)


def _methods(answers: Sequence[Estimate], console: Console) -> Group:
    """Every method's answer to every SLO, and below it what is to be said about one of them."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts = each_slo(answers)
    columns = {
        "method": [each.method for each in parts],
        "SLO": [each.slo or "" for each in parts] if len({each.slo for each in parts}) > 1 else [],
        "GPUs": [plain_number(each.gpus, 9) for each in parts],
        "interval": [interval_text(each) for each in parts],
        "unrounded": [number(each.gpus_raw) for each in parts],
        "capacity (in flight)": [plain_number(each.capacity_concurrency) for each in parts],
        "capacity (requests/s)": [plain_number(each.capacity_rate) for each in parts],
    }
    if all(each.capacity_rate is None for each in parts):
        del columns["capacity (requests/s)"]
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    if "SLO" in filled and console.width < 100:
        del filled["unrounded"]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in filled:
        figure = name in ("GPUs", "unrounded") or name.startswith("capacity")
        table.add_column(name, justify="right" if figure else "left", no_wrap=name in ("method", "GPUs", "interval"))
    for row in zip(*filled.values(), strict=True):
        table.add_row(*(Text(plain(console, cell)) for cell in row))
    named = "SLO" in filled
    remarks = [
        Text(plain(console, f"{each.method}{f', {each.slo}' if named else ''}: {remark(each)}"), style="dim")
        for each in parts
        if remark(each)
    ]
    return Group(table, *remarks)


def print_estimates(estimates: Sequence[Estimate], console: Console, truth: Truth | None = None) -> None:
    """Print the panel of ``estimate_panel``."""
    console.print(estimate_panel(estimates, console, truth))
