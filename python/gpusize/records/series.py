"""Pulled series: what a folder of ``gpusize autoscale pull`` holds, and how it is read.

OUT/series.parquet/part-000001.parquet   samples, each part one answer of the server or more
OUT/series.json                          what was asked, what was found, gaps, the offset of the server's clock
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import PathMissing, StoreError
from gpusize.base.files import storing
from gpusize.base.regular_files import check_regular, part_files, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = [
    "FACTS",
    "PARTS",
    "VERSION",
    "label_of",
    "labels_text",
    "read_series_facts",
    "scan_series",
    "series_parts",
    "series_schema",
]

PARTS: Final = "series.parquet"
FACTS: Final = "series.json"
VERSION: Final = 1


def series_schema() -> dict[str, Any]:
    """Columns of the samples and their types.

    ``t_ns``: ns since 1970 by the server's clock; ``name``: the canonical name of a preset, or the user's own;
    ``labels``: those of the series, as canonical JSON, without the metric's name and ``le``; ``le``: upper bound of a
    histogram's bucket, null for what is none; ``value``: of a bucket, the count up to its bound.
    """
    import polars as pl

    return {"t_ns": pl.Int64, "name": pl.String, "labels": pl.String, "le": pl.Float64, "value": pl.Float64}


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as canonical JSON: sorted by name, without blanks."""
    return json.dumps(dict(sorted(labels.items())), ensure_ascii=False, separators=(",", ":"))


def label_of(name: str) -> pl.Expr:
    """One label out of the column ``labels``; null where a series has it not."""
    import polars as pl

    return pl.col("labels").map_elements(lambda text: json.loads(text).get(name), return_dtype=pl.String)


def series_parts(folder: Path) -> list[Path]:
    """The files of samples, in order: parts of a pull, or one file ``series.parquet``.

    Raises:
        StoreError: a part is no regular file.
    """
    place = folder / PARTS
    return [place] if place.is_file() else part_files(place)


def scan_series(folder: Path) -> pl.LazyFrame:
    """The samples of a folder, or of one Parquet file ``series.parquet`` in it; an empty frame without any.

    Raises:
        StoreError: a part is no regular file.
    """
    import polars as pl

    parts = series_parts(folder)
    return pl.scan_parquet(parts, glob=False) if parts else pl.LazyFrame(schema=series_schema())


def read_series_facts(folder: Path) -> dict[str, Any]:
    """The contents of ``series.json``.

    Raises:
        StoreError: there is none, it is no JSON, or of a newer gpusize.
    """
    file = folder / FACTS
    with storing(file):
        if not file.exists():
            raise PathMissing("not a folder of pulled series", str(folder), "pull them: gpusize autoscale pull --help")
    check_regular(file)
    try:
        facts = json.loads(read_regular(file))
    except ValueError as problem:
        raise StoreError(f"broken JSON: {problem}", str(file), "pull into a new folder") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("version"), int):
        raise StoreError("not the facts of pulled series", str(file), "pull into a new folder")
    if facts["version"] > VERSION:
        raise StoreError(f"written by a newer gpusize (version {facts['version']})", str(file), "update gpusize")
    return facts
