"""Record frames: their columns, how they are read, and exact percentiles over them in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gpusize.base.errors import StoreError
from gpusize.base.regular_files import part_files

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "ANSWERED",
    "EVENTS",
    "OUTCOMES",
    "RECORDS_VERSION",
    "SCHEMA_KEY",
    "SCHEMA_VERSION",
    "SERVER_TIMES",
    "ArrowStream",
    "check_schema",
    "column",
    "empty",
    "first_line",
    "from_arrow",
    "has_column",
    "has_events",
    "outcome_dtype",
    "quantiles",
    "record_dtypes",
    "scan",
    "scan_stored",
    "version_of",
]

SCHEMA_VERSION: Final = 1
"""The newest version of run folders that this reader knows."""

RECORDS_VERSION: Final = 3
"""The newest version of records that this reader knows. Older ones are read with nulls where they lack a column."""

EVENTS: Final = "events_ns"
"""The column of lists: times of all content events, null unless the run kept them."""

SCHEMA_KEY: Final = "gpusize.schema"
"""Key of the version in a Parquet file's metadata; a file without it is of version 1."""

OUTCOMES: Final = (
    "ok",
    "http_error",
    "api_error",
    "timeout",
    "connect_error",
    "tls_error",
    "protocol_error",
    "truncated",
    "cancelled",
    "shed",
)
"""Names of the outcome codes, in the order of the codes."""
ANSWERED: Final = ("ok", "http_error", "api_error", "protocol_error", "truncated")
"""Outcomes of requests that the target has dealt with; what was shed, timed out or cut off it has not."""

_TYPES: Final = {
    "visit": "UInt32",
    "stream": "UInt16",
    "seq": "UInt64",
    "attempt": "UInt16",
    "row": "UInt32",
    "target": "UInt16",
    "model": "UInt16",
    "session": "UInt64",
    "turn": "UInt16",
    "host": "UInt16",
    "worker": "UInt16",
    "conn": "UInt32",
    "due_ns": "Int64",
    "fired_ns": "Int64",
    "sent_ns": "Int64",
    "connect_ns": "Int64",
    "tls_ns": "Int64",
    "first_byte_ns": "Int64",
    "first_token_ns": "Int64",
    "last_token_ns": "Int64",
    "end_ns": "Int64",
    "events": "UInt32",
    "tokens_in": "UInt32",
    "tokens_out": "UInt32",
    "tokens_cached": "UInt32",
    "tokens_reasoning": "UInt32",
    "bytes_in": "UInt64",
    "bytes_out": "UInt64",
    "status": "UInt16",
    "outcome": "UInt8",
    "error_id": "UInt32",
}
_ADDED: Final = {
    "reasoning_events": "UInt32",
    "first_output_ns": "Int64",
    "itl_min_ns": "Int64",
    "itl_mean_ns": "Int64",
    "itl_p50_ns": "Int64",
    "itl_p99_ns": "Int64",
    "itl_max_ns": "Int64",
}
"""Columns of version 2. A part leaves them out when none of its rows has a value."""
SERVER_TIMES: Final = ("server_queue_ns", "server_service_ns")
"""Columns of version 3, likewise: how long the server says that a request waited in it and was served."""


