"""The run folder on disk: made once, written by one process, committed level by level.

The layout is in ``docs/reference/run-folder.md``. The rules that this module keeps:

- ``run.json`` is written before the first request, and what is known only at the end is added then; a reader never
  sees half of it.
- A level is written under ``levels/.0003.open`` and becomes ``levels/0003`` by one rename, after everything in it
  has reached the disk. A run that dies keeps every finished level whole.
- One writer at a time: ``.lock`` is held with ``flock`` until the writer closes the folder or dies.
- Nothing that was measured is ever deleted.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import PathMissing, StoreError
from gpusize.base.files import fsync_path, lock_folder, storing, write_atomic, write_json, write_parquet
from gpusize.base.regular_files import refuse_links
from gpusize.records.intact import checksums
from gpusize.records.run_schema import SCHEMA, read_checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MEASURED",
    "SCHEMA",
    "RunStore",
    "find_runs",
    "is_run_folder",
    "level_dirs",
    "new_run_id",
    "open_level_dirs",
    "read_level",
    "read_run",
    "storing",
    "write_atomic",
]

MEASURED: Final = ("records", "spans", "seconds", "histograms")
"""Folders of a level in which a run that died may have left parts."""


def new_run_id(wall_ns: int | None = None) -> str:
    """A run id that sorts by time, ``20261120T210312Z-7f3a9c``: UTC seconds, then 24 random bits.

    Args:
        wall_ns: wall clock in nanoseconds since 1970; None for now.
    """
    seconds = (time.time_ns() if wall_ns is None else wall_ns) // 1_000_000_000
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(seconds))}-{secrets.token_hex(3)}"


def is_run_folder(path: Path) -> bool:
    """Whether ``path`` is the folder of one run."""
    return (path / "run.json").is_file()


def find_runs(path: Path) -> list[Path]:
    """The run folders at ``path``: itself, or those directly inside it, oldest first.

    Raises:
        StoreError: ``path`` does not exist, cannot be read, or holds no run.
    """
    with storing(path):
        if not path.is_dir():
            todo = "name a run folder, or a folder of runs"
            if not path.exists():
                raise PathMissing("no such folder", str(path), todo)
            raise StoreError("not a folder", str(path), todo)
        if is_run_folder(path):
            return [path]
        runs = sorted(entry for entry in path.iterdir() if is_run_folder(entry))
    if not runs:
        todo = "name a run folder, or a folder of runs"
        if (path / "cluster.json").exists():
            todo = "it is of a cluster test: see gpusize cluster report and gpusize cluster compare"
        raise StoreError("not a run folder: there is no run.json in it", str(path), todo)
    return runs


def level_dirs(path: Path) -> list[Path]:
    """The committed level folders of a run, by visit."""
    levels = path / "levels"
    if not levels.is_dir():
        return []
    with storing(levels):
        found = [entry for entry in levels.iterdir() if entry.name.isascii() and entry.name.isdigit()]
        return sorted((entry for entry in found if entry.is_dir()), key=lambda entry: int(entry.name))


def open_level_dirs(path: Path) -> list[Path]:
    """The folders of levels that were never committed, by visit."""
    levels = path / "levels"
    if not levels.is_dir():
        return []
    with storing(levels):
        found = [entry for entry in levels.iterdir() if _open_visit(entry) is not None]
    return sorted(found, key=lambda entry: _open_visit(entry) or 0)


def _open_visit(path: Path) -> int | None:
    name = path.name
    middle = name.removeprefix(".").removesuffix(".open")
    numbered = name == f".{middle}.open" and middle.isascii() and middle.isdigit()
    return int(middle) if numbered and path.is_dir() else None


def read_run(path: Path) -> dict[str, Any]:
    """The contents of ``run.json``.

    Raises:
        StoreError: not a run folder, unreadable, written by a newer gpusize, or a field is wrong.
    """
    file = path / "run.json"
    if not file.is_file():
        raise StoreError("no run.json in it: not a run folder", str(path), "name a run folder")
    return read_checked(file)


def read_level(level_dir: Path) -> dict[str, Any]:
    """The contents of a level's ``level.json``; raises like ``read_run``."""
    return read_checked(level_dir / "level.json")


