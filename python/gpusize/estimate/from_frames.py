"""Levels from two data frames, one row per request and one per visit: what a simulator, or anybody, can hand over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["levels_from_frames"]

TIMES: Final = ("due", "sent", "first_token", "last_token", "end")
"""Each is a column of seconds (``due_s``) or of nanoseconds (``due_ns``)."""
SAID: Final = ("server_queue", "server_service")
"""Durations by the server's word, in the same units."""
COUNTS: Final = ("tokens_in", "tokens_cached", "tokens_out")
STATES: Final = ("done", "interrupted")
THINKS: Final = ("fixed", "exponential")
NS_PER_S: Final = 1_000_000_000


def levels_from_frames(records: pl.DataFrame | pl.LazyFrame, levels: pl.DataFrame) -> list[LevelData]:
    """One level per row of ``levels``, with its requests from ``records``.

    Columns of ``records``: ``visit``; ``due_s`` or ``due_ns``, when a request was due, from any origin; ``end_s`` or
    ``end_ns``, when its last byte came, null where it never did. Optional: ``sent`` (as due), ``first_token`` and
    ``last_token`` in either unit, ``server_queue`` and ``server_service`` (durations that the server said) likewise,
    ``tokens_in``, of which ``tokens_cached`` were in the server's cache, ``tokens_out``, and ``outcome`` (``ok``
    without such a column).

    Columns of ``levels``: ``visit``; ``concurrency``, requests in flight, or ``rate``, requests per second. Optional:
    ``gpus``; ``think_s`` with ``think`` (``fixed``, ``exponential``), pauses of users; ``process`` of a rate
    (``poisson``); ``state`` (``done``, ``interrupted``); ``warmup_s``, how much of the start does not count, null for
    the rule of ``gpusize.analysis.windows``; ``passes``, whether every request counts.

    Raises:
        UsageError: a column is missing, or a value cannot be.
    """
    import polars as pl

    rows = _named(records.collect() if isinstance(records, pl.LazyFrame) else records)
    _need(levels, "levels", "visit")
    if not {"concurrency", "rate"} & set(levels.columns):
        raise UsageError("levels have neither concurrency nor rate", "levels", "give the load of each in one of them")
    numbers = levels["visit"].to_list()
    if len(set(numbers)) < len(numbers):
        raise UsageError("a visit appears twice", "levels, visit", "give each execution of a level a number of its own")
    parts = {key[0]: part for key, part in rows.partition_by("visit", as_dict=True, maintain_order=True).items()}
    unknown = sorted(set(parts) - set(numbers))
    if unknown:
        raise UsageError(f"visit {unknown[0]} has requests and no level", "records, visit", "give it a row in levels")
    return [_level(row, parts.get(row["visit"])) for row in levels.iter_rows(named=True)]


def _need(frame: pl.DataFrame, what: str, name: str) -> None:
    if name not in frame.columns:
        raise UsageError(f"{what} have no column {name}", what, f"there are {', '.join(frame.columns) or 'none'}")


def _named(given: pl.DataFrame) -> pl.DataFrame:
    """The frame with the columns that a run folder has, as far as it knows of them."""
    import polars as pl

    from gpusize.records.schema import OUTCOMES, outcome_dtype, record_dtypes

    _need(given, "records", "visit")
    known: dict[str, pl.Expr] = {"visit": pl.col("visit")}
    known |= {f"{name}_ns": expr for name in (*TIMES, *SAID) if (expr := _time(given, name)) is not None}
    for name in ("due", "end"):
        if f"{name}_ns" not in known:
            raise UsageError(f"records have no column {name}_s", "records", f"give {name}_s or {name}_ns")
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    known |= {name: pl.col(name).cast(dtypes[name]) for name in COUNTS if name in given.columns}
    known["outcome"] = pl.col("outcome").cast(pl.String) if "outcome" in given.columns else pl.lit("ok")
    try:
        found = given.select(expr.alias(name) for name, expr in known.items())
    except pl.exceptions.PolarsError as error:
        raise UsageError(
            f"a column cannot be read: {str(error).splitlines()[0]}", "records", "give numbers, and outcomes as text"
        ) from None
    _check(found, OUTCOMES)
    first = pl.col("first_token_ns") if "first_token_ns" in known else pl.lit(None)
    token = first.is_not_null()
    derived = {
        "fired_ns": pl.col("due_ns"),
        "sent_ns": pl.col("sent_ns") if "sent_ns" in known else pl.col("due_ns"),
        "first_byte_ns": first,
        "first_output_ns": first,
        "last_token_ns": pl.col("last_token_ns") if "last_token_ns" in known else pl.when(token).then(pl.col("end_ns")),
        "events": pl.when(token).then(pl.col("tokens_out")) if "tokens_out" in known else pl.lit(None),
        "seq": pl.int_range(pl.len()).over("visit"),
        "row": pl.int_range(pl.len()).over("visit"),
        **dict.fromkeys(("stream", "attempt"), pl.lit(0)),
    }
    taken = {**{name: pl.col(name) for name in known}, **derived}
    return found.select(taken.get(name, pl.lit(None)).cast(dtype).alias(name) for name, dtype in dtypes.items())


