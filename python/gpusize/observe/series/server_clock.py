"""How far a server's clock is ahead of ours, by asking it for the time.

The server's time lies between our sending the question and our having the answer, so each try bounds the offset from
both sides, and all of them together bound it best. What is asked for is ``time()``, to the millisecond; where that is
no number, the header ``Date`` of the answer, to the second. Behind a proxy that gathers several Prometheus (Thanos,
Mimir) it is the proxy's clock; the samples are stamped by those that scraped them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.observe.series.ask import Answer, Asker

__all__ = ["ServerClock", "read_clock"]

TRIES: Final = 5
_MS: Final = 1_000_000
_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ServerClock:
    """The server's clock against ours.

    Attributes:
        offset_ns: server less ours.
        uncertainty_ns: it may be off by so much.
        method: ``time()``, ``Date`` or ``unknown``.
        measured_ns: when, by our clock, in ns since 1970.
    """

    offset_ns: int
    uncertainty_ns: int
    method: str
    measured_ns: int

    def facts(self) -> dict[str, Any]:
        """For ``series.json``."""
        at = datetime.fromtimestamp(self.measured_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        return {
            "offset_ns": self.offset_ns,
            "uncertainty_ns": self.uncertainty_ns,
            "method": self.method,
            "measured": at.replace("+00:00", "Z"),
        }


def read_clock(asker: Asker, wall_ns: Callable[[], int] = time.time_ns, tries: int = TRIES) -> ServerClock:
    """Ask for the time several times.

    Args:
        asker: asks the server.
        wall_ns: our clock, in ns since 1970.
        tries: how often.

    Raises:
        Unreachable: as `Asker.ask`; so are ``NotAllowed``, ``Refused`` and ``TooMuch``.
    """
    bounds: dict[str, list[tuple[int, int]]] = {}
    now = wall_ns()
    for _ in range(tries):
        sent, answer, now = wall_ns(), asker.ask("/api/v1/query", {"query": "time()"}), wall_ns()
        told = _told(answer)
        if told is not None:
            method, low, high = told
            bounds.setdefault(method, []).append((low - now, high - sent))
    for method in ("time()", "Date"):
        if method in bounds:
            low, high = max(low for low, _ in bounds[method]), min(high for _, high in bounds[method])
            if low > high:  # a clock was set meanwhile
                low, high = min(bounds[method], key=lambda each: each[1] - each[0])
            return ServerClock((low + high) // 2, (high - low + 1) // 2, method, now)
    return ServerClock(0, 0, "unknown", now)


def _told(answer: Answer) -> tuple[str, int, int] | None:
    """The method, and the earliest and the latest time that the server can have had."""
    data = answer.data
    try:
        if data["resultType"] == "scalar":
            at = round(float(data["result"][1]) * 1e3) * _MS
            return "time()", at - _MS // 2, at + _MS // 2
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        pass
    try:
        at = round(parsedate_to_datetime(answer.date or "").timestamp()) * _S
    except (TypeError, ValueError):
        return None
    return "Date", at, at + _S
