"""What ``/proc/PID/stat`` says of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["parent_of", "start_ticks"]

PROC: Final = Path("/proc")

# Places after the name, from the state on.
_STATE, _PARENT, _START = 0, 1, 19


def _fields(pid: int, proc: Path) -> list[str]:
    """The fields from the third, the state, on; empty where there is no such process.

    The second field is the program's name in parentheses, which may hold blanks and parentheses itself.
    Source: proc_pid_stat(5).
    """
    try:
        return (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def start_ticks(pid: int, proc: Path = PROC) -> int:
    """When a process was started, in ticks since boot; 0 when it does not run (any more)."""
    fields = _fields(pid, proc)
    return int(fields[_START]) if len(fields) > _START and fields[_STATE] not in {"Z", "X"} else 0


def parent_of(pid: int, proc: Path = PROC) -> int | None:
    """The parent of a process; None when there is no such process."""
    fields = _fields(pid, proc)
    return int(fields[_PARENT]) if len(fields) > _PARENT else None
