"""Stored samples: what servers and GPUs told of themselves in a level, and the rows that sum it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.regular_files import part_files

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FIELDS", "sample_schema", "scan_samples", "value_of"]

FIELDS: Final = (
    "metric",
    "labels",
    "unit",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "delta",
    "rate",
    "over_s",
    "n",
    "source",
)
"""Members of a row."""


def sample_schema() -> dict[str, Any]:
    """Columns of a file of samples and their types."""
    import polars as pl

    return {"t_ns": pl.Int64, "source": pl.String, "metric": pl.String, "labels": pl.String, "value": pl.Float64}


def scan_samples(level_folder: Path) -> pl.LazyFrame:
    """The stored samples of a level; an empty frame when it has none."""
    import polars as pl

    parts = part_files(level_folder / "samples")
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=sample_schema())


def value_of(rows: Iterable[Mapping[str, Any]], metric: str, field: str = "mean") -> float | None:
    """One figure for all GPUs or replicas out of ``level.json``'s ``server``; None when nothing told of it."""
    for row in rows:
        if row["metric"] == metric and row["labels"] is None:
            value = row[field]
            return None if value is None else float(value)
    return None
