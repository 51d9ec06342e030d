"""The rate of a stream over time, as straight lines: its integral, and the part of it between two moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

__all__ = ["RateProfile"]

_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class RateProfile:
    """Phases of a rate, as in the engine's Arrivals (docs/reference/engine.md).

    Args:
        phases: ``duration_ns`` (None only in the last: without end), ``from`` and ``to`` in requests/s.
        repeat: whether the phases begin again when they end.
    """

    phases: Sequence[Mapping[str, Any]]
    repeat: bool = False

    @property
    def length_ns(self) -> int | None:
        """Time until the last phase ends; None when it does not, or when they repeat."""
        if self.repeat or self.phases[-1]["duration_ns"] is None:
            return None
        return self._period_ns

    @property
    def _period_ns(self) -> int:
        return sum(int(phase["duration_ns"]) for phase in self.phases)

    def total(self, until_ns: int) -> Fraction:
        """Requests expected from the start until a moment, exactly."""
        if not self.repeat:
            return self._once(until_ns)
        rounds, rest = divmod(until_ns, self._period_ns)
        return rounds * self._once(self._period_ns) + self._once(rest)

    def _once(self, until_ns: int) -> Fraction:
        result, at_ns = Fraction(0), 0
        for phase in self.phases:
            duration_ns = phase["duration_ns"]
            length = until_ns - at_ns if duration_ns is None else min(int(duration_ns), until_ns - at_ns)
            if length <= 0:
                break
            low, high = Fraction(phase["from"]), Fraction(phase["to"])
            slope = 0 if duration_ns is None else (high - low) / duration_ns
            result += (low + slope * Fraction(length, 2)) * Fraction(length, _NS)
            at_ns += length
        return result

    def between(self, start_ns: int, end_ns: int | None) -> RateProfile:
        """The part from ``start_ns`` to ``end_ns`` as a profile of its own; repeating phases go on repeating."""
        if self.repeat:
            into = start_ns % self._period_ns
            turned = [*self._part(into, self._period_ns), *self._part(0, into)]
            return RateProfile(turned, repeat=True)
        return RateProfile(self._part(start_ns, end_ns))

    def _part(self, start_ns: int, end_ns: int | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at_ns = 0
        for phase in self.phases:
            duration_ns = phase["duration_ns"]
            low_ns = max(start_ns - at_ns, 0)
            ends = [value for value in (duration_ns, None if end_ns is None else end_ns - at_ns) if value is not None]
            high_ns = min(ends) if ends else None
            if high_ns is None or high_ns > low_ns:
                found.append(_cut(phase, low_ns, high_ns))
            if duration_ns is None:
                break
            at_ns += int(duration_ns)
        return found


def _cut(phase: Mapping[str, Any], low_ns: int, high_ns: int | None) -> dict[str, Any]:
    start, end, duration_ns = phase["from"], phase["to"], phase["duration_ns"]
    if start == end or duration_ns is None or high_ns is None:
        return {"duration_ns": None if high_ns is None else high_ns - low_ns, "from": start, "to": end}
    first, slope = Fraction(start), (Fraction(end) - Fraction(start)) / duration_ns
    # The ends of a whole phase stay the numbers that were written.
    low = start if low_ns == 0 else float(first + slope * low_ns)
    high = end if high_ns == duration_ns else float(first + slope * high_ns)
    return {"duration_ns": high_ns - low_ns, "from": low, "to": high}
