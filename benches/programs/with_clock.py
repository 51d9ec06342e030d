"""Runs a command with another monotonic clock: ``python -m benches.programs.with_clock OFFSET_NS COMMAND...``.

The command gets a time namespace of its own (Linux 5.6, root), in which CLOCK_MONOTONIC is ahead by OFFSET_NS.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWTIME = 0x80


def main(offset_ns: int, command: list[str]) -> None:
    """Become the command."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWTIME) != 0:
        sys.exit(f"no time namespace: {os.strerror(ctypes.get_errno())}")
    seconds, ns = divmod(offset_ns, 1_000_000_000)
    Path("/proc/self/timens_offsets").write_text(f"monotonic {seconds} {ns}", "ascii")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
