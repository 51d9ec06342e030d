"""Parquet as rows, read with Polars."""

from __future__ import annotations

import io
from typing import Any

from gpusize.base.errors import DatasetError
from gpusize.base.text import shown
from gpusize.workload.dataset.parsed import Parsed

__all__ = ["parse_parquet"]


def parse_parquet(data: bytes, source: str) -> Parsed:
    """Rows of a Parquet file.

    Raises:
        DatasetError: not a Parquet file.
    """
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise DatasetError(
            f"this is not a Parquet file: {shown(str(problem), 120)}", source, "check the file, or say --dataset-format"
        ) from None
    rows: list[dict[str, Any]] = frame.to_dicts()
    return Parsed(rows)
