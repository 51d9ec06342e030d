"""Two sides of cluster tests on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpusize.cluster.report.words import seconds
from gpusize.report.summary.columns import BAD, FAINT, GOOD, Cell, Column
from gpusize.report.summary.terminal import fitted_table, plain
from gpusize.report.text import DASH, clean

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.analysis.compare.differences import Difference
    from gpusize.cluster.compare import Compared

__all__ = ["print_compared"]

_TONES = {"worse": BAD, "better": GOOD}


def print_compared(found: Compared, console: Console) -> None:
    """Print each figure on both sides, the change with its interval, the verdict, and what was not reached."""
    from rich.text import Text

    a, b = (clean(name, 20) for name in found.sides)
    sure = [each for each in found.differences if each.verdict in _TONES]
    said = ", ".join(f"{each.figure} {each.verdict}" for each in sure)
    alone = all(each.design == "within" for each in found.differences)
    tests = (
        "one test a side: no verdict on the clusters, repeat both for one" if alone else "no evidence of a difference"
    )
    console.print(Text(plain(console, f"{b} against {a}: {said or tests}"), style="bold"))
    rows = found.differences

    def column(title: str, unit: str, texts: list[Cell], rank: int, *, left: bool = False) -> Column:
        return Column(title, title, unit, tuple(texts), rank, left=left)

    console.print(
        fitted_table(
            [
                column("figure", "", [Cell(each.figure) for each in rows], 0, left=True),
                column(a, "s, or /s", [Cell(seconds(each.a)) for each in rows], 0),
                column(b, "s, or /s", [Cell(seconds(each.b)) for each in rows], 0),
                column("change", "", [Cell(_percent(each.change)) for each in rows], 0),
                column("interval", "95%", [Cell(_interval(each), FAINT) for each in rows], 1),
                column(
                    "verdict", "", [Cell(each.verdict, _TONES.get(each.verdict, FAINT)) for each in rows], 0, left=True
                ),
            ],
            console,
        )
    )
    for figure, first, second in found.not_reached:
        line = Text("! ", style="bold yellow")
        of_a, of_b = found.sides.values()
        where = f"{first} of {of_a} tests of {a}, {second} of {of_b} of {b}"
        line.append(plain(console, f"{figure} was not reached in {where}: too many had not ended"), style="not bold")
        console.print(line)


def _verdict(each: Difference) -> Cell:
    return Cell(each.verdict, _TONES.get(each.verdict, FAINT))


def _percent(change: float) -> str:
    return DASH if math.isnan(change) else f"{100 * change:+.1f}%"


def _interval(each: Difference) -> str:
    return DASH if math.isnan(each.low) else f"{100 * each.low:+.1f} to {100 * each.high:+.1f}%"
