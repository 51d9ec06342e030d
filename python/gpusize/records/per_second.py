"""Reads what a level keeps of all requests beside its records: counts by second, and histograms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.base.errors import StoreError
from gpusize.base.regular_files import part_files
from gpusize.records.schema import OUTCOMES

if TYPE_CHECKING:
    import polars as pl

__all__ = ["scan_histograms", "scan_seconds"]


def _scan_folder(folder: Path) -> pl.LazyFrame | None:
    """The parts of a folder as one frame, numbers as Int64; None without any part.

    Raises:
        StoreError: a part cannot be read.
    """
    import polars as pl
    from polars import selectors

    parts = part_files(folder)
    frames = []
    for part in parts:
        try:
            frame = pl.scan_parquet(part, glob=False)
            frame.collect_schema()
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise StoreError(f"unreadable part ({reason})", str(part), "leave it out or restore it") from None
        frames.append(frame.with_columns(selectors.integer().cast(pl.Int64)))
    # Each part has a column for the outcomes that occurred in it.
    return pl.concat(frames, how="diagonal") if frames else None


def scan_seconds(level_dir: Path) -> pl.LazyFrame | None:
    """What happened in each second of a level; None where that was not kept.

    Columns ``second``, ``stream``, ``due``, ``sent``, ``done``, per outcome its name (counted by the second in which it
    ended) and ``due_`` and its name (by the second in which it was due). Several rows of one second and stream add up.

    Raises:
        StoreError: a part cannot be read.
    """
    import polars as pl

    frame = _scan_folder(level_dir / "seconds")
    if frame is None:
        return None
    present = frame.collect_schema()
    names = [name for outcome in OUTCOMES for name in (outcome, f"due_{outcome}")]
    absent = [pl.lit(0, pl.Int64).alias(name) for name in names if name not in present]
    return frame.with_columns(absent).with_columns(pl.col(*names).fill_null(0))


def scan_histograms(level_dir: Path) -> pl.LazyFrame | None:
    """Histograms of a level: ``metric``, ``low_ns``, ``high_ns``, ``count``, and ``second`` and ``stream``.

    Older levels have one histogram of the whole visit, ``histograms.parquet``, without the last two. None without any.

    Raises:
        StoreError: a part cannot be read.
    """
    import polars as pl

    frame = _scan_folder(level_dir / "histograms")
    if frame is not None:
        return frame
    whole = level_dir / "histograms.parquet"
    return pl.scan_parquet(whole, glob=False) if whole.is_file() else None
