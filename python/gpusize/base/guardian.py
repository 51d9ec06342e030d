"""Ends a command's process group when whoever started it is gone without having ended it, as after SIGKILL.

Run as a program of its own, by its path and without any of our modules: ``guardian.py GROUP GRACE_S``. It waits on its
standard input. A line there says that the group has been seen to; an end without one that nobody does so any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

__all__ = ["Guardian"]

_STEP_S = 0.05


class Guardian:
    """Watches over a process group in a process of its own.

    Args:
        group: the group, by its leader's id.
        grace_s: time between SIGTERM and SIGKILL.
    """

    def __init__(self, group: int, grace_s: float) -> None:
        # Isolated, without site: it is up in some milliseconds. A session of its own: no signal meant for us ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(group), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """The group is seen to; safe to call twice."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(b"done\n" if self._process.returncode is None else None)


def main(group: int, grace_s: float) -> None:
    """Wait for the word or the end of the one who would say it, and in the latter case end the group."""
    if sys.stdin.readline():
        return
    until = time.monotonic() + grace_s
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < until:
            time.sleep(_STEP_S)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
