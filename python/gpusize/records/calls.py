"""The calls table: the calls inside requests, as ``levels/0003/spans/part-*.parquet`` keeps them.

A row's times are of one clock domain, 0 the generator's monotonic clock, 1 the server's wall clock with an unknown
offset: durations are good in both, comparisons with records in the first only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.files import storing
from gpusize.base.regular_files import part_files
from gpusize.records.schema import OUTCOMES, RECORDS_VERSION, SCHEMA_KEY, check_schema, outcome_dtype, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

__all__ = ["KEY", "LLM", "WITHIN_VISIT", "judged_calls", "llm_calls", "scan_calls", "span_dtypes", "write_spans"]

LLM: Final = "llm"
"""The kind of a call of a language model."""

KEY: Final = ("visit", "stream", "seq", "attempt")
"""What ties a call to its request's record."""
WITHIN_VISIT: Final = KEY[1:]
"""The same among the requests of one visit."""

PART_ROWS: Final = 1 << 18

_TYPES: Final = {
    "visit": "UInt32",
    "stream": "UInt16",
    "seq": "UInt64",
    "attempt": "UInt16",
    "call": "UInt32",
    "kind": "String",
    "name": "String",
    "start_ns": "Int64",
    "end_ns": "Int64",
    "first_token_ns": "Int64",
    "tokens_in": "UInt32",
    "tokens_out": "UInt32",
    "outcome": "UInt8",
    "domain": "UInt8",
}
_ZEROS: Final = frozenset(("stream", "attempt", "call", "domain"))


def span_dtypes() -> dict[str, pl.DataType]:
    """Columns and types as stored; ``outcome`` is the code of records."""
    import polars as pl

    return {name: getattr(pl, kind)() for name, kind in _TYPES.items()}


def write_spans(folder: Path, rows: Sequence[Mapping[str, Any]], prefix: str = "part") -> list[str]:
    """Write calls into ``folder/spans``.

    Args:
        folder: the level's folder.
        rows: by column name; ``outcome`` by its name; what is missing is null, or 0 where null has no meaning.
        prefix: of the files' names.

    Returns:
        The parts, relative to ``folder``; none without rows.

    Raises:
        StoreError: they cannot be written.
    """
    import polars as pl

    parts = []
    schema = span_dtypes()
    for number, start in enumerate(range(0, len(rows), PART_ROWS)):
        chunk = rows[start : start + PART_ROWS]
        columns = {
            name: [row.get(name, 0 if name in _ZEROS else None) for row in chunk]
            for name in schema
            if name != "outcome"
        }
        columns["outcome"] = [OUTCOMES.index(row["outcome"]) for row in chunk]
        name = f"spans/{prefix}-{number:05d}.parquet"
        with storing(folder / name):
            (folder / "spans").mkdir(exist_ok=True)
            frame = pl.DataFrame({column: columns[column] for column in schema}, schema=schema)
            frame.write_parquet(folder / name, compression="lz4", metadata={SCHEMA_KEY: version_of(schema)})
        parts.append(name)
    return parts


def scan_calls(paths: Iterable[Path]) -> pl.LazyFrame | None:
    """Calls of Parquet parts as a LazyFrame, ``outcome`` as an enum of names; None without parts.

    Raises:
        StoreError: a part cannot be read, is no calls table, or is of a newer version.
    """
    import polars as pl

    parts = list(paths)
    if not parts:
        return None
    for part in parts:
        try:
            stated = pl.read_parquet_metadata(part).get(SCHEMA_KEY, "1")
            known = pl.scan_parquet(part, glob=False).collect_schema()
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise StoreError(f"unreadable part ({reason})", str(part), "leave it out or restore it") from None
        check_schema(stated, str(part), RECORDS_VERSION)
        missing = [name for name in _TYPES if name not in known]
        if missing:
            raise StoreError(f"no calls: column {missing[0]} is missing", str(part), "is this a part of a run folder?")
    frame = pl.scan_parquet(parts, glob=False).select(pl.col(name).cast(kind) for name, kind in span_dtypes().items())
    return frame.with_columns(pl.col("outcome").cat.to(outcome_dtype()))


def llm_calls(folder: Path) -> pl.LazyFrame | None:
    """The calls of language models in a level's folder; None where there is none.

    Raises:
        StoreError: as ``scan_calls``.
    """
    import polars as pl

    spans = folder / "spans"
    frame = scan_calls(part_files(spans, "*.parquet"))
    if frame is None:
        return None
    of_llm = frame.filter(pl.col("kind") == LLM)
    return None if of_llm.select("kind").head(1).collect().is_empty() else of_llm


def judged_calls(calls: pl.LazyFrame, records: pl.LazyFrame) -> pl.LazyFrame:
    """What an SLO on calls is judged by: outcome, start_ns and end_ns of every call of these requests, with its key.

    A request that failed although none of its calls did is one more row, without times: its user had no answer.

    Args:
        calls: calls of one kind, of one visit.
        records: the requests that count.
    """
    import polars as pl

    key = WITHIN_VISIT
    kept = calls.join(records.select(key), on=key, how="semi")
    failed = kept.filter(~pl.col("outcome").is_in(["ok", "cancelled"])).select(key)
    bad = records.filter(~pl.col("outcome").is_in(["ok", "cancelled"])).select(*key, "outcome")
    alone = bad.join(failed, on=key, how="anti")
    none = pl.lit(None, pl.Int64)
    columns = (*key, "outcome", "start_ns", "end_ns", "first_token_ns", "tokens_in", "tokens_out", "name", "domain")
    extra = alone.select(
        *key,
        "outcome",
        none.alias("start_ns"),
        none.alias("end_ns"),
        none.alias("first_token_ns"),
        pl.lit(None, pl.UInt32).alias("tokens_in"),
        pl.lit(None, pl.UInt32).alias("tokens_out"),
        pl.lit(None, pl.String).alias("name"),
        pl.lit(None, pl.UInt8).alias("domain"),
    )
    return pl.concat([kept.select(columns), extra])
