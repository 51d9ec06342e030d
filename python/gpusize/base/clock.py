"""The time that schedules, back-offs and deadlines go by: the machine's, or one that whoever calls hands in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

__all__ = ["MACHINE", "Clock"]


class Clock:
    """The monotonic clock, which is the engine's too, and waits by it."""

    def now_ns(self) -> int:
        """Nanoseconds since some moment in the past."""
        return time.monotonic_ns()

    def now_s(self) -> float:
        """The same in seconds."""
        return self.now_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until an event is set, at most ``timeout_s``; whether it is set."""
        return event.wait(timeout_s)

    def repeat(self, every_s: float, stop: threading.Event, action: Callable[[], None]) -> None:
        """Do something each ``every_s``, for the first time after that, until an event is set.

        What takes longer delays what comes after it: nothing piles up.
        """
        due_s = self.now_s() + every_s
        while not self.wait(stop, max(0.0, due_s - self.now_s())):
            action()
            due_s = max(due_s + every_s, self.now_s())


MACHINE: Final = Clock()
