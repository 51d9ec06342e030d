"""A sweep in the terminal: the knees, and each test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusize.cluster.report.words import seconds
from gpusize.report.summary.columns import BAD, Cell, Column
from gpusize.report.summary.terminal import fitted_table, plain
from gpusize.report.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from gpusize.cluster.sweep import Knee, Swept

__all__ = ["print_swept"]


def print_swept(found: Swept, slos: Sequence[str], console: Console, written: Iterable[Path] = ()) -> None:
    """Print what each row of tests keeps up with, the tests, and the files."""
    from rich.text import Text

    for knee in found.knees:
        console.print(Text(plain(console, _said(knee)), style="bold"))
    if found.tests.height:
        console.print(Text(plain(console, f"held against: {', '.join(slos)}"), style="dim"))
        console.print()
        console.print(fitted_table(_columns(found.tests.to_dicts()), console))
    for path in written:
        console.print(str(path), soft_wrap=True)


def _said(knee: Knee) -> str:
    where = f"{count(knee.nodes)} nodes" + (f", {knee.workers} workers" if knee.workers is not None else "")
    if knee.keeps is None:
        return f"{where}: not even {knee.breaks:g}/s is kept"
    beyond = "the highest that was tried" if knee.breaks is None else f"{knee.breaks:g}/s is not"
    return f"{where}: {knee.keeps:g}/s is kept, {beyond}"


def _columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    def cells(text: Callable[[dict[str, Any]], str], *, judged: bool = False) -> tuple[Cell, ...]:
        return tuple(Cell(text(row), BAD if judged and not row["kept"] else "") for row in rows)

    def verdict(row: dict[str, Any]) -> str:
        return ("yes" if row["kept"] else "no") + (", no GPUs left" if row["full"] else "")

    def percentile(name: str) -> tuple[Cell, ...]:
        return cells(lambda row: seconds(row[name]) if row[name] is not None else "not reached")

    gangs = [Column("workers", "workers", "", cells(lambda row: count(row["workers"])), 0)]
    return [
        Column("nodes", "nodes", "", cells(lambda row: count(row["nodes"])), 0),
        *(gangs if any(row["workers"] is not None for row in rows) else []),
        Column("rate", "rate", "/s", cells(lambda row: f"{row['rate']:g}"), 0),
        Column("n", "workloads", "", cells(lambda row: count(row["workloads"])), 2),
        Column("scheduled", "scheduled", "", cells(lambda row: count(row["scheduled"])), 1),
        Column("p50", "p50", "s", percentile("p50_s"), 3),
        Column("p99", "p99", "s", percentile("p99_s"), 0),
        Column("pods", "pods", "/s", cells(lambda row: f"{row['pods_per_s']:.1f}" if row["pods_per_s"] else "–"), 3),
        Column("kept", "kept", "", cells(verdict, judged=True), 0, left=True),
    ]