def _time(given: pl.DataFrame, name: str) -> pl.Expr | None:
    """Nanoseconds of a time, from whichever column there is; None without one."""
    import polars as pl

    if f"{name}_ns" in given.columns:
        return pl.col(f"{name}_ns").cast(pl.Int64)
    if f"{name}_s" not in given.columns:
        return None
    seconds = pl.col(f"{name}_s").cast(pl.Float64).fill_nan(None)
    return (seconds * NS_PER_S).round().cast(pl.Int64)


def _check(found: pl.DataFrame, outcomes: tuple[str, ...]) -> None:
    import polars as pl

    odd = sorted(set(found["outcome"].drop_nulls().unique()) - set(outcomes))
    if odd or found["outcome"].null_count():
        what = f"there is no outcome {odd[0]!r}" if odd else "an outcome is null"
        raise UsageError(what, "records, outcome", f"use {', '.join(outcomes)}")
    if found["due_ns"].null_count():
        raise UsageError(
            "a request has no due time", "records, due_s", "give every request the time at which it was due"
        )
    unended = found.filter((pl.col("outcome") == "ok") & pl.col("end_ns").is_null()).height
    if unended:
        raise UsageError(f"{unended} requests are ok and have no end", "records, end_s", "give them another outcome")
    if found.filter(pl.col("end_ns") < pl.col("due_ns")).height:
        raise UsageError("a request ends before it is due", "records, end_s", "count both from the same origin")
    cached = {"tokens_in", "tokens_cached"} <= {*found.columns}
    if cached and found.filter(pl.col("tokens_cached") > pl.col("tokens_in")).height:
        what = "more tokens of a prompt are cached than it has"
        raise UsageError(what, "records, tokens_cached", "count the cached ones in tokens_in, too")


def _level(row: Mapping[str, Any], records: pl.DataFrame | None) -> LevelData:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.windows import intervals

    where = f"levels, visit {row['visit']}"
    if records is None:
        raise UsageError("a level has no requests", where, "leave the level out, or give its requests")
    state = row.get("state") or "done"
    if state not in STATES:
        raise UsageError(f"there is no state {state!r}", where, f"use {' or '.join(STATES)}")
    setting = _setting(row, records.height, where)
    due, end = records["due_ns"].to_numpy(), records["end_ns"].drop_nulls().to_numpy()
    close = int(due.max()) + 1
    meta = {
        "setting": setting,
        "state": state,
        "start_ns": int(due.min()),
        "close_ns": close,
        "end_ns": max(close, int(end.max())) if end.size else close,
        "outcomes": {str(name): int(n) for name, n in records["outcome"].value_counts().iter_rows()},
    }
    frame = records.lazy()
    return LevelData(
        visit=int(row["visit"]),
        setting=setting,
        state=state,
        intervals=intervals(meta, frame, row.get("warmup_s")).intervals,
        gpus=int(row.get("gpus") or 0),
        run="frame",
        meta=meta,
        records=frame,
    )


def _setting(row: Mapping[str, Any], count: int, where: str) -> dict[str, Any]:
    users, rate = row.get("concurrency"), row.get("rate")
    if (users is None) == (rate is None):
        raise UsageError("a level has either a concurrency or a rate", where, "leave the other one null")
    load: float = row["rate" if users is None else "concurrency"]
    if not (math.isfinite(load) and load > 0) or (users is not None and load != int(load)):
        raise UsageError(
            f"{load} is not a load", where, "give a whole number of requests in flight, or a positive rate"
        )
    setting: dict[str, Any] = {"kind": "closed", "concurrency": int(load), "count": count, **_thinking(row, where)}
    if users is None:
        setting = {"kind": "open", "rate": float(load), "process": row.get("process") or "poisson", "count": count}
    return {**setting, "passes": 1} if row.get("passes") else setting


def _thinking(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Pauses as a run's setting has them."""
    length = row.get("think_s") or 0.0
    kind = row.get("think") or ("fixed" if length else None)
    if not length:
        return {}
    if kind not in THINKS or not (math.isfinite(length) and length > 0):
        raise UsageError(f"there is no pause {kind!r} of {length} s", where, f"think is one of {', '.join(THINKS)}")
    return {"think_s": float(length)} if kind == "fixed" else {"think_s": 0.0, "think": f"exp({length:g}s)"}
