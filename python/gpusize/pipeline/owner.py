"""Whose a run is: its process, in a form that labels and names carry, so that what is left of dead ones is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["own_process", "owner_label", "owner_lives", "process_lives"]


def _start_ticks(pid: int) -> int:
    """When a process was started, in ticks since boot; 0 when it does not run.

    Source: proc_pid_stat(5), field 22.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return 0
    # The second field is the program's name in parentheses, which may hold blanks and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])


def own_process() -> tuple[int, int]:
    """This process: its number and, as numbers are used again, its start in ticks since boot."""
    return os.getpid(), _start_ticks(os.getpid())


def process_lives(pid: int, ticks: int) -> bool:
    """Whether the process of this number that was started then still runs."""
    return _start_ticks(pid) == ticks != 0


def owner_label() -> str:
    """This process on this host, as a label."""
    return "/".join([socket.gethostname(), *map(str, own_process())])


def owner_lives(label: str) -> bool | None:
    """Whether the process that the label names still runs; None for one of another host, which cannot be told."""
    host, _, process = label.rpartition("/")[0].rpartition("/")
    ticks = label.rpartition("/")[2]
    if host != socket.gethostname() or not (process.isdigit() and ticks.isdigit()):
        return None
    return process_lives(int(process), int(ticks))
