"""Copies of what an operator shares and may write to: each of its executions finds what the first one found.

Without, a second execution would read what the first has written, and write a second time into folders of the user's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing
from gpusize.base.interrupt import StopSwitch
from gpusize.base.text import shown
from gpusize.containers.pipeline.container import Mount
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.wait import Call, Interrupted, wait_for
from gpusize.containers.pipeline.workspace import Workspace, through_container

__all__ = ["LITTLE", "MOST", "Copies", "Most", "moved"]

_GB: Final = 1e9


@dataclass(frozen=True)
class Most:
    """Up to how much is copied."""

    size_bytes: int
    files: int


MOST: Final = Most(8 << 30, 200_000)
"""Where further executions were asked for."""

LITTLE: Final = Most(64 << 20, 2_000)
"""Where there may be one more, with finer readings."""

_COPYING_S: Final = 600.0

_FREE_SHARE: Final = 0.25
"""Of the free space that one copy may take; there are two at a time, and what the operator writes."""


class Copies:
    """Places that an operator shares, as they were before its first execution.

    Args:
        workspace: where the copies lie.
        daemon: by which files of other users are copied.
        operator: the operator's name.
        mounts: what it shares: its inputs and further mounts.
        most: up to how much is copied.
        stop: asked, a copy that is being made is given up.

    Raises:
        Interrupted: it was asked.
    """

    def __init__(
        self,
        workspace: Workspace,
        daemon: Daemon,
        operator: str,
        mounts: Sequence[Mount],
        most: Most,
        stop: StopSwitch | None = None,
    ) -> None:
        self._stop = stop or StopSwitch()
        self._workspace = workspace
        self._daemon = daemon
        self._before = workspace.again(operator, "before")
        self._operator = operator
        self._roots = _roots(mounts)
        self.refused: str | None = None
        try:
            for number, (root, target) in enumerate(self._roots):
                why = _too_much(root, workspace.path, most) or self._copy(root, self._before / str(number))
                if why is not None:
                    self.refused = f"it writes to {shown(target, 100)} ({shown(str(root), 200)}), {why}"
                    break
        except StoreError as problem:
            self.refused = f"what it writes to cannot be copied: {problem}"
        if self.refused is not None:
            self.close()

    def fresh(self, execution: int) -> dict[Path, Path]:
        """Copies for one execution.

        Returns:
            By the places that they are of; empty where the operator shares nothing that it may write to.

        Raises:
            StoreError: they cannot be made.
            Interrupted: the user asked for an end.
        """
        folder = self._place(execution)
        made = {}
        for number, (root, _) in enumerate(self._roots):
            made[root] = folder / str(number)
            why = self._copy(self._before / str(number), made[root])
            if why is not None:
                raise StoreError(f"a copy of it cannot be made: {why}", str(root), None)
        return made

    def _place(self, execution: int) -> Path:
        """Beside what the execution writes: an output may be the whole folder of that."""
        return self._workspace.again(self._operator, f"{execution}-shared")

    def drop(self, execution: int) -> None:
        """Remove those of one execution."""
        self._workspace.remove(self._place(execution), self._daemon)

    def close(self) -> None:
        """Remove what they are made from."""
        self._workspace.remove(self._before, self._daemon)

    def _copy(self, source: Path, target: Path) -> str | None:
        """Copy a file or a folder with all that belongs to it; why it could not be, or None."""
        with storing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.geteuid() != 0 and any(told.st_uid != os.geteuid() for _, told in _every(source)):
                return _copy_through(self._daemon, self._workspace.images, source, target, self._stop)
            return _copied(source, target, self._stop)


def _copied(source: Path, target: Path, stop: StopSwitch) -> str | None:
    """Owners, times, links, holes and special files: as the system's own program copies them."""
    words = ["cp", "-a", "--", str(source), str(target)]
    # Its own session: of Ctrl-C in a terminal, only we shall hear.
    quiet, told = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=told, text=True, start_new_session=True) as process:
        copying = Call(process.communicate)
        try:
            wait_for(copying.ended, stop)
        except Interrupted:
            process.kill()
            copying.ended.wait()
            raise
        said = (copying.result()[1] or "").strip().rpartition("\n")[2]
    return None if process.returncode == 0 else shown(said or f"cp ended with exit code {process.returncode}", 200)


