"""The folder that series are pulled into: parts, and what they cover.

A part is the samples of one answer, and in the file's own metadata what it covers: which series, asked how, from when
to when. It gets its name by one rename, so that a pull that dies keeps what it has, and another goes on from there.
Nothing beside the parts says what is there, so nothing can contradict them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from gpusize.base.errors import StoreError, UsageError
from gpusize.base.files import lock_folder, storing, write_frame, write_json
from gpusize.base.regular_files import part_files, refuse_links
from gpusize.base.text import shown
from gpusize.observe.series.answer import Dropped
from gpusize.observe.series.intervals import Interval, joined
from gpusize.records.series import FACTS, PARTS, VERSION

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Part", "SeriesFolder"]

_KEY: Final = "gpusize"
_OTHER: Final = "name another folder"


class Part(NamedTuple):
    """What a part covers.

    Attributes:
        asked: how each series was asked for, by ``preset/name``.
        interval: in ms since 1970, open on the left.
        server: its address, without secrets.
        dropped: samples that were left out.
        warnings: what the server said of the answer.
    """

    asked: dict[str, str]
    interval: Interval
    server: str
    dropped: dict[Dropped, int]
    warnings: tuple[str, ...]


@dataclass
class SeriesFolder:
    """A folder of pulled series, held for writing; a context manager.

    Attributes:
        path: the folder.
        parts: what is in it.
    """

    path: Path
    parts: list[Part]
    _lock: int
    _last: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Hold a folder, which is made where there is none.

        Raises:
            StoreError: it cannot be written, another process holds it, or a part in it is damaged.
        """
        place = path / PARTS
        with storing(path):
            if place.is_file():
                raise StoreError("series.parquet is a file here: it was not made by a pull", str(path), _OTHER)
            place.mkdir(parents=True, exist_ok=True)
            refuse_links(path)
            lock = lock_folder(path)
        try:
            files = part_files(place)
            parts = [_read(file) for file in files]
        except BaseException:
            os.close(lock)
            raise
        last = max((_number(file) for file in files), default=0)
        return cls(path, parts, lock, last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def covered(self, key: str, asked: str) -> list[Interval]:
        """What is there of a series.

        Raises:
            UsageError: it was asked for otherwise.
        """
        mine = [part for part in self.parts if key in part.asked]
        other = next((part.asked[key] for part in mine if part.asked[key] != asked), None)
        if other is not None:
            name = key.rpartition("/")[2]
            raise UsageError(f'{name} is in {self.path} already, asked as "{shown(other, 120)}"', "out", _OTHER)
        return joined(part.interval for part in mine)

    def add(self, frame: pl.DataFrame, part: Part) -> None:
        """Keep an answer, one without samples as well.

        Raises:
            StoreError: it cannot be written.
        """
        about = {
            "version": VERSION,
            "asked": part.asked,
            "from_ms": part.interval[0],
            "to_ms": part.interval[1],
            "server": part.server,
            "dropped": [[*what, n] for what, n in part.dropped.items()],
            "warnings": list(part.warnings),
        }
        file = self.path / PARTS / f"part-{self._last + 1:06d}.parquet"
        write_frame(file, frame, metadata={_KEY: json.dumps(about, ensure_ascii=False)})
        self._last += 1
        self.parts.append(part)

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Write ``series.json``.

        Raises:
            StoreError: it cannot be written.
        """
        write_json(self.path / FACTS, facts)


def _number(file: Path) -> int:
    text = file.stem.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdigit() else 0


def _read(file: Path) -> Part:
    import polars as pl

    try:
        about = json.loads(pl.read_parquet_metadata(file)[_KEY])
        dropped = {Dropped(name, series, why): int(n) for name, series, why, n in about["dropped"]}
        asked = {str(key): str(text) for key, text in about["asked"].items()}
        interval = (int(about["from_ms"]), int(about["to_ms"]))
        return Part(asked, interval, str(about["server"]), dropped, _texts(about["warnings"]))
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise StoreError("not a part of pulled series, or damaged", str(file), f"remove it, or {_OTHER}") from None


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(each) for each in found)
