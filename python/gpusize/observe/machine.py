"""What this machine took from the generator: CPU time of its cgroup's limit, and cores that the host gave to others."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.base.errors import EnvironmentLacks
from gpusize.engine.session import core, monotonic_ns

__all__ = ["CpuTimes", "MachineObserver", "cpu_times"]

_THROTTLED: Final = {"throttled_usec": 1_000, "throttled_time": 1}
"""Keys of ``cpu.stat`` in cgroup v2 and v1, with the nanoseconds of their unit."""


class CpuTimes(NamedTuple):
    """CPU time of the machine since it started, in the kernel's ticks."""

    total: int
    idle: int
    stolen: int


def cpu_times(stat: str) -> CpuTimes | None:
    """The first line of ``/proc/stat``; None where there is none."""
    words = stat.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None
    # Guests' time, after these eight, is in user and nice already.
    ticks = [int(word) for word in words[1:9]]
    return CpuTimes(sum(ticks), ticks[3] + ticks[4], ticks[7])


def own_layout(root: Path) -> dict[str, Any]:
    """Where this process's cgroup is, as the extension tells; without ``controllers`` where none can be read."""
    try:
        found: dict[str, Any] = json.loads(core().cgroup_of(os.getpid(), str(root)))["layout"]
    except EnvironmentLacks:
        return {"controllers": []}
    return found


class _Reading(NamedTuple):
    at_ns: int
    throttled_ns: int
    stolen_ns: int


class MachineObserver:
    """Reads both at the borders of levels: two or three small files each time, and nothing in between.

    Args:
        root: the directory that stands for ``/``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.notes: list[str] = []
        self._root = root
        self._files: tuple[Path, ...] = ()
        self._readings: list[_Reading] = []

    def start(self) -> None:
        """Find out which files tell of this process's cgroup, those above it included."""
        found = own_layout(self._root)["controllers"]
        told = [each for each in found if each["controller"] in ("cpu", "unified")]
        places = chain.from_iterable(_up(Path(each["dir"]), Path(each["top"])) for each in told)
        self._files = tuple(dict.fromkeys(place / "cpu.stat" for place in places))

    def boundary(self) -> None:
        """A level is about to start or has ended."""
        throttled_ns = max((_throttled_ns(file) for file in self._files), default=0)
        self._readings.append(_Reading(monotonic_ns(), throttled_ns, _stolen_ns(self._root / "proc/stat")))

    def level(self, _folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
        """What was taken between the readings around a level, where anything was."""
        before = [each for each in self._readings if each.at_ns <= start_ns] or self._readings[:1]
        after = [each for each in self._readings if each.at_ns >= end_ns] or self._readings[-1:]
        if not before or not after:
            return {}
        taken = {name: getattr(after[0], name) - getattr(before[-1], name) for name in ("throttled_ns", "stolen_ns")}
        lost = {name: ns for name, ns in taken.items() if ns > 0}
        return {"machine": lost} if lost else {}

    def stop(self) -> None:
        """Nothing is held."""


def _up(place: Path, top: Path) -> list[Path]:
    """A group and those above it: a limit of any of them stops all below."""
    return [place, *(each for each in place.parents if each.is_relative_to(top))]


def _throttled_ns(file: Path) -> int:
    """For how long the group was kept from running at its limit; 0 where the kernel does not tell."""
    for line in _text(file).splitlines():
        name, _, value = line.partition(" ")
        if name in _THROTTLED and value.strip().isdigit():
            return int(value) * _THROTTLED[name]
    return 0


def _stolen_ns(file: Path) -> int:
    """Time that the cores of a virtual machine were taken away, of all cores; 0 where the kernel does not tell."""
    times = cpu_times(_text(file))
    return 0 if times is None else times.stolen * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace")
    except OSError:
        return ""
