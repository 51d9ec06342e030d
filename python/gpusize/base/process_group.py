"""Commands that a study starts: each in a process group of its own, so that Ctrl-C reaches us and not them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpusize.base.errors import EnvironmentLacks, MeasuredNo
from gpusize.base.guardian import Guardian
from gpusize.base.text import shown

__all__ = ["Started", "TookTooLong", "end", "launch", "log_tail", "run_command", "start", "stop"]

_GRACE_S: Final = 10.0
_STEP_S: Final = 0.1
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 3


class TookTooLong(MeasuredNo):
    """A command was ended because its time was over."""


class Started(NamedTuple):
    """A command that runs, and who ends it when this process is killed.

    Attributes:
        process: the leader of the command's process group.
        guardian: to be dismissed when the group has been ended.
    """

    process: subprocess.Popen[bytes]
    guardian: Guardian


def launch(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command that may outlive this process; what it prints goes to the end of ``log``.

    Raises:
        EnvironmentLacks: there is no such program, or it may not be run.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        try:
            return subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise EnvironmentLacks(
                f"{shown(words[0])} cannot be started: {reason}", None, "check its name and path"
            ) from None


def start(words: Sequence[str], log: Path) -> Started:
    """As ``launch``, and end the command when this process dies, however that is."""
    process = launch(words, log)
    try:
        return Started(process, Guardian(process.pid, _GRACE_S))
    except BaseException:
        end(process)
        raise


def stop(started: Started, grace_s: float = _GRACE_S) -> None:
    """End a command and whatever it has started: SIGTERM, and after ``grace_s`` SIGKILL."""
    end(started.process, grace_s)
    started.guardian.dismiss()


def end(process: subprocess.Popen[bytes], grace_s: float = _GRACE_S) -> None:
    """As ``stop``, for a command that ``launch`` has started."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # The group outlives its leader when a child ignores the first signal.
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def run_command(
    words: Sequence[str],
    log: Path,
    timeout_s: float,
    *,
    step: str,
    check: Callable[[], None] | None = None,
) -> int:
    """Run a command to its end.

    Args:
        words: the command.
        log: file that takes what it prints.
        timeout_s: longest time that it may take; it is ended then.
        step: what the command is, for error texts.
        check: called ten times a second; what it raises ends the command.

    Returns:
        Its exit status.

    Raises:
        EnvironmentLacks: it cannot be started.
        TookTooLong: it took too long.
    """
    started = start(words, log)
    until = time.monotonic() + timeout_s
    status: int | None = None
    try:
        while status is None:
            try:
                status = started.process.wait(min(_STEP_S, max(until - time.monotonic(), 0.001)))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= until:
                    raise TookTooLong(
                        f"{step} took longer than {timeout_s:g} s", shown(" ".join(words), 200), f"see {log}"
                    ) from None
            if check is not None and status is None:
                check()
    except BaseException:
        stop(started)
        raise
    # What it has left running in its group, it left on purpose.
    started.guardian.dismiss()
    return status


def log_tail(log: Path) -> str:
    """The last lines of a log, for an error text."""
    try:
        with log.open("rb") as source:
            source.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = source.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shown(" | ".join(lines[-_TAIL_LINES:]), 400)
