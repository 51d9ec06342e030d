"""Cgroups of this machine, made for one test and removed after it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

V1 = ("cpuacct", "cpu", "memory", "pids", "blkio")


def _mounts() -> dict[str, Path]:
    """The mount of each controller of v1, and of v2 as ``unified``."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        kind, _, options = right.split(" ", 2)
        point = Path(left.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("unified", point)
        elif kind == "cgroup":
            found |= {name: point for name in options.split(",") if name in V1 and name not in found}
    return found


@dataclass
class Group:
    """A group in every hierarchy; ``path`` is the same in all."""

    path: str
    dirs: dict[str, Path]

    def make(self) -> None:
        for directory in self.dirs.values():
            directory.mkdir(exist_ok=True)

    def remove(self) -> None:
        """Kill what is left in it, then remove it with the groups below."""
        for directory in set(self.dirs.values()):
            if not directory.exists():
                continue
            for below in directory.rglob("cgroup.procs"):
                for pid in below.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)
            groups = [place.parent for place in directory.rglob("cgroup.procs")]
            for group in sorted(groups, key=lambda place: -len(place.parts)):
                while group.exists():
                    with contextlib.suppress(OSError):
                        group.rmdir()
                    time.sleep(0.001)

    def take(self, pid: int) -> None:
        for directory in set(self.dirs.values()):
            (directory / "cgroup.procs").write_text(str(pid))

    def below(self, name: str) -> Group:
        """A group in this one, not made yet."""
        return Group(f"{self.path}/{name}", {key: place / name for key, place in self.dirs.items()})

    def limit_memory(self, size: int) -> None:
        v1 = self.dirs.get("memory")
        place = v1 / "memory.limit_in_bytes" if v1 else self.dirs["unified"] / "memory.max"
        place.write_text(str(size))

    def limit_cpu(self, cores: float, period_us: int = 100_000) -> None:
        v1, quota_us = self.dirs.get("cpu"), round(cores * period_us)
        if v1:
            (v1 / "cpu.cfs_period_us").write_text(str(period_us))
            (v1 / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self.dirs["unified"] / "cpu.max").write_text(f"{quota_us} {period_us}")


def made() -> Group | None:
    """A new group with a random name in every hierarchy; None where that is not permitted."""
    name = f"gpusize-test-{secrets.token_hex(6)}"
    mounts = _mounts()
    group = Group(f"/{name}", {key: place / name for key, place in mounts.items()})
    if "memory" not in mounts and "unified" in mounts:
        with contextlib.suppress(OSError):
            (mounts["unified"] / "cgroup.subtree_control").write_text("+cpu +memory +pids +io")
    try:
        group.make()
    except OSError:
        group.remove()
        return None
    return group


def share(group: Group) -> None:
    """Let groups below have the controllers, where that has to be said (v2)."""
    if "memory" not in group.dirs:
        (group.dirs["unified"] / "cgroup.subtree_control").write_text("+cpu +memory +pids +io")


@contextlib.contextmanager
def child(code: str, group: Group | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is put into the group, and runs the code when it gets a line.

    In the code, ``say(...)`` prints a line and ``wait()`` waits for the next one.
    """
    prelude = (
        "import os, sys, time\nsay = lambda *w: print(*w, flush=True)\nwait = sys.stdin.readline\nsay('up')\nwait()\n"
    )
    command = [sys.executable, "-I", "-S", "-c", prelude + code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert heard(process) == "up"
            if group is not None:
                group.take(process.pid)
            yield process
        finally:
            process.kill()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens; the test's own time limit ends a wait for something that does not."""
    while not condition():
        time.sleep(0.002)
