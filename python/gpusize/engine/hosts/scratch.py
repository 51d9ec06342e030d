"""A folder for as long as a process lives, also where the process is killed: the next one takes it away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["scratch"]

PREFIX: Final = "gpusize-agent-"
LOCK: Final = "lock"
TRIES: Final = 20
AGAIN_S: Final = 0.05


@contextlib.contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A folder of this process; what others have left there that were killed is removed.

    Who is killed cannot clean up: the actors of a program that is gone, for instance, which Ray kills. A lock on a file
    says that the folder is in use: the system drops it with the process, whatever became of that.

    Args:
        parent: where it is made; None: the system's folder for temporary files.
    """
    place = Path(tempfile.gettempdir() if parent is None else parent)
    _sweep(place)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Another one may have found it before it was locked, and taken it for left.
        if (folder / LOCK).exists():
            break
        os.close(handle)
    try:
        yield folder
    finally:
        _removed(folder)
        os.close(handle)


def _removed(folder: Path) -> None:
    """Remove it, though a thread that has been told to stop may still write into it for a moment."""
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(AGAIN_S)


def _sweep(place: Path) -> None:
    """Remove what nobody holds any more."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # It is just being made, or is another user's.
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(handle)
