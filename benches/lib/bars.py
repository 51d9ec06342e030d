"""A bar: a bound that a measurement must keep, stated before it is taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benches.lib.stats import Interval, plain

__all__ = ["Bar", "exit_code"]


@dataclass(frozen=True)
class Bar:
    """An upper bound on a measured number; where ``at_least`` is set, a lower one.

    Where ``by_value`` is set the number itself is held against it, and not the worse end of its interval.
    """

    name: str
    measured: Interval
    bound: float
    unit: str = ""
    at_least: bool = False
    by_value: bool = False

    @property
    def ok(self) -> bool:
        """Whether the worse end of the interval, or the value, keeps the bound; NaN never does."""
        if self.at_least:
            return (self.measured.value if self.by_value else self.measured.lo) >= self.bound
        return (self.measured.value if self.by_value else self.measured.hi) <= self.bound

    def line(self) -> str:
        """``BAR name value [lo,hi] bound ok|short``, for people and for grep."""
        m = self.measured
        verdict = "ok" if self.ok else "short"
        bound = f"{'>=' if self.at_least else ''}{plain(self.bound)}"
        unit = f" {self.unit}" if self.unit else ""
        if self.by_value:
            unit += " by value"
        return f"BAR {self.name} {plain(m.value)} [{plain(m.lo)},{plain(m.hi)}] {bound}{unit} {verdict}"


def exit_code(bars: Iterable[Bar]) -> int:
    """1 when a bar is short, else 0."""
    return int(any(not bar.ok for bar in bars))
