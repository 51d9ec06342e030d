"""What a run folder keeps of the dataset's rows: what the row numbers of its records stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.regular_files import check_regular
from gpusize.records.schema import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

__all__ = ["keep_rows", "read_ids", "read_rows"]

_FILE: Final = "dataset.parquet"
_COUNTS: Final = ("input_tokens", "output_tokens", "turn", "batch")
"""Whole numbers that a row may say of itself: lengths asked for, place in a conversation, samples in one request."""
_LENGTH: Final = "length"
_TEXTS: Final = ("session", "model")
_TODO: Final = "leave the run out or restore it"


def keep_rows(
    folder: Path, ids: Sequence[str], rows: Sequence[Mapping[str, Any]] = (), lengths: Sequence[int] = ()
) -> None:
    """Write the ids, in row order, and what the rows say of themselves, once; a resumed run has them already.

    Args:
        folder: the run folder.
        ids: one per row.
        rows: the rows' fields; only the known ones that some row has become columns.
        lengths: characters that each row sends; none where that is not known.

    Raises:
        StoreError: the file cannot be written.
    """
    import polars as pl

    from gpusize.base.files import write_frame

    path = folder / _FILE
    if path.exists():
        return
    columns = [pl.Series("id", list(ids), pl.String)]
    for name in (*_COUNTS, *_TEXTS):
        known = _whole if name in _COUNTS else _text
        values = [known(row.get(name)) for row in rows]
        if any(value is not None for value in values):
            columns.append(pl.Series(name, values, pl.Int64 if name in _COUNTS else pl.String))
    if lengths:
        columns.append(pl.Series(_LENGTH, lengths, pl.Int64))
    write_frame(path, pl.DataFrame(columns))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)


def read_rows(folder: Path) -> pl.DataFrame | None:
    """One line per row of the dataset; None for a run that kept none.

    Columns: ``id``, and of ``input_tokens``, ``output_tokens``, ``turn``, ``batch``, ``session`` and ``model`` those
    that the rows had; ``length``, the characters that a row sends, where that was known.

    Raises:
        StoreError: the file is damaged.
    """
    import polars as pl

    path = folder / _FILE
    if not path.exists():
        return None
    check_regular(path)
    try:
        rows = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise StoreError(f"unreadable rows of the dataset ({first_line(error)})", str(path), _TODO) from None
    kinds = {"id": pl.String, **dict.fromkeys((*_COUNTS, _LENGTH), pl.Int64), **dict.fromkeys(_TEXTS, pl.String)}
    wrong = [name for name, kind in kinds.items() if rows.schema.get(name, None if name == "id" else kind) != kind]
    if wrong:
        raise StoreError(f"the column {wrong[0]} is missing or of another kind", str(path), _TODO)
    return rows


def read_ids(folder: Path) -> list[str] | None:
    """The ids by row; None for a run that kept none."""
    rows = read_rows(folder)
    return None if rows is None else rows["id"].to_list()
