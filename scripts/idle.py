"""Processes that run only while no other wants a core: tests that compute, beside those in real time.

A cgroup of version 1 or 2 whose ``cpu.idle`` is 1; it takes a user who may make one. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CGROUPS", "IdleGroup", "idle_group"]

CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Where cgroups of version 1 and version 2 are made."""
AGAIN_S = 0.002
"""Between two looks for processes that are about to end."""

ENDS_S = 10
"""A killed process has ended after so long, or never will."""


@dataclass(frozen=True)
class IdleGroup:
    """A cgroup by its folder."""

    folder: Path

    def add(self, pid: int) -> None:
        """Take a process in, and with it all that it will start."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def end_idling(self) -> None:
        """Give its processes the same right to a core as all others."""
        (self.folder / "cpu.idle").write_text("0")

    def _remove(self) -> None:
        """Remove the cgroup, and kill what is left in it."""
        deadline_s = time.monotonic() + ENDS_S
        while (left := self._pids()) and time.monotonic() < deadline_s:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(AGAIN_S)
        # What cannot be killed keeps it, and is no reason to fail what has passed.
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _pids(self) -> list[int]:
        return list(map(int, (self.folder / "cgroup.procs").read_text().split()))


@contextlib.contextmanager
def idle_group() -> Iterator[IdleGroup | None]:
    """A new cgroup; None where this user can make none."""
    folder = next(filter(None, map(_made, CGROUPS)), None)
    if folder is None:
        yield None
        return
    group = IdleGroup(folder)
    try:
        yield group
    finally:
        group._remove()


def _made(root: Path) -> Path | None:
    folder = root / f"gpusize-tests-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        with (folder / "cpu.idle").open("r+") as file:
            file.write("1")
    except OSError:
        folder.rmdir()
        return None
    return folder
