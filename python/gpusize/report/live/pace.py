"""How fast a run goes: requests that were due, sent and answered per second, of one level and of all together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpusize.report.text import finite

__all__ = ["Pace", "RunRates"]

_NS: Final = 1e9


class Pace:
    """Requests of a level that were answered ok per second: in the last second, and while its load went on.

    What was shed has ended, too, but is no answer: it leaves the count of what is done. The first answers of a level
    come late by as long as they take, and what drains after its end is no throughput: with them a level of a few
    seconds would look slower than it was.
    """

    def __init__(self) -> None:
        self._lately: deque[tuple[float, float]] = deque()
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] = (0.0, 0.0)

    def seen(self, progress: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the counts of one moment, and give them back with ``done`` and ``rate`` in this sense."""
        elapsed, done = finite(progress.get("elapsed_ns")), finite(progress.get("done"))
        if elapsed is None or done is None:
            return progress
        done -= finite(progress.get("shed")) or 0.0
        ok = finite(progress.get("ok"))
        self._add((elapsed / _NS, done if ok is None else ok), running=progress.get("state") == "running")
        (start_s, before), (end_s, now) = self._lately[0], self._lately[-1]
        known = ok is not None and end_s > start_s
        return {**progress, "done": done, "rate": (now - before) / (end_s - start_s) if known else progress.get("rate")}

    def _add(self, point: tuple[float, float], *, running: bool) -> None:
        self._lately.append(point)
        while len(self._lately) > 1 and self._lately[1][0] <= point[0] - 1:
            self._lately.popleft()
        if running and point[1]:
            self._last = point
            self._first = self._first or point

    def rate(self) -> float | None:
        """Per second of the load; None before it was watched for a second."""
        if self._first is None or (span_s := self._last[0] - self._first[0]) < 1:
            return None
        return (self._last[1] - self._first[1]) / span_s


class _Counts(NamedTuple):
    due: float
    sent: float
    ok: float


class RunRates:
    """Requests of a run that became due, were sent and were answered ok per second, over the last second.

    A stage begins on the nanosecond at which the one before ends, whose answers are still to come: the figures of one
    level alone would drop at each boundary, though the load goes on.
    """

    def __init__(self) -> None:
        self._levels: dict[int, _Counts] = {}
        self._points: deque[tuple[float, _Counts]] = deque()

    def seen(self, now_s: float, levels: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
        """Take the counts of one moment.

        Args:
            now_s: the moment.
            levels: progress by position of those levels that may have changed; of others the last counts stand.

        Returns:
            ``offered_rate``, ``sent_rate`` and ``rate``; nothing where a level does not say, or no time has passed.
        """
        for position, progress in levels.items():
            due, sent, ok = (finite(progress.get(name)) for name in _Counts._fields)
            if due is None or sent is None or ok is None:
                return {}
            self._levels[position] = _Counts(due, sent, ok)
            if not self._points:
                # Nothing was due before the level began, whenever somebody looked first.
                began_s = now_s - (finite(progress.get("elapsed_ns")) or 0.0) / _NS
                self._points.append((began_s, _Counts(0.0, 0.0, 0.0)))
        if not self._levels:
            return {}
        total = _Counts(*(sum(column) for column in zip(*self._levels.values(), strict=True)))
        self._points.append((now_s, total))
        while len(self._points) > 2 and self._points[1][0] <= now_s - 1:
            self._points.popleft()
        then_s, then = self._points[0]
        if now_s <= then_s:
            return {}
        names = ("offered_rate", "sent_rate", "rate")
        return {name: (now - before) / (now_s - then_s) for name, now, before in zip(names, total, then, strict=True)}
