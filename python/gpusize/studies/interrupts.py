"""Ctrl-C during a study: it ends the step that runs, and never what has to be undone."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Self

__all__ = ["Interrupts"]


class Interrupts:
    """Inside the block SIGINT and SIGTERM are counted; they raise only where `raising` says that they may.

    Python delivers signals to the main thread only; in any other the block changes nothing.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._may_raise = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # A handler that C code had set reads as None and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]

    def _on(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked += 1
        if self._may_raise:
            # Once: what follows is the way out, which a second Ctrl-C must not cut short.
            self._may_raise = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises ``KeyboardInterrupt``; also one that came before."""
        self._may_raise = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._may_raise = False
