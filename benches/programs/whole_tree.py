"""Run a command and wait for all that it started: ``whole_tree SECONDS COMMAND...``.

Whoever measures this process by ``wait4`` then has the CPU time of the whole tree, of children too that the command
killed or left behind. What is still there after so many seconds, or soon after the command's end, is killed, and
counted all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 3.0


def children() -> list[int]:
    """Processes whose parent is this one now."""
    own = os.getpid()
    return [int(pid) for pid in Path(f"/proc/self/task/{own}/children").read_text(encoding="ascii").split()]


def reap(command_pid: int, until: float) -> int:
    """Wait until no child is left, or kill what is; the command's exit code."""
    code = 1
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == command_pid:
            code, until = os.waitstatus_to_exitcode(status), min(until, time.monotonic() + PATIENCE_S)
        elif pid == 0:
            if time.monotonic() > until:
                for child in children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
            time.sleep(0.01)


def main(limit_s: str, *command: str) -> int:
    """The command's own exit code, not 0 when it was killed."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    until = time.monotonic() + float(limit_s)
    return reap(subprocess.Popen(command).pid, until) and 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
