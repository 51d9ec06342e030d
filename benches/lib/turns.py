"""Turns of two clients, one after the other: what the neighbours of the machine do to one they do to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.stats import Interval, bootstrap_median, paired

__all__ = ["Turn", "alternate", "cpu_rows", "steal_note", "two_sided", "whole_range"]

T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """One client's turn as a whole process; ours knows what of its CPU time was start-up."""

    requests: int
    cpu_s: float
    wall_s: float
    steal: float
    startup_cpu_s: float = 0.0
    sleeps: int = 0

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per request."""
        return self.cpu_s / self.requests * 1e6

    @property
    def sleeps_each(self) -> float:
        """How often a thread of it slept, per request."""
        return self.sleeps / self.requests

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.wall_s


def alternate(
    pairs: int, theirs: Callable[[], T], ours: Callable[[], T], tell: Callable[[T, T], str]
) -> tuple[list[T], list[T]]:
    """So many turns of each side; who goes first alternates as well.

    Args:
        pairs: turns of each side.
        theirs: the peer's turn.
        ours: gpusize's turn.
        tell: a line about a pair, shown while it goes on.
    """
    found: tuple[list[T], list[T]] = ([], [])
    for pair in range(pairs):
        turns = [(found[0], theirs), (found[1], ours)]
        for kept, turn in turns if pair % 2 == 0 else reversed(turns):
            kept.append(turn())
        say(f"pair {pair + 1}/{pairs}: {tell(found[0][-1], found[1][-1])}")
    return found


def cpu_rows(title: str, theirs: Sequence[Turn], ours: Sequence[Turn]) -> list[list[object]]:
    """Two rows of a table: CPU per request and rate, theirs, ours and the paired ratio."""
    rows: list[list[object]] = []
    columns: tuple[tuple[str, Callable[[Turn], float]], ...] = (
        ("CPU us/request", lambda turn: turn.cpu_us),
        ("requests/s", lambda turn: turn.rate),
    )
    for name, of in columns:
        a, b = [of(turn) for turn in theirs], [of(turn) for turn in ours]
        rows.append([f"{title}, {name}", bootstrap_median(a), bootstrap_median(b), paired(b, a)])
    return rows


def steal_note(turns: Sequence[Turn]) -> str:
    """How much of the machine was given to others meanwhile."""
    steal = [turn.steal for turn in turns]
    return f"Steal meanwhile: median {100 * bootstrap_median(steal).value:.2f} %, at most {100 * max(steal):.2f} %."


def whole_range(values: Sequence[float]) -> Interval:
    """The median of a few values, and their ends."""
    return Interval(median(values), min(values), max(values))


def two_sided(ctx: Context, name: str, ratios: Sequence[float], bound: float) -> None:
    """A bar on how far the median of paired ratios is from 1, in either direction."""
    found = bootstrap_median(ratios)
    ends = (abs(found.lo - 1), abs(found.hi - 1))
    nearest = 0.0 if found.lo <= 1 <= found.hi else min(ends)
    ctx.report.bar(Bar(name, Interval(abs(found.value - 1), nearest, max(ends)), bound))
