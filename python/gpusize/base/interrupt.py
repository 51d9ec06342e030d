"""Ctrl-C as a wish, not as an exception: what was measured is put in order before the process ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["StopSwitch", "on_interrupt"]


class StopSwitch:
    """Counts how often somebody asked for an end: once means orderly, twice at once. May be used from any thread."""

    def __init__(self) -> None:
        self._asked = 0

    def ask(self) -> None:
        """Ask for an end."""
        self._asked += 1

    @property
    def asked(self) -> int:
        """How often an end was asked for."""
        return self._asked


@contextlib.contextmanager
def on_interrupt(switch: StopSwitch) -> Iterator[None]:
    """Inside the block, SIGINT, SIGTERM and SIGHUP ask the switch instead of raising or ending the process.

    A terminal that is closed is an end that somebody wished for; where SIGHUP is ignored, as by nohup, it stays so.
    Python delivers signals to the main thread only; in any other the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # As it is imported Polars takes the signal to end its queries by an exception. Whoever comes after it has it alone.
    import polars  # noqa: F401

    def ask(_signal: int, _frame: FrameType | None) -> None:
        switch.ask()

    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            # A handler that C code had set reads as None and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
