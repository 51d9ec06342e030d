"""The submitter's and watcher's own clock: wall time that no clock step moves while a command runs."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["CLIENT", "ClientClock"]


class ClientClock:
    """Nanoseconds since 1970, counted on from one reading of the wall clock by the monotonic one.

    Two commands that run at once read the wall clock apart from each other, so their times differ by what the wall
    clock was adjusted between their starts.
    """

    def __init__(self) -> None:
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        """The time now, in ns since 1970."""
        return self._anchor_ns + time.monotonic_ns()


CLIENT: Final = ClientClock()
