"""Levels of which another tool kept every request: their rows as records, batch by batch.

An importer hands frames over, with those columns of docs/reference/records.md that its format has. From there on such a
level is one of our own: quantiles, attainment, throughput and estimates are worked out from its rows. What the format
lacks is null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.errors import ConfigError
from gpusize.records.intact import checksums
from gpusize.records.schema import (
    EVENTS,
    OUTCOMES,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    SERVER_TIMES,
    first_line,
    outcome_dtype,
    record_dtypes,
    scan,
    version_of,
)
from gpusize.targets.workflow.record import ErrorLog

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ALL", "RequestLevel", "Told", "write_requests"]

PART_ROWS: Final = 1 << 17
_STAMPS: Final = (
    *("due_ns", "fired_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns"),
    "first_output_ns",
)
_DRAWN: Final = ("visit", "seq", "error_id")
"""Columns that are made here."""
_KEYS: Final = ("stream", "attempt", "row", "target", "model", "host", "worker", "conn")
"""Columns that are 0 where a format does not tell several apart."""
_ORDER: Final = (
    ("sent_ns", "first_byte_ns", "its first byte came before it was sent"),
    ("sent_ns", "first_token_ns", "its first token came before it was sent"),
    ("first_token_ns", "last_token_ns", "its last token came before its first"),
    ("last_token_ns", "end_ns", "it ended before its last token"),
    ("sent_ns", "end_ns", "it ended before it was sent"),
)
_ADDED: Final = (
    *("reasoning_events", "first_output_ns", "itl_min_ns", "itl_mean_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns"),
    *SERVER_TIMES,
    EVENTS,
)
"""Columns that a part leaves out where none of its rows has a value."""
_FAR_NS: Final = 1 << 61


class Told(NamedTuple):
    """What the other tool says of a level beside its requests.

    Attributes:
        window: (start, end) in ns on the clock of the rows: the part that the tool itself counted, half open by when
            requests were due (sent, where that is not known). None: all counts.
        method: how that part was chosen, in words.
        close_ns: when the tool ceased to send, on the clock of the rows; None for after the last request.
        state: as in ``level.json``.
        alerts: what a reader must know of the level.
        flags: names of what contradicts itself.
        facts: more fields of ``level.json``, as ``server``.
    """

    window: tuple[int, int] | None = None
    method: str = "all: the file does not say which part was measured"
    close_ns: int | None = None
    state: str = "done"
    alerts: Sequence[str] = ()
    flags: Sequence[str] = ()
    facts: Mapping[str, Any] = {}


ALL: Final = Told()
"""Nothing but the requests is known: all of them count."""


@dataclass(frozen=True, slots=True)
class RequestLevel:
    """One level with its requests.

    Attributes:
        setting: as in docs/reference/run-folder.md.
        frames: the requests in any order, at most some 100,000 in each frame; read once, as they are written. Columns
            are those of docs/reference/records.md that the format has, by their names: at least ``sent_ns`` (or
            ``due_ns``, of requests that were never sent) and ``end_ns``. Stamps (``*_ns`` that are moments) are ns on
            one clock for the whole run. ``outcome`` is a name of ``OUTCOMES``; without it all ended ok. ``error`` is a
            failure's text. From ``events_ns`` (lists) follow the columns of tokens and gaps that are not given.
        where: file, for errors.
        told: what is known beside the requests; a function is called when the frames have been read.
    """

    setting: Mapping[str, Any]
    frames: Iterable[pl.DataFrame]
    where: str
    told: Told | Callable[[], Told] = ALL


class _Seen:
    """What is counted while rows go by."""

    def __init__(self) -> None:
        self.rows = self.sent = self.service_ns = self.unknown_due = 0
        self.outcomes: Counter[str] = Counter()
        self.errors = ErrorLog()
        self.first_due: int | None = None
        self.last_due: int | None = None
        self.last_end: int | None = None

    def add(self, frame: pl.DataFrame) -> None:
        import polars as pl

        self.rows += frame.height
        self.sent += frame.height - frame["sent_ns"].null_count()
        counts = frame.group_by("outcome").len()
        self.outcomes.update({str(name): int(n) for name, n in counts.iter_rows()})
        ok = frame.filter(pl.col("outcome") == "ok")
        self.service_ns += int((ok["end_ns"] - ok["sent_ns"]).sum())
        low, high, end = frame.select(
            pl.col("due_ns").min().alias("low"), pl.col("due_ns").max().alias("high"), pl.col("end_ns").max()
        ).row(0)
        self.first_due = min(low, low if self.first_due is None else self.first_due)
        self.last_due = max(high, high if self.last_due is None else self.last_due)
        self.last_end = max((each for each in (self.last_end, end) if each is not None), default=None)


def write_requests(folder: Path, visit: int, level: RequestLevel, origin_ns: int | None) -> tuple[dict[str, Any], int]:
    """Write the parts of a level below its folder, and say what ``level.json`` has to hold.

    Args:
        folder: the level's folder, empty.
        visit: its number.
        level: its requests.
        origin_ns: what is taken off every stamp, so that all levels of a run are on one clock that begins near 0; None
            for one second before this level's first request.

    Returns:
        The contents of ``level.json``, and the origin.

    Raises:
        ConfigError: a row contradicts itself, a value is out of range, or there is no row.
        OSError: it cannot be written.
    """
    import polars as pl

    seen = _Seen()
    parts: list[str] = []
    held: list[pl.DataFrame] = []
    (folder / "records").mkdir()

    def close_part() -> None:
        name = f"records/part-{len(parts):05d}.parquet"
        frame = pl.concat(held)
        empty = [column for column in _ADDED if frame[column].null_count() == frame.height]
        stored = frame.drop(empty).with_columns(pl.col("outcome").to_physical().cast(pl.UInt8))
        stored.write_parquet(folder / name, compression="lz4", metadata={SCHEMA_KEY: version_of(stored.columns)})
        parts.append(name)
        held.clear()

    for given in level.frames:
        if not given.height:
            continue
        if origin_ns is None:
            begun = given.select(
                pl.min_horizontal(pl.col(n).min() for n in ("due_ns", "sent_ns") if n in given.columns)
            )
            origin_ns = int(begun.item() or 0) // 10**9 * 10**9 - 10**9
        frame = _records(given, visit, origin_ns, seen, level.where)
        seen.add(frame)
        held.append(frame)
        if sum(each.height for each in held) >= PART_ROWS:
            close_part()
    if held:
        close_part()
    if origin_ns is None or not seen.rows:
        raise ConfigError("a level without a request", level.where, "leave it out")
    told = level.told() if callable(level.told) else level.told
    meta = _meta(visit, level.setting, told, seen, origin_ns)
    meta |= {"parts": parts, "checksums": checksums(folder)}
    _check_window(meta, scan(folder / name for name in parts))
    return meta, origin_ns


def _records(given: pl.DataFrame, visit: int, origin_ns: int, seen: _Seen, where: str) -> pl.DataFrame:
    """A format's rows as records, ``outcome`` by name."""
    import polars as pl

    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    known = {*dtypes, "error"} - set(_DRAWN)
    strange = [name for name in given.columns if name not in known]
    if strange:
        raise ValueError(f"{strange[0]} is no column of records")
    try:
        frame = given.with_columns(pl.col(n).cast(t) for n, t in dtypes.items() if n in given.columns)
    except pl.exceptions.PolarsError as error:
        what = f"requests from number {seen.rows + 1:,}: a value out of range ({first_line(error)})"
        raise ConfigError(what, where, "the file is damaged") from None
    zeros = [pl.lit(0).alias(name) for name in _KEYS if name not in frame.columns]
    absent = [name for name in dtypes if name not in {*frame.columns, *_KEYS, "outcome"}]
    outcome = pl.col("outcome").fill_null("ok") if "outcome" in frame.columns else pl.lit("ok")
    frame = frame.with_columns(
        *zeros,
        *(pl.lit(None, dtypes[name]).alias(name) for name in absent),
        outcome.cast(outcome_dtype()).alias("outcome"),
    ).with_columns(pl.col("due_ns").fill_null(pl.col("sent_ns")).alias("due_ns"), pl.col("due_ns").alias("told"))
    seen.unknown_due += frame["told"].null_count()
    frame = _with_gaps(frame)
    _check(frame, seen.rows, where)
    shifted = [pl.col(name) - origin_ns for name in _STAMPS]
    return frame.with_columns(
        *shifted,
        pl.col(EVENTS).list.eval(pl.element() - origin_ns),
        pl.lit(visit).alias("visit"),
        pl.int_range(seen.rows, seen.rows + frame.height).alias("seq"),
        _error_ids(frame, seen),
    ).select(pl.col(name).cast(kind) for name, kind in dtypes.items())


