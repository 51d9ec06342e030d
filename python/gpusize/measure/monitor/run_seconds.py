"""Seconds of several levels as seconds of the run: while one drains, the next is running already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["SecondsOfRun"]

PATIENCE_S: Final = 3
"""A level that has told nothing of a second for so long has nothing to tell."""
_COUNTS: Final = ("due", "sent", "done", "in_flight", "waiting", "cpu_ns")


@dataclass
class _Live:
    first: int
    told: int
    rest: tuple[int, int] = (0, 0)


@dataclass
class SecondsOfRun:
    """Adds the seconds of levels up by the second of the run in which they lie (to the nearest).

    A second of the run is given out once every level that runs has told of it.
    """

    _levels: dict[Hashable, _Live] = field(default_factory=dict)
    _open: dict[int, dict[str, Any]] = field(default_factory=dict)
    _start_ns: int | None = None
    _next: int = 0

    def level(self, key: Hashable, start_ns: int, elapsed_s: float, rows: Iterable[Mapping[str, Any]]) -> None:
        """What a level tells.

        Args:
            key: which level.
            start_ns: when it started, on the engine's clock.
            elapsed_s: how long ago.
            rows: its further complete seconds, in order; one that it leaves out had no event.
        """
        self._start_ns = start_ns if self._start_ns is None else self._start_ns
        if key not in self._levels:
            first = max(self._next, round((start_ns - self._start_ns) / 1e9))
            self._levels[key] = _Live(first, first)
        live = self._levels[key]
        for row in rows:
            at = live.first + int(row["second"])
            self._fill(live, at)
            self._add(at, row)
            live.told, live.rest = at + 1, (int(row.get("in_flight") or 0), int(row.get("waiting") or 0))
        self._fill(live, live.first + int(elapsed_s) - PATIENCE_S)

    def _fill(self, live: _Live, until: int) -> None:
        """Seconds without an event, up to ``until``: what was in flight still is."""
        for at in range(live.told, until):
            self._add(at, {"in_flight": live.rest[0], "waiting": live.rest[1]})
        live.told = max(live.told, until)

    def ended(self, key: Hashable) -> None:
        """A level has told everything."""
        self._levels.pop(key, None)

    def complete(self) -> list[dict[str, Any]]:
        """The seconds of the run that are complete by now and were not given out before, in order."""
        until = min((live.told for live in self._levels.values()), default=max(self._open, default=-1) + 1)
        ready = [self._open.pop(at) for at in sorted(self._open) if at < until]
        self._next = max(self._next, until)
        return ready

    def _add(self, at: int, row: Mapping[str, Any]) -> None:
        if at < self._next:
            return  # told too late to count
        total = self._open.setdefault(
            at, {"second": at, **dict.fromkeys(_COUNTS, 0), "outcomes": Counter(), "times": {}}
        )
        for name in _COUNTS:
            total[name] += int(row.get(name) or 0)
        total["outcomes"].update(row.get("outcomes") or {})
        for metric, buckets in (row.get("times") or {}).items():
            total["times"].setdefault(metric, []).extend(buckets)
