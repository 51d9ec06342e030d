"""Calls that may take long, made so that Ctrl-C and timeouts are heeded meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.interrupt import StopSwitch

__all__ = ["Call", "Interrupted", "wait_for"]

_POLL_S: Final = 0.05
"""A signal is looked at so often; Python runs its handler between two waits of the main thread."""

T = TypeVar("T")


class Interrupted(Exception):
    """The user asked for an end."""


class Call(Generic[T]):
    """A call in a thread of its own. The thread does not keep the process alive.

    Args:
        function: what to call.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._ended = threading.Event()
        self._result: T | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as problem:  # noqa: BLE001 - raised again in the thread that asks for the result
            self._problem = problem
        finally:
            self._ended.set()

    @property
    def ended(self) -> threading.Event:
        """Set when it has ended."""
        return self._ended

    def result(self) -> T:
        """What it returned; raises what it raised. After its end only."""
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        return self._result  # type: ignore[return-value]


def wait_for(
    event: threading.Event,
    stop: StopSwitch,
    timeout_s: float | None = None,
    asked: int = 0,
    *,
    clock: Clock = MACHINE,
) -> bool:
    """Wait until an event is set.

    Args:
        event: the event.
        stop: asked more than ``asked`` times, the wait ends.
        timeout_s: longest wait; None for no limit.
        asked: how often the user had asked for an end before.
        clock: what the time is of.

    Returns:
        Whether it is set; False when the time is over.

    Raises:
        Interrupted: the user asked for an end.
    """
    until = None if timeout_s is None else clock.now_s() + timeout_s
    while not event.is_set():
        if stop.asked > asked:
            raise Interrupted
        left = _POLL_S if until is None else min(_POLL_S, until - clock.now_s())
        if left <= 0:
            return False
        clock.wait(event, left)
    return True