def _with_gaps(frame: pl.DataFrame) -> pl.DataFrame:
    """What follows from the times of events, where it was not given."""
    import polars as pl

    if frame[EVENTS].null_count() == frame.height:
        return frame
    times = pl.col(EVENTS).list
    gaps = times.diff(null_behavior="drop").list
    n = gaps.len()

    def ranked(percent: int) -> pl.Expr:
        # By nearest rank, as the engine has them.
        rank = (n.cast(pl.Int64) * percent + 99) // 100 - 1
        return gaps.sort().list.get(rank, null_on_oob=True)

    made = {
        "events": times.len(),
        "first_token_ns": times.first(),
        "last_token_ns": times.last(),
        "itl_min_ns": gaps.min(),
        "itl_mean_ns": gaps.sum() // n,
        "itl_p50_ns": ranked(50),
        "itl_p99_ns": ranked(99),
        "itl_max_ns": gaps.max(),
    }
    several = {name: pl.when(n > 0).then(expr) if name.startswith("itl") else expr for name, expr in made.items()}
    return frame.with_columns(
        pl.coalesce(pl.col(name), expr).cast(frame.schema[name]) for name, expr in several.items()
    )


def _check(frame: pl.DataFrame, before: int, where: str) -> None:
    """Refuse rows whose times contradict each other: what follows from them would be wrong without a sign of it."""
    import polars as pl

    ok = pl.col("outcome") == "ok"
    wrong = [
        (pl.col("due_ns").is_null(), "when it was due or sent is missing"),
        (ok & (pl.col("end_ns").is_null() | pl.col("sent_ns").is_null()), "it ended ok, without a time for that"),
        *((pl.col(late) < pl.col(early), what) for early, late, what in _ORDER),
        (pl.any_horizontal(pl.col(name).abs() > _FAR_NS for name in _STAMPS), "a time is out of range"),
        (pl.col(EVENTS).list.diff(null_behavior="drop").list.min() < 0, "its tokens are not in order of time"),
    ]
    found = frame.select(
        pl.arg_where(each.fill_null(value=False)).first().alias(str(k)) for k, (each, _) in enumerate(wrong)
    ).row(0)
    at = min(((row, k) for k, row in enumerate(found) if row is not None), default=None)
    if at is not None:
        raise ConfigError(f"request {before + at[0] + 1:,}: {wrong[at[1]][1]}", where, "the file is damaged")


