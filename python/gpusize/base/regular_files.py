"""Only regular files are opened: a pipe or a device under a file's name would hang its reader, or never end."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing

__all__ = ["check_regular", "part_files", "read_regular", "refuse_link", "refuse_links"]

MOST_BYTES: Final = 1 << 28
"""Of a JSON file in a run folder; the largest that the engine writes have a few MB."""

_RESTORE: Final = "restore it from a copy, or leave this run out"


def check_regular(file: Path) -> None:
    """Refuse what is there under this name and is no regular file.

    Raises:
        StoreError: a pipe, a device, a socket or a folder; missing; or out of reach.
    """
    with storing(file), _there(file, _RESTORE):
        kind = file.stat().st_mode
    if not stat.S_ISREG(kind):
        raise StoreError("this is not a regular file", str(file), _RESTORE)


def read_regular(file: Path, most_bytes: int = MOST_BYTES, *, todo: str = _RESTORE) -> bytes:
    """All of a regular file; ``todo`` is what to do about one that is not there or damaged.

    Raises:
        StoreError: it is none, larger than ``most_bytes``, or cannot be read.
    """
    with storing(file), _there(file, todo):
        # Without O_NONBLOCK opening a pipe waits for its writer.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as handle:
            facts = os.fstat(handle.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise StoreError("this is not a regular file", str(file), todo)
            data = handle.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise StoreError(f"it has more than {most_bytes >> 20} MiB", str(file), todo)
    return data


@contextlib.contextmanager
def _there(file: Path, todo: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise StoreError("this file is missing", str(file), todo) from None


def part_files(folder: Path, pattern: str = "part-*.parquet") -> list[Path]:
    """The parts in a folder, in order; none where there is no such folder.

    Raises:
        StoreError: one of them is no regular file.
    """
    with storing(folder):
        found = sorted(folder.glob(pattern))
    for file in found:
        check_regular(file)
    return found


def refuse_link(path: Path) -> None:
    """Refuse a place to write in that is a symbolic link: it would lead the writing elsewhere.

    Raises:
        StoreError: it is one.
    """
    if path.is_symlink():
        what = "this is a symbolic link, and writing would follow it"
        raise StoreError(what, str(path), "remove it, or name another folder")


def refuse_links(folder: Path) -> None:
    """Refuse a folder to write in when anything inside it is a symbolic link.

    Raises:
        StoreError: there is one.
    """
    with storing(folder):
        for place, folders, files in os.walk(folder):
            for name in (*folders, *files):
                refuse_link(Path(place, name))
