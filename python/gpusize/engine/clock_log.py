"""Pairs of monotonic and wall clock, so that the records' times can be tied to the time of day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["INTERVAL_NS", "ClockLog"]

INTERVAL_NS: Final = 10_000_000_000
"""Time between two pairs while a run goes on."""


def _read() -> tuple[int, int, int]:
    from gpusize.engine.session import core

    mono_ns, wall_ns, uncertainty_ns = core().clock_pair()
    return mono_ns, wall_ns, uncertainty_ns


@dataclass
class ClockLog:
    """The clock pairs of one run: at its start, at its end, and every 10 s between.

    Attributes:
        pairs: ``(mono_ns, wall_ns, uncertainty_ns)`` in the order taken.
        read: takes one pair; the engine's by default.
    """

    read: Callable[[], tuple[int, int, int]] = _read
    pairs: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self) -> None:
        """Take a pair now."""
        self.pairs.append(self.read())

    def tick(self) -> None:
        """Take a pair, and keep it when the last one is 10 s old or there is none."""
        pair = self.read()
        if not self.pairs or pair[0] - self.pairs[-1][0] >= INTERVAL_NS:
            self.pairs.append(pair)

    def write(self, file: Path) -> None:
        """Write ``clocks.parquet`` anew from all pairs.

        Raises:
            StoreError: it could not be written.
        """
        import polars as pl

        from gpusize.base.files import write_parquet

        schema = dict.fromkeys(("mono_ns", "wall_ns", "uncertainty_ns"), pl.Int64)
        columns = {name: [pair[index] for pair in self.pairs] for index, name in enumerate(schema)}
        write_parquet(file, columns, schema)

    @classmethod
    def resumed(cls, file: Path) -> ClockLog:
        """A log that goes on where ``file`` ends; an empty one when there is no such file."""
        import polars as pl

        from gpusize.base.errors import StoreError
        from gpusize.records.schema import first_line

        log = cls()
        if not file.is_file():
            return log
        try:
            pairs = pl.read_parquet(file, glob=False)
            log.pairs = [(int(mono), int(wall), int(width)) for mono, wall, width in pairs.iter_rows()]
        except (OSError, ValueError, TypeError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            what = f"unreadable pairs of clocks ({first_line(error)})"
            raise StoreError(what, str(file), "restore the file from a copy, or measure into a new folder") from None
        return log