def _error_ids(frame: pl.DataFrame, seen: _Seen) -> pl.Series:
    """Numbers of the failures' texts, null where a request ended ok."""
    import polars as pl

    texts = frame["error"] if "error" in frame.columns else pl.repeat(None, frame.height, dtype=pl.String, eager=True)
    ids = (
        [
            None if outcome == "ok" else seen.errors.note(outcome, status, text or "")
            for outcome, status, text in zip(frame["outcome"], frame["status"], texts, strict=True)
        ]
        if (frame["outcome"] != "ok").any()
        else [None] * frame.height
    )
    return pl.Series("error_id", ids, pl.UInt32)


def _meta(visit: int, setting: Mapping[str, Any], told: Told, seen: _Seen, origin_ns: int) -> dict[str, Any]:
    first, last = seen.first_due or 0, seen.last_due or 0
    end = max(last, last if seen.last_end is None else seen.last_end)
    window = None if told.window is None else (told.window[0] - origin_ns, told.window[1] - origin_ns)
    if told.close_ns is not None:
        close = told.close_ns - origin_ns
    elif setting.get("kind") == "open" and seen.rows > 1:
        # So many gaps as requests: the time over which they were due, at their mean rate.
        close = last + max(1, round((last - first) / (seen.rows - 1)))
    else:
        close = last + 1
    start, end = (first, end) if window is None else (min(first, window[0]), max(end, window[1] - 1))
    # What the end cut off has none: the last answer may have come before the time is over in which requests were due.
    steady = (start, max(end + 1, close)) if window is None else window
    spans: tuple[tuple[str, int, int, str], ...] = (
        ("warmup", start, steady[0], "before that"),
        ("steady", *steady, told.method),
        ("drain", steady[1], end + 1, "after that"),
    )
    intervals = [
        {"name": name, "start_ns": low, "end_ns": high, "method": method}
        for name, low, high, method in spans
        if low < high
    ]
    ok = seen.outcomes["ok"]
    return {
        "schema": SCHEMA_VERSION,
        "visit": visit,
        "setting": dict(setting),
        "state": told.state,
        "stop_reason": None,
        "intervals": intervals,
        "alerts": list(told.alerts),
        "flags": list(told.flags),
        "start_ns": start,
        "close_ns": max(close, start),
        "end_ns": end,
        "due": seen.rows,
        "sent": seen.sent,
        "due_known": seen.unknown_due == 0,
        "outcomes": {name: seen.outcomes[name] for name in OUTCOMES if seen.outcomes[name]},
        "rows": seen.rows,
        "residence_ns": seen.service_ns // ok if ok else None,
        "write_error": None,
        "errors": seen.errors.errors(),
        **told.facts,
    }


def _check_window(meta: dict[str, Any], records: pl.LazyFrame) -> None:
    """Where nothing was due in the window that the tool names, all counts, with an alert."""
    import polars as pl

    steady = next((each for each in meta["intervals"] if each["name"] == "steady"), None)
    if steady is not None:
        due = pl.col("due_ns")
        inside = records.select(((due >= steady["start_ns"]) & (due < steady["end_ns"])).any())
        if inside.collect(engine="streaming").item():
            return
    low, high = meta["start_ns"], meta["end_ns"] + 1
    meta["intervals"] = [{"name": "steady", "start_ns": low, "end_ns": high, "method": "all"}]
    meta["alerts"].append("no request lies in the part that the file says was measured; all count")
