"""The dataset's ids in a run folder: what the row numbers of its records stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["keep_ids", "read_ids"]

_FILE: Final = "dataset.parquet"


def keep_ids(folder: Path, ids: Sequence[str]) -> None:
    """Write the ids, in row order, once; a resumed run has them already.

    Raises:
        StoreError: the file cannot be written.
    """
    import polars as pl

    from gpusize.durable import storing

    path = folder / _FILE
    if not path.exists():
        with storing(path):
            pl.DataFrame({"id": list(ids)}, schema={"id": pl.String}).write_parquet(path)


def read_ids(folder: Path) -> list[str] | None:
    """The ids by row; None for a run that kept none."""
    import polars as pl

    path = folder / _FILE
    return pl.read_parquet(path)["id"].to_list() if path.exists() else None
