"""Runs a command to its end, sampled from its first instruction on; its streams, signals and status are its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from gpusize.engine.session import core, monotonic_ns

if TYPE_CHECKING:
    from types import FrameType, TracebackType

__all__ = ["NOT_FOUND", "NOT_RUNNABLE", "RunningCommand", "start_status"]

NOT_FOUND: Final = 127
NOT_RUNNABLE: Final = 126
"""Statuses by which shells, env and time say that a command could not be started."""
POLL_S: Final = 0.02


def start_status(problem: OSError) -> int:
    """The status for a command that could not be started."""
    return NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_RUNNABLE


class RunningCommand:
    """A command that runs; a context, to whose end signals to this process are the command's, from before its start.

    Ctrl-C on a terminal reaches the command without our help, and what it makes of it is its own affair; a second one
    has SIGTERM sent to it, a third one SIGKILL. SIGTERM to this process is handed on, and so is SIGINT that did not
    come from the terminal.

    Args:
        words: the command; no shell sees it.
        to_stderr: whether its standard output goes to standard error.

    Attributes:
        pid: its process.
        begun_ns: when it was started, on the engine's clock.
        interrupted: whether this process was asked to end.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, words: Sequence[str], *, to_stderr: bool = False) -> None:
        # Imported before the start: it takes a tenth of a second, in which the command would run unseen. (And as it is
        # imported it takes SIGINT for itself.)
        import polars  # noqa: F401

        core()
        self.interrupted = False
        self._asked = 0
        self._cpu_ns: int | None = None
        self._owed: list[int] = []
        self._handlers: dict[int, object] = {}
        self.pid = 0
        # A signal that comes while it starts is the command's too, or it would be left behind without us.
        self._take_signals()
        self.begun_ns = monotonic_ns()
        try:
            self._child = subprocess.Popen(list(words), stdout=sys.stderr if to_stderr else None)
        except BaseException:
            self._give_signals_back()
            raise
        self.pid = self._child.pid
        self._exit_fd = _pidfd(self.pid)
        while self._owed:
            self._send(self._owed.pop(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.returncode is None:
            # An error of ours: what we started does not stay behind.
            self._send(signal.SIGKILL)
            self.status()
        self._give_signals_back()
        if self._exit_fd is not None:
            os.close(self._exit_fd)
            self._exit_fd = None

    def _take_signals(self) -> None:
        # Only a main thread may set handlers; in any other the command is alone with its signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._on_signal)

    def _give_signals_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.interrupted = True
        self._asked += 1
        if self._asked > 2:
            self._send(signal.SIGKILL)
        elif number == signal.SIGTERM or self._asked == 2:
            self._send(signal.SIGTERM)
        elif not _from_terminal():
            self._send(signal.SIGINT)

    def _send(self, number: int) -> None:
        if not self.pid:
            self._owed.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it has ended. It is not reaped yet, so that its last counters can be read."""
        if self._exit_fd is not None:
            return bool(select.select([self._exit_fd], [], [], timeout_s)[0])
        for _ in range(max(1, round(timeout_s / POLL_S))):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            select.select([], [], [], POLL_S)
        return False

    def status(self) -> int:
        """Its exit status as a shell has it, 128 and the signal's number where one ended it; waits for its end."""
        if self._child.returncode is None:
            _, status, used = os.wait4(self.pid, 0)
            self._child.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_ns = round((used.ru_utime + used.ru_stime) * 1e9)
        code = self._child.returncode
        return code if code >= 0 else 128 - code

    @property
    def cpu_ns(self) -> int | None:
        """CPU time of it and of all children that it waited for, by the kernel's account; None before its end."""
        return self._cpu_ns


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable as the process ends; None where the kernel has none (before 5.3)."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _from_terminal() -> bool:
    """Whether this process is in the foreground of a terminal, whose Ctrl-C goes to all that is there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
