"""One combination of a study, as it is handed to a process elsewhere, and what that process keeps on its way home."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from gpusize.studies.spec import Study

__all__ = ["Task", "archived", "unpack"]


@dataclass(frozen=True)
class Task:
    """What is to be done.

    Attributes:
        study: with this one combination.
        place: the folder that its commands and paths are relative to.
        command: the command line, for the run's ``run.json``.
        begun: a tar of what an earlier try has left, or empty.
    """

    study: Study
    place: str
    command: tuple[str, ...] = ()
    begun: bytes = b""


def archived(folder: Path, names: Iterable[str]) -> bytes:
    """A tar of these, where they are there; empty without names."""
    packed, given = BytesIO(), list(names)
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in given:
            if (folder / name).exists():
                tar.add(folder / name, name)
    return packed.getvalue() if given else b""


def unpack(archive: Path | bytes, folder: Path) -> None:
    """What `archived` has packed, or the same in a file, into a folder.

    Raises:
        OSError: it cannot be read, or not be written.
    """
    try:
        with tarfile.open(
            archive if isinstance(archive, Path) else None,
            fileobj=BytesIO(archive) if isinstance(archive, bytes) else None,
        ) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise OSError(f"what is handed over cannot be read: {error}") from None
