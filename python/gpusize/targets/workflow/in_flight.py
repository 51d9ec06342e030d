"""The requests of a workflow's level that have begun and not ended: bounded in time, cancelled where that is asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.targets.workflow.invoke import Work
    from gpusize.targets.workflow.record import RecordedRequest

__all__ = ["InFlight"]

GRACE_S: Final = 1.0
"""What a cancelled call has to end; then it is left to itself."""


class InFlight:
    """Requests in flight. Everything here happens on the event loop.

    Args:
        work: what a request does.
        loop: the engine's event loop.

    Attributes:
        cut: whether what is in flight has been cancelled; what begins later is cancelled at once.
        left: calls that were given up and still ran when their request had its record.
    """

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self.cut = False
        self.left = 0
        self._work = work
        self._loop = loop
        self._running: dict[RecordedRequest, tuple[asyncio.Future[None], asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, request: RecordedRequest) -> None:
        """Do what a request asks for, until it has its outcome."""
        running = self._work.start(request)
        finished: asyncio.Future[None] = self._loop.create_future()
        running.add_done_callback(lambda _: _settle(finished))
        self._running[request] = (running, finished)
        timer = self._loop.call_later(self._work.timeout_s, self._time_out, request)
        if self.cut:
            self._give_up(request, "cancelled", "")
        await finished
        timer.cancel()
        self.left += not running.done()
        del self._running[request]

    def cancel(self) -> None:
        """Cancel what is in flight, and what begins from now on."""
        self.cut = True
        for request in list(self._running):
            self._give_up(request, "cancelled", "")

    def _time_out(self, request: RecordedRequest) -> None:
        self._give_up(request, "timeout", f"no result within {self._work.timeout_s:g} s")

    def _give_up(self, request: RecordedRequest, outcome: str, message: str) -> None:
        running, finished = self._running[request]
        request.fail(outcome, message)
        request.end()
        running.cancel()
        # The task ends at once, and its thread whenever it likes.
        self.left += self._work.in_threads
        self._loop.call_later(GRACE_S, _settle, finished)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
