"""The folders through which operators hand data on."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.files import lock_folder, storing, write_json
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline.container import Container, Mount
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.labels import labels_of
from gpusize.containers.pipeline.model import Operator, Output, Pipeline, same_name
from gpusize.containers.pipeline.wait import Call, Interrupted, wait_for

__all__ = ["FACTS", "PREFIX", "VOLUMES", "Workspace", "check_kept", "remove_folder", "through_container"]

FACTS: Final = "run.json"
"""In the folder: the run's id, and its images."""

PREFIX: Final = "gpusize-pipeline-"
VOLUMES: Final = "@volumes"
"""Beside the operators' folders; no operator can have this name."""

_ANYBODY: Final = 0o777
_REMOVING_S: Final = 120.0
"""Longest time for removing or copying through a container."""


class Workspace:
    """The folders of one run: outputs by operator and execution, and volumes.

    Only this user can reach the folder around them; inside a container any user may write to its own.

    Args:
        run: the run's id.
        images: images that may have ``rm`` in them, to remove what other users have written.
        parent: the folder to make it in; the system's folder for temporary files by default.
        kept: where the data goes instead, and stays.

    Raises:
        StoreError: it cannot be made.
    """

    def __init__(
        self, run: str, images: Sequence[str] = (), parent: Path | None = None, kept: Path | None = None
    ) -> None:
        self.images = tuple(images)
        self._opened: dict[Path, int] = {}
        if kept is not None:
            with storing(kept):
                kept.mkdir(parents=True, exist_ok=True)
        with storing(parent or Path(tempfile.gettempdir())):
            # Docker needs the path as the kernel has it.
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
            self._lock = lock_folder(self.path)
            write_json(self.path / FACTS, {"run": run, "images": list(self.images)})
            self._data = self.path / "data" if kept is None else kept.resolve()
            self._data.mkdir(exist_ok=True)

    def folder(self, operator: Operator, execution: int) -> Path:
        """What an operator wrote in one of its executions; the first is that which others read, and that is kept."""
        return self.again(operator.name, str(execution)) if execution else self._data / operator.name

    def again(self, operator: str, what: str) -> Path:
        """A folder for one further execution of an operator: what it writes, and copies of what it shares."""
        return self.path / "again" / operator / what

    def output(self, operator: Operator, output: Output, execution: int) -> Path:
        """The folder of one output, made empty for everybody to write to."""
        folder = self.folder(operator, execution)
        place = folder if output.name is None else folder / same_name(output.name)
        return self._open_to_all(place)

    def volume(self, name: str) -> Path:
        """The folder of a volume that operators share."""
        return self._open_to_all(self._data / VOLUMES / name)

    def source(self, pipeline: Pipeline, upstream: str, name: str | None) -> Path:
        """The folder that an input of another operator reads: of one output, or all that it wrote."""
        operator = pipeline.operator(upstream)
        folder = self.folder(operator, 0)
        named = folder if name is None else folder / same_name(name)
        return named if named.is_dir() else self._open_to_all(named)

    def _open_to_all(self, place: Path) -> Path:
        with storing(place):
            place.mkdir(parents=True, exist_ok=True)
            self._opened.setdefault(place, stat.S_IMODE(place.stat().st_mode))
            place.chmod(_ANYBODY)
        return place

    def remove(self, place: Path, daemon: Daemon | None) -> None:
        """Remove something of it before its end; what cannot be is tried again then."""
        remove_folder(place, daemon, self.images)

    def close(self, daemon: Daemon | None) -> list[str]:
        """Remove what is not to be kept, and close to others what is.

        Args:
            daemon: by which files of other users are removed; None where it is gone.

        Returns:
            Folders that are still there.
        """
        for place, mode in self._opened.items():
            if not place.is_relative_to(self.path):
                _close_to_others(place, mode)
        left = remove_folder(self.path, daemon, self.images)
        os.close(self._lock)
        return left


def check_kept(pipeline: Pipeline, keep: Path | None) -> None:
    """Refuse a folder with data of an earlier run: operators would find it among their own.

    Raises:
        UsageError: there is some.
    """
    names = (*(each.name for each in pipeline.operators), VOLUMES)
    for folder in () if keep is None else (keep / name for name in names):
        if _holds_data(folder):
            raise UsageError("there is data of an earlier run", str(folder), "choose another folder for --keep")


def _holds_data(folder: Path) -> bool:
    """Whether anything but folders is there, or cannot be looked at: those are made before an operator writes."""
    if not folder.is_dir():
        return folder.exists()
    unknown: list[OSError] = []
    return any(files for _, _, files in os.walk(folder, onerror=unknown.append)) or bool(unknown)


def _close_to_others(place: Path, mode: int) -> None:
    """Give a folder its mode back, unless the operator has given it another one, or made something else of it."""
    with contextlib.suppress(OSError):
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) == _ANYBODY:
                os.fchmod(fd, mode)
        finally:
            os.close(fd)


def remove_folder(path: Path, daemon: Daemon | None, images: Iterable[str]) -> list[str]:
    """Remove a folder, also where containers have left files of other users in it.

    Returns:
        The folder, if it could not be removed.
    """
    shutil.rmtree(path, ignore_errors=True)
    for image in dict.fromkeys(images):
        if not path.exists() or daemon is None:
            break
        # What this user may not remove, root in a container may; the image has to have rm.
        _empty_through(daemon, image, path)
        shutil.rmtree(path, ignore_errors=True)
    return [str(path)] if path.exists() else []


def _empty_through(daemon: Daemon, image: str, path: Path) -> None:
    inside = "/gpusize-remove"
    words = ("rm", "-rf", "--", *(f"{inside}/{each.name}" for each in path.iterdir()))
    through_container(daemon, image, words, (Mount(str(path), inside),))


def through_container(
    daemon: Daemon,
    image: str,
    words: tuple[str, ...],
    mounts: tuple[Mount, ...],
    timeout_s: float = _REMOVING_S,
    stop: StopSwitch | None = None,
) -> bool:
    """Run a program of an image as root in a container without a network, and remove that.

    Args:
        daemon: the daemon.
        image: has the program.
        words: the program and its arguments.
        mounts: folders of this machine.
        timeout_s: longest time that it may take.
        stop: asked once more, the container is removed at once.

    Returns:
        Whether it went well.

    Raises:
        Interrupted: the user asked for an end.
    """
    switch = stop or StopSwitch()
    asked = switch.asked
    # The folder's own run may be long over: what is found by these labels is of this process.
    labels = labels_of(f"files{os.getpid()}")
    container = Container(
        image,
        mounts=mounts,
        command=words[1:],
        entrypoint=words[:1],
        user="0:0",
        network="none",
        labels=labels,
    )
    interrupted = False
    with contextlib.suppress(Exception):
        made = daemon.create(container)
        try:
            daemon.client.start(made)
            working = Call(lambda: daemon.patient.wait(made, timeout=None))
            return wait_for(working.ended, switch, timeout_s, asked) and working.result()["StatusCode"] == 0
        except Interrupted:
            interrupted = True
        finally:
            daemon.remove_container(made)
    if interrupted:
        raise Interrupted
    return False
