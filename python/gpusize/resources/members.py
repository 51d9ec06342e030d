"""Which processes are of a source: of a process tree, or of a cgroup and those below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["Member", "in_cgroup_of", "in_group_at", "in_tree_of"]

MOUNT: Final = "/sys/fs/cgroup/"

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
            at = _parent(proc, at)
        found = at is not None and known.get(at, False)
        if found:
            known.update(dict.fromkeys(seen, True))
        return found

    return member


def _parent(proc: Path, pid: int) -> int | None:
    try:
        # The command stands in brackets and may hold blanks and brackets itself.
        return int((proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def in_cgroup_of(pid: int, proc: Path = Path("/proc")) -> Member:
    """Membership in the cgroup of a process, or in one below it, in any hierarchy that has it in a group of its own."""
    groups = _groups(proc, pid)
    known: dict[int, bool] = {pid: True}

    def member(other: int) -> bool:
        if other not in known:
            told = _groups(proc, other)
            inside = any(theirs == ours or theirs.startswith(f"{ours}/") for ours in groups for theirs in told)
            if told:
                known[other] = inside
            return inside
        return known[other]

    return member


def in_group_at(path: str, proc: Path = Path("/proc")) -> Member:
    """Membership in a cgroup that is named by its path in the hierarchies, or by its directory."""
    # A directory of v2 stands right below the mount, one of v1 below its controller.
    parts = path.removeprefix(MOUNT).split("/")
    cuts = (0, 1) if path.startswith(MOUNT) else (0,)
    named = {"/" + "/".join(parts[cut:]).strip("/") for cut in cuts}

    def member(pid: int) -> bool:
        told = _groups(proc, pid)
        return any(theirs == group or theirs.startswith(f"{group}/") for group in named for theirs in told)

    return member


def _groups(proc: Path, pid: int) -> set[str]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    paths = {line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    return paths - {"/", ""}