def moved(mounts: Sequence[Mount], copies: Mapping[Path, Path]) -> list[Mount]:
    """Mounts with copies in place of what they are of, whole or in part."""
    found = []
    for mount in mounts:
        real = Path(mount.source).resolve()
        root = next((each for each in copies if real.is_relative_to(each)), None)
        source = mount.source if root is None else str(copies[root] / real.relative_to(root))
        found.append(Mount(source, mount.target, mount.read_only))
    return found


def _roots(mounts: Sequence[Mount]) -> list[tuple[Path, str]]:
    """What has to be copied, none of it inside another, each with a place at which the container sees it.

    That is what may be written to, and what is read and has such a place in it. Sockets and devices hold no data, nor
    does what the kernel shows as files.
    """
    places = [(Path(each.source).resolve(), each) for each in mounts]
    written = [
        (path, each)
        for path, each in places
        if not each.read_only and (path.is_dir() or path.is_file()) and not _is_kernels(path)
    ]
    around = [
        (path, each)
        for path, each in places
        if each.read_only and any(other != path and other.is_relative_to(path) for other, _ in written)
    ]
    every = {path: each.target for path, each in [*around, *written]}
    return [
        (path, target)
        for path, target in every.items()
        if not any(other != path and path.is_relative_to(other) for other in every)
    ]


def _is_kernels(path: Path) -> bool:
    """Whether it is on a file system without a place for data, as /proc and /sys: reading all of it may never end."""
    with contextlib.suppress(OSError):
        return os.statvfs(path).f_blocks == 0
    return False


def _every(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All that is at and below a place; what goes away meanwhile is left out.

    Raises:
        OSError: a folder cannot be looked into.
    """
    yield place, place.lstat()
    if not place.is_dir():
        return

    def give_up(problem: OSError) -> None:
        raise problem

    for folder, folders, files in os.walk(place, onerror=give_up):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue


def _too_much(root: Path, own: Path, most: Most) -> str | None:
    """Why a place is not copied; None where it is."""
    if own.is_relative_to(root):
        return "in which the data of the run lies: name another place by --work-dir"
    size, files = 0, 0
    try:
        device = root.stat().st_dev
        for path, told in _every(root):
            if told.st_dev != device and stat.S_ISDIR(told.st_mode) and _is_kernels(path):
                return f"in which the kernel shows files of its own ({shown(str(path), 100)}): mount less of it"
            # A file with several names is copied once, as it is kept; a sparse one without its holes.
            size += told.st_blocks * 512 // (told.st_nlink if stat.S_ISREG(told.st_mode) else 1)
            files += 1
            if size > most.size_bytes or files > most.files:
                held = f"over {most.size_bytes / _GB:.2g} GB or {most.files:,} files"
                return f"which holds {held}: mount it read-only if it is only read"
    except OSError as problem:
        return f"which cannot be looked through: {problem.strerror}"
    free = shutil.disk_usage(own).free
    if size > free * _FREE_SHARE:
        return f"which holds {size / _GB:.2g} GB, too much for copies on a disk with {free / _GB:.2g} GB free"
    return None


def _copy_through(daemon: Daemon, images: Sequence[str], source: Path, target: Path, stop: StopSwitch) -> str | None:
    """Copy through a container whose image has cp: what this user may not own, root in it may."""
    inside, outside = "/gpusize-from", "/gpusize-to"
    folder = source.is_dir()
    if folder:
        target.mkdir()
    else:
        target.touch()
    words = ("-a", "--", f"{inside}/." if folder else inside, f"{outside}/" if folder else outside)
    mounts = (Mount(str(source), inside, read_only=True), Mount(str(target), outside))
    for image in dict.fromkeys(images):
        if through_container(daemon, image, ("cp", *words), mounts, _COPYING_S, stop):
            return None
    return "in which files of other users are, which only root can copy: no image of the pipeline has cp"
