"""A parent cgroup of our own for each container: it outlives the container's, and keeps its totals.

Made only as root: without, the daemon would make the groups and we could not remove them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline.labels import own_process, process_lives
from gpusize.engine.session import core

__all__ = ["GroupName", "Groups", "hierarchies", "remove_groups", "run_groups", "run_slices", "stop_slices"]

TOP: Final = "gpusize"
_KEEPS_TOTALS: Final = frozenset({"cpu", "cpuacct", "memory", "blkio", "pids"})
_SYSTEMCTL_S: Final = 10.0
_TRIES: Final = 20
_LEAVES_S: Final = 3.0


@dataclass(frozen=True)
class GroupName:
    """The name that all groups of a run share. A group has no labels, so whose it is stands in the name.

    Args:
        text: the run's id, and the number and start of the process that runs it: ``RUN_PID_TICKS``.
    """

    text: str

    @classmethod
    def of(cls, run: str) -> GroupName:
        """The name for a run of this process."""
        return cls("_".join([run, *map(str, own_process())]))

    @property
    def run(self) -> str:
        """The run's id."""
        return self.text.partition("_")[0]

    @property
    def pid(self) -> int | None:
        """Number of the process that runs it; None where the name tells none."""
        parts = self.text.split("_")
        return int(parts[1]) if len(parts) == 3 and all(each.isdigit() for each in parts[1:]) else None

    @property
    def in_use(self) -> bool:
        """Whether that process still runs. Between two containers nothing else tells: the groups are empty then."""
        return self.pid is not None and process_lives(self.pid, int(self.text.rpartition("_")[2]))


def hierarchies(root: str = "/") -> list[tuple[Path, frozenset[str] | None]]:
    """Where cgroups are mounted: mount points, each with its controllers; None for version 2.

    Args:
        root: the directory that stands for ``/``, for tests.
    """
    try:
        mounts = json.loads(core().cgroup_mounts(root))["mounts"]
    except EnvironmentLacks:
        return []
    return [
        (Path(mount["point"]), None if mount["controllers"] is None else frozenset(mount["controllers"]))
        for mount in mounts
        # A part of a hierarchy has no place for groups of ours.
        if mount["group"] == "/"
    ]


class Groups:
    """The groups of one run.

    Args:
        run: its id; letters and digits.
        systemd: whether the daemon makes groups through systemd.
    """

    def __init__(self, run: str, *, systemd: bool) -> None:
        self._name = GroupName.of(run)
        self._systemd = systemd
        self._slices: list[str] = []
        self.possible = os.geteuid() == 0

    def make(self, number: int) -> tuple[str, str] | None:
        """A group for one container.

        Args:
            number: of the container in the run.

        Returns:
            What to ask the daemon for as parent, and the path of that group in its hierarchies; None where there can
            be none.
        """
        if not self.possible:
            return None
        return self._slice(number) if self._systemd else self._folders(number)

    def _folders(self, number: int) -> tuple[str, str] | None:
        path = f"/{TOP}/{self._name.text}/{number}"
        mounted = hierarchies()
        self.possible = bool(mounted)
        try:
            for point, controllers in mounted:
                if controllers is None or controllers & _KEEPS_TOTALS:
                    _make_folder(Path(f"{point}{path}"))
        except OSError:
            # A container of our own, or a mount that is read-only.
            self.possible = False
        return (path, path) if self.possible else None

    def _slice(self, number: int) -> tuple[str, str] | None:
        # Each run's slice stands for itself: one around all could not be stopped without a run that just begins in it.
        run = f"{TOP}_{self._name.text}"
        name = f"{run}-{number}.slice"
        # Started by name: a slice that only its container needs would be gone with it, and the totals, too.
        if _systemctl("start", name) is None:
            self.possible = False
            return None
        self._slices.append(name)
        return name, f"/{run}.slice/{name}"

    def remove(self) -> list[str]:
        """Remove the groups of the run.

        Returns:
            Those that are still there, as something runs in them.
        """
        if self._systemd:
            return stop_slices([*self._slices, *([f"{TOP}_{self._name.text}.slice"] if self._slices else [])])
        return remove_groups(self._name)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, of which another run that ends may remove an empty one meanwhile."""
    for left in reversed(range(_TRIES)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            if not left:
                raise
        else:
            return


def run_groups() -> list[GroupName]:
    """Runs that have groups, by folder."""
    found = set()
    for point, _ in hierarchies():
        with contextlib.suppress(OSError):
            found |= {each.name for each in (point / TOP).iterdir() if each.is_dir()}
    return [GroupName(each) for each in sorted(found)]


def remove_groups(name: GroupName) -> list[str]:
    """Remove the groups of a run from every hierarchy, and the folder above when it is empty.

    Processes on their way out are waited for: Podman's monitor ends a moment after its container is gone.

    Returns:
        Their path, if something is left of them.
    """
    until = time.monotonic() + _LEAVES_S
    while (left := _remains(name)) and time.monotonic() < until:
        time.sleep(0.05)
    return [f"cgroups /{TOP}/{name.text}"] if left else []


def _remains(name: GroupName) -> bool:
    """Whether something is left of a run's groups after one try to remove them."""
    left = False
    for point, _ in hierarchies():
        top = point / TOP / name.text
        if top.is_dir():
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            left = left or top.exists()
        with contextlib.suppress(OSError):
            (point / TOP).rmdir()
    return left


def run_slices() -> dict[GroupName, list[str]]:
    """Slices of runs, where systemd runs."""
    found: dict[GroupName, list[str]] = {}
    for line in (_systemctl("list-units", "--plain", "--no-legend", "--all", f"{TOP}_*.slice") or "").splitlines():
        name = line.split()[0] if line.split() else ""
        run = name.removesuffix(".slice").partition("-")[0]
        if run.startswith(f"{TOP}_"):
            found.setdefault(GroupName(run.removeprefix(f"{TOP}_")), []).append(name)
    return found


def stop_slices(names: list[str]) -> list[str]:
    """Stop slices; those that could not be."""
    return [] if not names or _systemctl("stop", *names) is not None else names


def _systemctl(*words: str) -> str | None:
    """What systemctl says; None where it fails, or is not there."""
    try:
        done = subprocess.run(
            ["systemctl", "--quiet", *words], check=False, capture_output=True, text=True, timeout=_SYSTEMCTL_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout
