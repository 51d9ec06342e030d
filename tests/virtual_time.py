"""Time that passes only while somebody waits for it, and then at once: for threads that wait, and for event loops.

A wait ends at its own time or at what has been planned before it, in this order, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from gpusize.base.clock import Clock

__all__ = ["VirtualClock", "VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualClock(Clock):
    """A clock for one thread that waits, and any number that read it.

    Args:
        begin_ns: what it shows at first.

    Attributes:
        waits: the waits that were asked for, in seconds.
    """

    def __init__(self, begin_ns: int = 1_000_000_000_000) -> None:
        self.waits: list[float] = []
        self._begin_ns = self._now_ns = begin_ns
        self._plan: list[tuple[int, int, Callable[[], object]]] = []

    @property
    def passed_s(self) -> float:
        """What has passed since it was made."""
        return (self._now_ns - self._begin_ns) / 1e9

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Have something happen when so much has passed since it was made, in the thread that waits then."""
        heapq.heappush(self._plan, (self._begin_ns + round(seconds * 1e9), len(self._plan), action))

    def advance(self, ns: int) -> None:
        """Let time pass: something took so long."""
        self._now_ns += ns

    def now_ns(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        until_ns = self._now_ns + round(timeout_s * 1e9)
        while not event.is_set() and self._plan and self._plan[0][0] <= until_ns:
            at_ns, _, action = heapq.heappop(self._plan)
            self._now_ns = max(self._now_ns, at_ns)
            action()
        if not event.is_set():
            self._now_ns = max(self._now_ns, until_ns)
        return event.is_set()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when it has nothing left to do; while threads of its own work, time stands.

    Args:
        clock: is set forward by it.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        self._working = 0
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        return self._virtual.now_s()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._working += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._worked)
        return future

    def _worked(self, _future: asyncio.Future[Any]) -> None:
        self._working -= 1

    def idle(self, timeout_s: float) -> float | None:
        """How long to look for events in real time; sets the clock forward where nothing else can happen."""
        if self._working:
            return None
        self._virtual.advance(math.ceil(round(timeout_s * 1e9, 3)))
        return 0.0


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        return events or super().select(self._loop.idle(timeout))
