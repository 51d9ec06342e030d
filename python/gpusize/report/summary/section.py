"""One table beside the summary, and the columns that any of them may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusize.report.summary.columns import Cell, Column, level_column, several_columns
from gpusize.report.summary.sweep import Sweep
from gpusize.report.text import DASH, clean

__all__ = ["Rows", "Section", "section", "text_column"]

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """One table: its name, its title, what a reader must know, its columns, and whether a terminal shows it."""

    key: str
    title: str
    note: str
    columns: tuple[Column, ...]
    terminal: bool = True


def section(
    key: str, title: str, note: str, sweep: Sweep, columns: Sequence[Column], *, terminal: bool = True
) -> Section:
    """A table of levels; columns without any figure are left out."""
    given = [level_column(sweep), *several_columns(sweep.rows), *columns]
    known = tuple(each for each in given if not each.rank or any(cell.text != DASH for cell in each.cells))
    return Section(key, title, note, known, terminal)


def text_column(rows: Rows, key: str, title: str, rank: int = 0, limit: int = 60) -> Column:
    """A column of texts, each on one line."""
    return Column(key, title, "", tuple(Cell(clean(row.get(key) or DASH, limit)) for row in rows), rank, left=True)