class RunStore:
    """One run folder, held for writing.

    Make one with ``create`` or ``reopen``, and close it (it is a context manager): the lock is held until then.

    Attributes:
        path: the run folder.
        run: the contents of ``run.json``.
    """

    def __init__(self, path: Path, run: dict[str, Any], lock_fd: int) -> None:
        self.path = path
        self.run = run
        self._lock_fd: int | None = lock_fd

    @classmethod
    def create(cls, out: Path, run: Mapping[str, Any]) -> Self:
        """Make ``out/<run id>/`` and write its ``run.json``.

        Args:
            out: the folder of runs; made when missing.
            run: contents of ``run.json``, with the run's id under ``run``; ``schema`` is added.

        Raises:
            StoreError: the folder cannot be made or written.
        """
        path = out / str(run["run"])
        with storing(path):
            if is_run_folder(out):
                raise StoreError("this is the folder of one run, not of runs", str(out), "name the folder above it")
            out.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            lock_fd = lock_folder(path)
        store = cls(path, {"schema": SCHEMA, **run}, lock_fd)
        try:
            with storing(path):
                (path / "levels").mkdir()
            write_json(path / "run.json", store.run)
            with storing(path):
                fsync_path(out)
        except StoreError:
            store.close()
            raise
        return store

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Take an existing run folder for writing, to go on with it.

        Raises:
            StoreError: not a run folder, a newer schema, no permission, another process is writing to it, or a
                symbolic link in it would lead the writing elsewhere.
        """
        run = read_run(path)
        refuse_links(path)
        with storing(path):
            lock_fd = lock_folder(path)
            (path / "levels").mkdir(exist_ok=True)
        return cls(path, run, lock_fd)

    def add(self, facts: Mapping[str, Any]) -> None:
        """Say more in ``run.json``, in one piece: what is known only when the run has ended.

        Raises:
            StoreError: it cannot be written; the file is then as it was.
        """
        self.run = {**self.run, **facts}
        write_json(self.path / "run.json", self.run)

    def next_visit(self) -> int:
        """The smallest visit number that no level of this run has used."""
        used = [int(entry.name) for entry in level_dirs(self.path)]
        used += [_open_visit(entry) or 0 for entry in open_level_dirs(self.path)]
        return max(used, default=-1) + 1

    def open_level(self, visit: int, facts: Mapping[str, Any]) -> Path:
        """Make ``levels/.0003.open/records/`` and note in it what is going to be measured; returns the open folder."""
        path = self.open_path(visit)
        with storing(path):
            (path / "records").mkdir(parents=True)
        write_json(path / "level.json", {"schema": SCHEMA, "visit": visit, "state": "open", **facts})
        return path

    def open_path(self, visit: int) -> Path:
        """Where the level of this visit is written until it is committed."""
        return self.path / "levels" / f".{visit:04d}.open"

    def commit_level(
        self, visit: int, level: Mapping[str, Any], histograms: Mapping[str, Sequence[Sequence[int]]]
    ) -> Path:
        """Make an open level final: everything in it to the disk, then one rename.

        Args:
            visit: the level.
            level: contents of ``level.json``; ``schema``, ``visit`` and ``checksums`` are added.
            histograms: per metric the ``(low_ns, high_ns, count)`` of its buckets, over the whole visit; written only
                where the level's folder has none by the second.

        Raises:
            StoreError: it could not be written; the open folder is kept as it is.
        """
        path = self.open_path(visit)
        if any(histograms.values()) and not any(path.glob("histograms/part-*.parquet")):
            write_histograms(path / "histograms.parquet", histograms)
        facts = {"schema": SCHEMA, "visit": visit, **level, "checksums": checksums(path)}
        write_json(path / "level.json", facts)
        final = path.with_name(f"{visit:04d}")
        with storing(path):
            for folder, _, files in os.walk(path):
                for name in files:
                    fsync_path(Path(folder, name))
                fsync_path(Path(folder))
            path.rename(final)
            fsync_path(final.parent)
        return final

    def discard_if_empty(self, visit: int) -> bool:
        """Remove an open level in which nothing was measured: it was queued, never started. True when it is gone."""
        path = self.open_path(visit)
        if not path.is_dir() or any(any((path / name).glob("*")) for name in MEASURED):
            return False
        with storing(path):
            (path / "level.json").unlink(missing_ok=True)
            # A process that was killed while it wrote the note has left a part of it.
            for scratch in path.glob(".level.json.*.tmp"):
                scratch.unlink(missing_ok=True)
            for name in MEASURED:
                if (path / name).is_dir():
                    (path / name).rmdir()
            path.rmdir()
        return True

    def close(self) -> None:
        """Let the folder go; safe to call twice."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_histograms(file: Path, histograms: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Write ``histograms.parquet``: metric, low_ns, high_ns, count."""
    import polars as pl

    rows = [(metric, *bucket) for metric, buckets in histograms.items() for bucket in buckets]
    names = ("metric", "low_ns", "high_ns", "count")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    write_parquet(file, columns, {"metric": pl.String, "low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.UInt64})
