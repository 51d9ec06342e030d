"""Which processes are of a source: of a process tree, or of a cgroup and those below it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.procfs import parent_of
from gpusize.engine.session import core

__all__ = ["Member", "in_cgroup_of", "in_group_at", "in_tree_of"]

Member = Callable[[int], bool]
"""Whether a process is of the source."""


def in_tree_of(root_pid: int, proc: Path = Path("/proc")) -> Member:
    """Membership in a process tree. What was of it once stays so: its parents may have ended since."""
    known: dict[int, bool] = {root_pid: True}

    def member(pid: int) -> bool:
        seen = []
        at: int | None = pid
        while at is not None and at not in known and at > 1 and at not in seen:
            seen.append(at)
            at = parent_of(at, proc)
        found = at is not None and known.get(at, False)
        if found:
            known.update(dict.fromkeys(seen, True))
        return found

    return member


def in_cgroup_of(pid: int, root: Path = Path("/")) -> Member:
    """Membership in the cgroup of a process, its container's where it is in one, or in one below it."""
    return _in_group(pid, root, {pid: True})


def in_group_at(path: str, root: Path = Path("/")) -> Member:
    """Membership in a cgroup that is named by its path in the hierarchies, or by its directory."""
    return _in_group(path, root, {})


def _in_group(asked: int | str, root: Path, known: dict[int, bool]) -> Member:
    """Membership by the one hierarchy that the sampler watches the group in.

    Others may have the process elsewhere: those that systemd keeps for itself, or that nobody made groups in.
    """
    where = _place(asked, root)

    def member(pid: int) -> bool:
        if pid not in known:
            theirs = None if where is None else _path_of(pid, where[0], root)
            if where is None or theirs is None:
                return False
            # Of another cgroup namespace: /../other.
            above = where[1].rstrip("/")
            known[pid] = not theirs.startswith("/..") and (theirs == where[1] or theirs.startswith(f"{above}/"))
        return known[pid]

    return member


def _place(asked: int | str, root: Path) -> tuple[str, str] | None:
    """The controller that the group stands and falls with, and its path in that hierarchy; None where it is gone."""
    try:
        told: dict[str, Any] = json.loads(core().cgroup_of(asked, str(root)))
    except EnvironmentLacks:
        return None
    paths = {each["controller"]: each["path"] for each in told["layout"]["controllers"]}
    return (told["primary"], paths[told["primary"]]) if paths else None


def _path_of(pid: int, controller: str, root: Path) -> str | None:
    """The group of a process in the hierarchy of a controller; None when it is not there, or in none."""
    try:
        lines = (root / "proc" / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for number, _, rest in (line.partition(":") for line in lines):
        names, _, path = rest.partition(":")
        if (number == "0") if controller == "unified" else (controller in names.split(",")):
            return path
    return None
