"""A host's parts as those of one machine: its times moved by one constant, its errors numbered as the level's.

A column that a part lacks stays absent. What is no time of the generator's clock is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing
from gpusize.records.schema import SCHEMA_KEY, first_line

if TYPE_CHECKING:
    import polars as pl

__all__ = ["MOVED", "TABLES", "home_name", "rewrite", "thin"]

TABLES: Final = {
    "parts": "records",
    "span_parts": "spans",
    "second_parts": "seconds",
    "histogram_parts": "histograms",
}
"""Lists of parts in an outcome, and the folders in which they lie."""

MOVED: Final = {
    "records": (
        "due_ns", "fired_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns",
        "first_output_ns",
    ),
    "spans": ("start_ns", "end_ns", "first_token_ns"),
}  # fmt: skip
"""Columns that are moments on the generator's clock."""

EVENTS: Final = "events_ns"


def home_name(part: str, host: int) -> str:
    """The name of a host's part in the level's folder: of host 2 ``records/part-h002-00000.parquet``."""
    folder, _, name = part.rpartition("/")
    return f"{folder}/part-h{host:03d}-{name.removeprefix('part-')}"


def rewrite(source: Path, goal: Path, table: str, *, host: int, shift_ns: int, errors: Mapping[int, int]) -> int:
    """Write a host's part as one of the level's; the number of its rows.

    Args:
        source: the part as the host wrote it.
        goal: the file to write.
        table: ``records``, ``spans``, ``seconds`` or ``histograms``.
        host: the host's number.
        shift_ns: what is added to its times.
        errors: new number of each of its errors.

    Raises:
        StoreError: the part cannot be read, or not be written.
    """
    import polars as pl

    try:
        stated = pl.read_parquet_metadata(source)
        frame = pl.read_parquet(source, glob=False)
        frame = frame.with_columns(_changed(frame, table, host, shift_ns, errors))
    except (OSError, pl.exceptions.PolarsError) as error:
        what = f"a part of host {host} cannot be read ({first_line(error)})"
        raise StoreError(what, str(source), "measure the level again") from None
    with storing(goal):
        goal.parent.mkdir(exist_ok=True)
        metadata = {name: text for name, text in stated.items() if name == SCHEMA_KEY}
        frame.write_parquet(goal, compression="lz4", metadata=metadata)
    return frame.height


def thin(source: Path, goal: Path, one_in: int) -> int:
    """Write the rows of a part whose number is a multiple of ``one_in``; how many they are.

    Raises:
        OSError: the part cannot be read, or not be written.
    """
    import polars as pl

    try:
        frame = pl.scan_parquet(source, glob=False).filter(pl.col("seq") % one_in == 0).collect()
        goal.parent.mkdir(exist_ok=True)
        stated = pl.read_parquet_metadata(source)
        metadata = {name: text for name, text in stated.items() if name == SCHEMA_KEY}
        frame.write_parquet(goal, compression="lz4", metadata=metadata)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{source.name}: {first_line(error)}") from None
    return frame.height


def _changed(frame: pl.DataFrame, table: str, host: int, shift_ns: int, errors: Mapping[int, int]) -> list[pl.Expr]:
    """The columns that are other ones at home."""
    import polars as pl

    # Calls that a server reports are on its own clock.
    ours = pl.lit(value=True) if "domain" not in frame.columns else pl.col("domain") == 0
    moved = [name for name in MOVED.get(table, ()) if name in frame.columns]
    found = [pl.when(ours).then(pl.col(name) + shift_ns).otherwise(pl.col(name)).alias(name) for name in moved]
    if table != "records":
        return found
    found = [pl.col(name) + shift_ns for name in moved]
    if EVENTS in frame.columns:
        found.append(pl.col(EVENTS).list.eval(pl.element() + shift_ns))
    found.append(pl.lit(host, dtype=pl.UInt16).alias("host"))
    if errors:
        found.append(pl.col("error_id").replace(errors))
    return found
