"""Whether a level's files are those that were written: every part there, the rows counted, the checksums equal.

A level that is committed carries the SHA-256 of each of its files, as ``sha256sum`` prints it, under ``checksums`` in
its ``level.json``. Levels of older versions carry none; their parts are decoded once and their rows counted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing
from gpusize.base.regular_files import check_regular, part_files

__all__ = ["check_level", "checksums", "has_checksums"]

_LISTS: Final = ("parts", "span_parts", "second_parts", "histogram_parts")
_TODO: Final = "restore the level from a copy, or leave it out with --skip-damaged"


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a level by its name relative to the folder, in order, ``level.json`` left out.

    Raises:
        StoreError: a file cannot be read.
    """
    found = {}
    with storing(folder):
        for place, _, names in os.walk(folder):
            for name in names:
                file = Path(place, name)
                if file != folder / "level.json" and not name.startswith("."):
                    found[file.relative_to(folder).as_posix()] = _digest(file)
    return dict(sorted(found.items()))


def has_checksums(meta: Mapping[str, Any]) -> bool:
    """Whether a level has a checksum for every part that it names; of older versions it has none."""
    known: Mapping[str, str] = meta.get("checksums") or {}
    return all(name in known for name in _named(meta))


def _named(meta: Mapping[str, Any]) -> list[str]:
    return [name for each in _LISTS for name in meta.get(each) or ()]


def check_level(folder: Path, meta: Mapping[str, Any]) -> None:
    """Hold a level's files against what its ``level.json`` says of them.

    Args:
        folder: the level's folder.
        meta: the contents of its ``level.json``.

    Raises:
        StoreError: a part is missing, was changed, or was added; or the rows are not as many as were written.
    """
    known: Mapping[str, str] = meta.get("checksums") or {}
    for name in dict.fromkeys((*_named(meta), *known)):
        _check_file(folder, name, known.get(name))
    if known:
        added = [name for name in _part_names(folder) if name not in known]
        if added:
            raise StoreError("the run did not write this part", str(folder / added[0]), "remove it")
    _check_rows(folder, meta)


def _part_names(folder: Path) -> list[str]:
    """The parts that readers take up, relative to the level's folder."""
    return [file.relative_to(folder).as_posix() for file in part_files(folder, "*/part-*.parquet")]


def _check_file(folder: Path, name: str, digest: str | None) -> None:
    file = folder / name
    if not file.exists():
        raise StoreError("this part is missing", str(file), _TODO)
    check_regular(file)
    if digest is None:
        _check_decodes(file)
        return
    with storing(file):
        same = _digest(file) == digest
    if not same:
        raise StoreError("this part was changed after it was written: its checksum differs", str(file), _TODO)


def _check_decodes(file: Path) -> None:
    """Read a part without a checksum to its end: what is broken in it is said here, and not where it is used."""
    import polars as pl

    from gpusize.records.schema import first_line

    try:
        pl.scan_parquet(file, glob=False).select(pl.all().null_count()).collect(engine="streaming")
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise StoreError(f"unreadable part ({first_line(error)})", str(file), _TODO) from None


def _check_rows(folder: Path, meta: Mapping[str, Any]) -> None:
    rows = meta.get("rows")
    # Where writing failed, or another tool measured, the number says nothing of the files.
    if rows is None or meta.get("write_error") is not None or meta.get("imported"):
        return
    import polars as pl

    from gpusize.records.schema import first_line, scan_stored

    parts = part_files(folder / "records")
    try:
        found = int(scan_stored(parts, ["seq"]).select(pl.len()).collect().item()) if parts else 0
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(f"unreadable parts ({first_line(error)})", str(folder / "records"), _TODO) from None
    if found != rows:
        what = f"its parts hold {found:,} rows, and level.json says {rows:,}"
        raise StoreError(what, str(folder / "records"), _TODO)


def _digest(file: Path) -> str:
    facts = file.stat()
    return _sha256(file, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=1 << 14)
def _sha256(file: Path, _inode: int, _size: int, _changed_ns: int) -> str:
    """A search reads its levels again after each: a file that did not change is hashed once."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
