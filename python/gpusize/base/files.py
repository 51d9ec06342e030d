"""Writing so that a crash leaves the old content or the new one, and errors of the system in words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.base.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

__all__ = [
    "fsync_path",
    "lock_folder",
    "store_error",
    "storing",
    "write_atomic",
    "write_frame",
    "write_json",
    "write_parquet",
]

_ADVICE: Final = {
    errno.ENOSPC: ("the disk is full", "free some space, or choose another folder"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose another folder"),
    errno.EFBIG: ("the file may not grow any more", "raise the limit on file sizes, or choose another folder"),
    errno.EACCES: ("no permission", "choose a folder that you may write to, or change its permissions"),
    errno.EPERM: ("no permission", "choose a folder that you may write to, or change its permissions"),
    errno.EROFS: ("the file system is read-only", "choose a folder that you may write to"),
    errno.ENOTDIR: ("a part of this path is not a folder", "choose another folder"),
    errno.EEXIST: ("it already exists", "choose another folder"),
    errno.ENOENT: ("this folder cannot be created", "choose another folder"),
    errno.ENAMETOOLONG: ("this path is too long", "choose a shorter one"),
}


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into a ``StoreError`` that names ``path`` and what to do about it."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise store_error(path, error) from error


def store_error(path: Path, error: OSError) -> StoreError:
    """The ``StoreError`` for an ``OSError``; ``path`` is named when the system names no file."""
    what, todo = _ADVICE.get(error.errno or 0, (error.strerror or str(error), None))
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(path)
    return StoreError(what, where, todo)


def fsync_path(path: Path) -> None:
    """Force a file or a folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(file: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new one, and nothing between.

    Raises:
        StoreError: it could not be written; the old content is still there.
    """
    scratch = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with storing(file):
        try:
            with scratch.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            scratch.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                scratch.unlink()
            if error.errno == errno.ENOENT:
                raise StoreError("no file can be made there", str(file), "choose another folder") from error
            # The file that was asked for, and not the one that was to take its place.
            raise OSError(error.errno, error.strerror, str(file)) from error
        fsync_path(file.parent)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON document atomically, indented, keys in the given order."""
    write_atomic(file, (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_parquet(file: Path, columns: Mapping[str, Sequence[object]], schema: Mapping[str, Any]) -> None:
    """Write columns as one Parquet file, atomically. ``schema`` maps names to Polars types."""
    import polars as pl

    write_frame(file, pl.DataFrame(dict(columns), schema=dict(schema)), compression="lz4")


def write_frame(
    file: Path,
    frame: pl.DataFrame,
    *,
    compression: Literal["lz4", "zstd"] = "zstd",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a frame as one Parquet file, atomically.

    Raises:
        StoreError: it could not be written.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression=compression, metadata=dict(metadata) if metadata else None)
    write_atomic(file, buffer.getvalue())


def lock_folder(path: Path) -> int:
    """Hold ``path/.lock`` until the returned file descriptor is closed, or this process dies.

    Raises:
        StoreError: another process holds it; its pid is named.
        OSError: the lock file cannot be made.
    """
    fd = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise StoreError(
            f"another process (pid {holder}) is writing to this run", str(path), "wait for it, or stop it"
        ) from None
    except OSError:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
    return fd
