"""A cluster test on the terminal."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.statistics import PERCENTILES
from gpusize.cluster.report.words import (
    clock_text,
    finding,
    notes,
    occupancy_text,
    outcome_rows,
    rate_text,
    seconds,
    threshold_text,
)
from gpusize.report.summary.columns import BAD, FAINT, Cell, Column
from gpusize.report.summary.terminal import facts_table, fitted_table, plain
from gpusize.report.text import clean, count, number

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from gpusize.cluster.phases.thresholds import Judged
    from gpusize.cluster.phases.timed import Timed

__all__ = ["phase_columns", "print_figures", "print_test"]

_NAMES: Final = {"p999": "p99.9"}
_RANKS: Final = {"p50": 0, "p90": 5, "p95": 2, "p99": 1, "p999": 6, "max": 4}


def print_test(
    timed: Timed,
    summary: pl.DataFrame,
    console: Console,
    judged: Sequence[Judged] = (),
    written: Iterable[Path] = (),
) -> None:
    """Print what became of the workloads, each phase in figures, what is in doubt, thresholds and files."""
    from rich.text import Text

    rows = summary.to_dicts()
    scheduled = next((row for row in rows if row.get("phase") == "scheduled"), None)
    rows = _told(timed, rows, [each.threshold.phase for each in judged])
    console.print(Text(plain(console, finding(timed, scheduled)), style="bold"))
    bad = [row for row in outcome_rows(timed) if row[0] not in ("completed", "running", "scheduled")]
    facts = [
        *((name, f"{count(n)}: {what}") for name, n, what in bad),
        ("pods", rate_text(timed.pods_per_s(), "pods", timed.paused_s)),
        ("workloads", rate_text(timed.workloads_per_s(), "workloads", timed.paused_s)),
        ("GPUs", occupancy_text(timed.occupancy())),
        ("clocks", clock_text(timed)),
    ]
    console.print(facts_table(facts, console, {}))
    if rows:
        console.print()
        console.print(fitted_table(phase_columns(rows), console))
        if any(row["censored"] for row in rows):
            text = "percentiles are of all that began a phase, those that had not ended included; >x: not reached in x"
            console.print(Text(plain(console, text), style="dim"))
    for text in notes(timed):
        line = Text("! ", style="bold yellow")
        line.append(plain(console, text), style="not bold")
        console.print(line)
    for each in judged:
        console.print(Text(plain(console, threshold_text(each)), style="green" if each.met else "bold red"))
    for path in written:
        console.print(str(path), soft_wrap=True)


def print_figures(figures: pl.DataFrame, console: Console) -> None:
    """Print figures that another tool kept without rows."""
    from rich.text import Text

    rows = figures.to_dicts()
    console.print(Text(plain(console, "figures of other tools, without rows"), style="bold"))

    def column(key: str, rank: int, *, left: bool = True) -> Column:
        def text(row: Mapping[str, Any]) -> str:
            return number(row[key]) if key == "value" else clean(row[key] or "", 60)

        return Column(key, key, "", tuple(Cell(text(row)) for row in rows), rank, left=left)

    columns = [column("source", 2), column("test", 0), column("phase", 0), column("figure", 0)]
    console.print(fitted_table([*columns, column("value", 0, left=False), column("unit", 1)], console))


def _told(timed: Timed, rows: list[dict[str, Any]], asked: Collection[str]) -> list[dict[str, Any]]:
    """The phases that say something of their own: a gang of one is its pod, and a quorum of all is the last one."""
    gangs = bool((timed.workloads["pods"] > 1).any())
    quorums = bool((timed.workloads["quorum"] < timed.workloads["pods"]).any())
    same = set() if gangs else {"first_scheduled"}
    same |= set() if quorums else {"quorum_scheduled"}

    def own(row: Mapping[str, Any]) -> bool:
        return row["phase"] not in same and (gangs or row["of"] == "workload")

    return [row for row in rows if row["phase"] in asked or own(row)]


def phase_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The table of phases: how many, the percentiles with what had not ended, and how wrong they may be."""

    def cells(text: Any) -> tuple[Cell, ...]:
        return tuple(text(row) for row in rows)

    def share(row: Mapping[str, Any]) -> Cell:
        left = row["censored"]
        return Cell(count(left), BAD if left else FAINT)

    def percentile(name: str) -> tuple[Cell, ...]:
        return cells(
            lambda row: Cell(seconds(row[f"{name}_s"], row["longest_s"]), "" if row[f"{name}_s"] is not None else BAD)
        )

    def interval(name: str) -> tuple[Cell, ...]:
        def text(row: Mapping[str, Any]) -> str:
            low, high = row[f"{name}_low_s"], row[f"{name}_high_s"]
            if row[f"{name}_s"] is None or low is None:
                return "–"
            if high is None and not row["censored"] and math.isclose(row["mean_s"], row["longest_s"], abs_tol=1e-9):
                # All took as long, and nothing is still on its way: these times do not say how they vary.
                return "–"
            return f"{seconds(low)} and more" if high is None else f"{seconds(low)}–{seconds(high)}"

        return cells(lambda row: Cell(text(row), FAINT))

    odd = any(row["impossible"] for row in rows)
    made = [
        Column("phase", "phase", "", cells(lambda row: Cell(row["phase"])), 0, left=True),
        Column("n", "n", "", cells(lambda row: Cell(count(row["n"]))), 0),
        Column("left", "not ended", "", cells(share), 0),
    ]
    if odd:
        made.append(Column("odd", "impossible", "", cells(lambda row: Cell(count(row["impossible"]))), 3))
    for name in PERCENTILES:
        made.append(Column(name, _NAMES.get(name, name), "s", percentile(name), _RANKS[name]))
        if name == "p95":
            made.append(Column("p95 interval", "95% of it", "s", interval(name), 7))
    made.append(Column("ended", "p95 of ended", "s", cells(lambda row: Cell(seconds(row["p95_ended_s"]), FAINT)), 8))
    made.append(Column("mean", "mean of ended", "s", cells(lambda row: Cell(seconds(row["mean_s"]), FAINT)), 9))
    made.append(Column("error", "± each", "s", cells(lambda row: Cell(seconds(row["error_s"]))), 3))
    made.append(Column("method", "sources", "", cells(lambda row: Cell(row["method"] or "–", FAINT)), 10, left=True))
    return made
