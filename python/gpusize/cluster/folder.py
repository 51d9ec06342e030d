"""The folder of a cluster test: facts, and tables that grow part by part, so that a command that dies loses no row.

OUT/cluster.json                 what was run: id, kind, options, server, clocks, what a sampling may have missed
OUT/attempts/part-*.parquet      requests that were to create objects (`gpusize.cluster.tables.attempts_schema`)
OUT/stamps/part-*.parquet        moments of objects (`stamps_schema`)
OUT/submitted.json, sampled.json, times.csv   as the Run:ai scale test tool has them
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import PathMissing, StoreError
from gpusize.base.files import storing, write_frame, write_json
from gpusize.base.regular_files import part_files, read_regular
from gpusize.cluster.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

__all__ = ["FACTS", "VERSION", "append_frame", "append_rows", "make_folder", "read_facts", "scan_table", "update_facts"]

FACTS: Final = "cluster.json"
VERSION: Final = 1


def make_folder(folder: Path) -> None:
    """Make the folder, and those above it, where they are missing.

    Raises:
        StoreError: it cannot be made.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def append_rows(folder: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a table, as one more part; none for no rows.

    Several processes may do so at once, as two commands that sample into one folder do.

    Raises:
        StoreError: it cannot be written.
    """
    import polars as pl

    if rows:
        append_frame(folder, table, pl.DataFrame(rows, schema=TABLES[table](), orient="row"))


def append_frame(folder: Path, table: str, frame: pl.DataFrame) -> None:
    """Add a frame to a table, as one more part, also while others do. Its columns are the table's.

    Raises:
        StoreError: it cannot be written.
    """
    place = folder / table
    make_folder(place)
    # Two that count the parts at the same time would write the same file, and the rows of one be lost.
    with _alone(place):
        parts = part_files(place)
        number = int(parts[-1].stem.rpartition("-")[2]) + 1 if parts else 1
        write_frame(place / f"part-{number:06}.parquet", frame)


def scan_table(folder: Path, table: str) -> pl.LazyFrame:
    """A table's rows, in the order in which they were written; empty where none were.

    Raises:
        StoreError: a part is no regular file.
    """
    import polars as pl

    parts = part_files(folder / table)
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=TABLES[table]())


def read_facts(folder: Path) -> dict[str, Any]:
    """The contents of ``cluster.json``.

    Raises:
        PathMissing: there is none.
        StoreError: it is no JSON, or of a newer gpusize.
    """
    file = folder / FACTS
    with storing(file):
        if not file.exists():
            raise PathMissing("not a folder of a cluster test", str(folder), "see gpusize cluster submit --help")
    try:
        facts = json.loads(read_regular(file))
    except ValueError as problem:
        raise StoreError(f"broken JSON: {problem}", str(file), "restore it, or submit into a new folder") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("version"), int):
        raise StoreError("not the facts of a cluster test", str(file), "submit into a new folder")
    if facts["version"] > VERSION:
        raise StoreError(f"written by a newer gpusize (version {facts['version']})", str(file), "update gpusize")
    return facts


def update_facts(folder: Path, **facts: Any) -> None:
    """Set keys of ``cluster.json`` and leave the others as they are; the file is made where there is none.

    `submit` and `sample` keep to keys of their own, so that neither undoes what the other wrote meanwhile.

    Raises:
        StoreError: it cannot be read or written.
    """
    make_folder(folder)
    with _alone(folder):
        old = read_facts(folder) if (folder / FACTS).exists() else {"version": VERSION}
        write_json(folder / FACTS, {**old, **facts})


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside the block no other process is: what it wrote between our reading and our writing would be lost."""
    with storing(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
