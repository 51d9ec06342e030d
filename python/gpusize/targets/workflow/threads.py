"""Threads for functions that block. Unlike those of ``concurrent.futures`` they never keep the process alive."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Threads"]


class Threads:
    """Runs functions on threads, a new one whenever all are busy: so a function that was given up blocks nobody.

    Args:
        loop: the event loop that waits for the results.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._idle = 0
        self._all = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """Threads with work."""
        with self._lock:
            return self._all - self._idle

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call ``function`` on a thread; to be used on the event loop. Cancelling the future lets the thread run on."""
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._all += 1
                threading.Thread(target=self._work, name="gpusize-workflow", daemon=True).start()
        self._jobs.put((function, future))
        return future

    def close(self) -> None:
        """Let the idle threads end; the others end after their work."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            with self._lock:
                last = self._closed
                if last:
                    self._all -= 1
                else:
                    self._idle += 1
            # The loop is gone when the run ended without waiting for this thread.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            if last:
                return


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