class ArrowStream(Protocol):
    """Anything that hands over Arrow data through the PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def record_dtypes() -> dict[str, pl.DataType]:
    """Columns of a record frame and their types as stored (``outcome`` still a code)."""
    import polars as pl

    plain = {name: getattr(pl, kind)() for name, kind in {**_TYPES, **_ADDED}.items()}
    said = dict.fromkeys(SERVER_TIMES, pl.Int64())
    return {**plain, **said, EVENTS: pl.List(pl.Int64())}


def version_of(columns: Iterable[str]) -> str:
    """The version that a part with these columns says: the first that has them, so that older readers take it."""
    return str(RECORDS_VERSION if set(SERVER_TIMES) & set(columns) else 2)


def outcome_dtype() -> pl.Enum:
    """The type of the decoded ``outcome`` column."""
    import polars as pl

    return pl.Enum(OUTCOMES)


def check_schema(version: object, where: str, newest: int = SCHEMA_VERSION) -> None:
    """Refuse data of a version that this reader does not know.

    Raises:
        StoreError: ``version`` is no number, or newer than ``newest``.
    """
    try:
        number = int(str(version))
    except ValueError:
        raise StoreError(
            f"unreadable schema version {version!r}", where, "the file is damaged, or gpusize did not write it"
        ) from None
    if number > newest:
        raise StoreError(
            f"written with schema version {number}, this gpusize reads up to {newest}",
            where,
            "read it with a newer gpusize",
        )


def _check_columns(columns: Iterable[str], where: str) -> None:
    """Refuse what lacks a column that every version has."""
    present = set(columns)
    missing = [name for name in _TYPES if name not in present]
    if missing:
        raise StoreError(f"not records: column {missing[0]} is missing", where, "is this a part of a run folder?")


def _decode(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """Check the columns, add those that an older or a plain part lacks, and turn outcome codes into names."""
    import polars as pl

    schema = frame.collect_schema()
    _check_columns(schema, where)
    absent = [name for name in (*_ADDED, *SERVER_TIMES, EVENTS) if name not in schema]
    if absent:
        dtypes = record_dtypes()
        none = {"reasoning_events": 0}
        frame = frame.with_columns(pl.lit(none.get(name), dtype=dtypes[name]).alias(name) for name in absent)
        frame = frame.select(list(dtypes))
    if schema["outcome"] == outcome_dtype():
        return frame
    # The codes are the enum's own: reinterpreting them needs a third of the memory that a look-up does.
    return frame.with_columns(pl.col("outcome").cat.to(outcome_dtype()))


def scan(paths: Iterable[Path]) -> pl.LazyFrame:
    """Records of Parquet parts as a LazyFrame; ``outcome`` is an enum of the names in ``OUTCOMES``.

    Nothing but footers is read before the frame is collected. No paths give an empty frame. Columns that a part lacks,
    by its version or because no row had a value, are filled with nulls (``reasoning_events`` with 0).

    Raises:
        StoreError: a part cannot be read, is no record file, or is of a newer version.
    """
    import polars as pl

    parts = [Path(path) for path in paths]
    if not parts:
        return empty()
    stored: dict[str, pl.DataType] = record_dtypes()
    for part in parts:
        try:
            stated = pl.read_parquet_metadata(part).get(SCHEMA_KEY, "1")
            columns = pl.scan_parquet(part, glob=False).collect_schema()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"unreadable part ({first_line(error)})", str(part), "leave it out or restore it"
            ) from None
        check_schema(stated, str(part), RECORDS_VERSION)
        _check_columns(columns, str(part))
        stored["outcome"] = columns["outcome"]
    # Without a schema Polars takes the first part's, and parts of one level may differ in what version 1 lacks.
    frame = pl.scan_parquet(parts, glob=False, schema=stored, missing_columns="insert", extra_columns="ignore")
    return _decode(frame.with_columns(pl.col("reasoning_events").fill_null(0)), str(parts[0].parent))


def scan_stored(paths: Sequence[Path], names: Sequence[str]) -> pl.LazyFrame:
    """Columns of records as they are stored, of parts that are known to be whole; ``outcome`` by its code.

    Polars takes its schema from the first part unless it is told, and then refuses a later one with columns of version
    2: a first part of failures alone has none of them.

    Args:
        paths: one part or more.
        names: columns of version 1.
    """
    import polars as pl

    with paths[0].open("rb") as opened:  # a path would be taken for a pattern
        stored = {**record_dtypes(), **pl.read_parquet_schema(opened)}
    schema: dict[str, pl.DataType] = {name: stored[name] for name in names}
    return pl.scan_parquet(list(paths), glob=False, schema=schema, missing_columns="insert", extra_columns="ignore")


def has_events(folder: Path) -> bool:
    """Whether a part of a level's records has the times of all events; by the footers alone."""
    return has_column(folder, EVENTS)


def has_column(folder: Path, *names: str) -> bool:
    """Whether a part of a level's records has one of the columns that others leave out; by the footers alone."""
    import polars as pl

    parts = part_files(folder / "records")
    return any(not pl.scan_parquet(part, glob=False).collect_schema().keys().isdisjoint(names) for part in parts)


def from_arrow(batches: ArrowStream) -> pl.LazyFrame:
    """Records that are still in memory, taken over without a copy; ``outcome`` is decoded when collected."""
    import polars as pl

    return _decode(pl.DataFrame(batches).lazy(), "records in memory")


def empty() -> pl.LazyFrame:
    """A record frame without rows."""
    import polars as pl

    return pl.LazyFrame(schema={**record_dtypes(), "outcome": outcome_dtype()})


def column(frame: pl.LazyFrame, expr: pl.Expr) -> NDArray[np.float64]:
    """One computed column as a numpy array of its own, nulls left out. Shape (n,), dtype float64.

    Only the columns that ``expr`` needs are read, in batches; the peak is two copies of the one result.
    """
    import numpy as np
    import polars as pl

    series = frame.select(expr.cast(pl.Float64).alias("x")).drop_nulls().collect(engine="streaming")["x"]
    out = np.empty(len(series), dtype=np.float64)
    at = 0
    for chunk in series.get_chunks():
        out[at : at + len(chunk)] = chunk.to_numpy()
        at += len(chunk)
    return out


def quantiles(frame: pl.LazyFrame, expr: pl.Expr, probs: Sequence[float]) -> list[float | None]:
    """Exact quantiles of one computed column, by linear interpolation as ``numpy.quantile``.

    Args:
        frame: records.
        expr: what to compute per row; null rows are left out.
        probs: probabilities in [0, 1].

    Returns:
        One number per probability, in the unit of ``expr``; None everywhere when no row has a value.
    """
    import numpy as np

    values = column(frame, expr)
    if values.size == 0:
        return [None] * len(probs)
    return [float(q) for q in np.atleast_1d(np.quantile(values, list(probs), overwrite_input=True))]


def first_line(error: BaseException) -> str:
    """What an error says first, at most 200 characters of it."""
    return str(error).partition("\n")[0][:200]
