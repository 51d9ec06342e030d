"""Pieces of work that need nothing of each other: on threads of this process, or wherever else a `Tasks` takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

__all__ = ["Tasks", "Threads", "side_by_side"]

T = TypeVar("T")


class Tasks(Protocol):
    """Who does pieces of work.

    Attributes:
        at_once: how many run at the same time.
    """

    at_once: int

    def share(self, value: T) -> T:
        """A value that many pieces take, as what stands for it among their arguments."""
        ...

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """Have a function of a module called, with what was shared in its place."""
        ...


class Threads(ThreadPoolExecutor):
    """So many threads of this process; for work that leaves the interpreter's lock alone. A context manager.

    Args:
        at_once: how many.
    """

    def __init__(self, at_once: int) -> None:
        super().__init__(at_once)
        self.at_once = at_once

    def share(self, value: T) -> T:
        """The value itself."""
        return value


def side_by_side(count: int, calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each of these gives, in order; up to ``count`` at the same time, on threads that wait for tasks."""
    if count <= 1:
        return [call() for call in calls]
    pool = ThreadPoolExecutor(count)
    try:
        return list(pool.map(lambda call: call(), calls))
    finally:
        # After Ctrl-C they end when who does the tasks does: nobody waits for them here.
        pool.shutdown(wait=False, cancel_futures=True)
