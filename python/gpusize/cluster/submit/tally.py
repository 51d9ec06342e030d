"""Counts of a submission as it goes on, and whether the client itself was what held it up."""

from __future__ import annotations

import time
from array import array
from typing import Any, Final

__all__ = ["LATE_S", "Tally"]

LATE_S: Final = 0.05
"""Lateness (p99) above which the client is said to have been the limit."""

_BUSY: Final = 0.9
"""Share of one core above which it is, too: Python runs on one."""


class Tally:
    """Counts of this command alone; what the folder holds of earlier ones is in `attempts.Outcomes`."""

    def __init__(self) -> None:
        self.created = 0
        self.failed = 0
        self.attempts = 0
        self.retried = 0
        self.throttled = 0
        self.server_errors = 0
        self.unanswered = 0
        self.told_to_wait_s = 0.0
        self.bound_reached = 0
        self.late_ns = array("q")
        self._start = (time.monotonic(), time.process_time())
        self._end: tuple[float, float] | None = None

    def sent(self, late_ns: int) -> None:
        """Count the first request of a workload, sent so long after it was due."""
        self.late_ns.append(late_ns)

    def answered(self, status: int, retry_after_s: float | None) -> None:
        """Count an answer, or with 0 that there was none."""
        self.attempts += 1
        self.throttled += status == 429
        self.server_errors += status >= 500
        self.unanswered += status == 0
        self.told_to_wait_s += retry_after_s or 0.0

    def end(self) -> None:
        """Note the time at which the last answer had come."""
        self._end = (time.monotonic(), time.process_time())

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, or until the end."""
        return (self._end or (time.monotonic(), 0.0))[0] - self._start[0]

    def lateness_s(self) -> dict[str, float] | None:
        """Lateness of first requests: p50, p99 and most, in seconds; None where none was sent."""
        if not self.late_ns:
            return None
        late = sorted(self.late_ns)
        rank = {q: late[max(-(-len(late) * q // 100), 1) - 1] / 1e9 for q in (50, 99, 100)}
        return {"p50": rank[50], "p99": rank[99], "max": rank[100]}

    def facts(self) -> dict[str, Any]:
        """All of it, as it is stored."""
        end = self._end or (time.monotonic(), time.process_time())
        elapsed_s, cpu_s = end[0] - self._start[0], end[1] - self._start[1]
        return {
            "elapsed_s": elapsed_s,
            "cpu_s": cpu_s,
            "attempts": self.attempts,
            "retried": self.retried,
            "throttled": self.throttled,
            "told_to_wait_s": self.told_to_wait_s,
            "server_errors": self.server_errors,
            "unanswered": self.unanswered,
            "lateness_s": self.lateness_s(),
            "bound_reached": self.bound_reached,
            "client_was_limit": self.limits(),
        }

    def limits(self) -> list[str]:
        """In words, why the client was the limit; nothing where it was not."""
        end = self._end or (time.monotonic(), time.process_time())
        elapsed_s, cpu_s = end[0] - self._start[0], end[1] - self._start[1]
        found = []
        late = self.lateness_s()
        if late is not None and late["p99"] > LATE_S:
            found.append(f"one in a hundred workloads was sent {late['p99']:.3g} s late or more")
        if self.bound_reached:
            found.append(f"{self.bound_reached:,} requests waited for one of those under way to end")
        if elapsed_s > 1 and cpu_s / elapsed_s > _BUSY:
            found.append(f"this process was busy {cpu_s / elapsed_s:.0%} of the time")
        return found
