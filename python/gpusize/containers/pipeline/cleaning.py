"""Removes what runs have left that could not take it away themselves, as after a SIGKILL."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline.cgroups import GroupName, remove_groups, run_groups, run_slices, stop_slices
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.labels import FOLDER, OWNER, RUN, owner_lives
from gpusize.containers.pipeline.workspace import FACTS, PREFIX, remove_folder

__all__ = ["Cleaned", "clean"]


@dataclass
class Cleaned:
    """What was found of earlier runs.

    Args:
        removed: what is gone now, in words.
        left: what could not be removed, and why.
        running: ids of runs that go on, and were left alone.
    """

    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


def clean(daemon: Daemon | None = None, *, everything: bool = False) -> Cleaned:
    """Remove containers, networks, cgroups and folders of runs that do not run any more.

    Args:
        daemon: a connection; made and closed by this call by default.
        everything: also of runs that seem to go on, or belong to another host.

    Raises:
        EnvironmentLacks: no daemon, or no permission.
    """
    connected = daemon or Daemon.connect()
    try:
        return _clean(connected, everything=everything)
    finally:
        if daemon is None:
            connected.close()


def _clean(daemon: Daemon, *, everything: bool) -> Cleaned:
    cleaned = Cleaned()
    containers, networks = daemon.labelled(RUN)
    folders = dict(_folders([*containers, *networks]))
    groups, slices = run_groups(), run_slices()
    running = set() if everything else _running([*containers, *networks], folders, [*groups, *slices])
    cleaned.running = sorted(running)
    for container in containers:
        if container["Labels"][RUN] not in running:
            with _trying(cleaned, f"container {container['Id'][:12]}"):
                daemon.remove_container(container["Id"])
    for network in networks:
        if network["Labels"][RUN] not in running:
            with _trying(cleaned, f"network {network['Name']}"):
                daemon.remove_network(network["Id"])
    for name in groups:
        if name.run not in running:
            left = remove_groups(name)
            cleaned.left += [f"{group}: processes run in it, or no permission" for group in left]
            cleaned.removed += [] if left else [f"cgroups of run {name.run}"]
    for name, units in slices.items():
        if name.run not in running:
            left = stop_slices(units)
            cleaned.left += left
            cleaned.removed += [] if left else [f"slices of run {name.run}"]
    for folder, facts in folders.items():
        if facts.get("run") not in running:
            left = remove_folder(folder, daemon, facts.get("images", ()))
            cleaned.left += [f"{each}: no permission" for each in left]
            cleaned.removed += [] if left else [f"folder {folder}"]
    return cleaned


def _running(labelled: list[dict[str, Any]], folders: dict[Path, dict[str, Any]], groups: list[GroupName]) -> set[str]:
    """Runs whose process lives, or may: of another host it cannot be told.

    Between two containers, with a network and a folder of the user's, groups are all that shows a run.
    """
    found = {each["Labels"][RUN] for each in labelled if owner_lives(each["Labels"].get(OWNER, "")) is not False}
    found |= {each.run for each in groups if each.in_use}
    return found | {str(facts.get("run")) for folder, facts in folders.items() if _is_locked(folder)}


def _folders(labelled: list[dict[str, Any]]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folders of runs: those that a label names, and those where folders for temporary files are."""
    named = {Path(each["Labels"][FOLDER]) for each in labelled if each["Labels"].get(FOLDER)}
    for folder in sorted(named | set(Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*"))):
        if folder.name.startswith(PREFIX) and _is_ours(folder):
            with contextlib.suppress(OSError, ValueError):
                facts = json.loads((folder / FACTS).read_text("utf-8"))
                if isinstance(facts, dict):
                    yield folder, facts


def _is_ours(folder: Path) -> bool:
    """A folder, not a link to one, of this user: anybody may put names into a folder for temporary files."""
    try:
        told = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(told.st_mode) and told.st_uid == os.geteuid()


def _is_locked(folder: Path) -> bool:
    try:
        fd = os.open(folder / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def _trying(cleaned: Cleaned, what: str) -> Iterator[None]:
    try:
        yield
    except EnvironmentLacks as problem:
        cleaned.left.append(f"{what}: {problem.what}")
    else:
        cleaned.removed.append(what)
