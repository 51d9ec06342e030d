"""The folders through which operators hand data on."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gpusize.durable import lock_folder, storing, write_json
from gpusize.pipeline.container import Container, Mount
from gpusize.pipeline.daemon import Daemon
from gpusize.pipeline.model import Operator, Output, Pipeline, same_name

__all__ = ["FACTS", "PREFIX", "Workspace", "remove_folder"]

FACTS: Final = "run.json"
"""In the folder: the run's id, and its images."""

PREFIX: Final = "gpusize-pipeline-"
_ANYBODY: Final = 0o777
_REMOVE_S: Final = 120


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
        self._images = tuple(images)
        if kept is not None:
            with storing(kept):
                kept.mkdir(parents=True, exist_ok=True)
        with storing(parent or Path(tempfile.gettempdir())):
            # Docker needs the path as the kernel has it.
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
            self._lock = lock_folder(self.path)
            write_json(self.path / FACTS, {"run": run, "images": list(self._images)})
            self._data = self.path / "data" if kept is None else kept.resolve()
            self._data.mkdir(exist_ok=True)

    def folder(self, operator: Operator, execution: int) -> Path:
        """What an operator wrote in one of its executions; the first is that which others read, and that is kept."""
        return self.path / "again" / operator.name / str(execution) if execution else self._data / operator.name

    def output(self, operator: Operator, output: Output, execution: int) -> Path:
        """The folder of one output, made empty for everybody to write to."""
        folder = self.folder(operator, execution)
        place = folder if output.name is None else folder / same_name(output.name)
        return _open_to_all(place)

    def volume(self, name: str) -> Path:
        """The folder of a volume that operators share."""
        return _open_to_all(self._data / "@volumes" / name)

    def source(self, pipeline: Pipeline, upstream: str, name: str | None) -> Path:
        """The folder that an input of another operator reads: of one output, or all that it wrote."""
        operator = pipeline.operator(upstream)
        folder = self.folder(operator, 0)
        named = folder if name is None else folder / same_name(name)
        return named if named.is_dir() else _open_to_all(named)

    def close(self, daemon: Daemon | None) -> list[str]:
        """Remove what is not to be kept.

        Args:
            daemon: by which files of other users are removed; None where it is gone.

        Returns:
            Folders that are still there.
        """
        left = remove_folder(self.path, daemon, self._images)
        os.close(self._lock)
        return left


def _open_to_all(place: Path) -> Path:
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(_ANYBODY)
    return place


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
    container = Container(
        image,
        entrypoint=("rm",),
        command=("-rf", "--", *(f"{inside}/{each.name}" for each in path.iterdir())),
        mounts=(Mount(str(path), inside),),
        user="0:0",
        network="none",
    )
    with contextlib.suppress(Exception):
        made = daemon.create(container)
        try:
            daemon.client.start(made)
            daemon.client.wait(made, timeout=_REMOVE_S)
        finally:
            daemon.remove_container(made)
