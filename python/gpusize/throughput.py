"""What came out of a level while its load went on: requests and tokens answered per second.

A closed loop is in balance: what is due in the window is answered in it. At a rate that is not so, for a target that
cannot keep up answers later and later. There, answers count by when they came: in a window as long as that in which
requests were due, begun as much later as the first answer took.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gpusize.ending import WHOLE
from gpusize.metrics import NS_PER_S

if TYPE_CHECKING:
    import polars as pl

    from gpusize.levels import LevelData

__all__ = ["Throughput", "answers", "throughput"]


class Throughput(NamedTuple):
    """Rates of one level; None where there is no time to speak of.

    Attributes:
        offered: requests due per second.
        achieved: requests answered ok per second.
        tokens_out: their output tokens per second, as the server reported; None when it reported none.
        tokens_in: their input tokens likewise.
    """

    offered: float | None
    achieved: float | None
    tokens_out: float | None
    tokens_in: float | None


class _Answers(NamedTuple):
    answered: int
    tokens_out: float
    tokens_in: float
    told: bool
    length_s: float
    rows: pl.LazyFrame


def throughput(level: LevelData) -> Throughput:
    """Rates over the steady window of a level's visits."""
    visits = level.visits()
    due_s = sum(_span_s(*_due_window(visit)) for visit in visits)
    found = [_answers(visit) for visit in visits]
    length_s = sum(each.length_s for each in found)
    offered = sum(level.outcomes().values()) / due_s if due_s > 0 else None
    if length_s <= 0:
        return Throughput(offered, None, None, None)
    told = any(each.told for each in found)
    achieved, tokens_out, tokens_in = (
        sum(column) / length_s for column in zip(*(each[:3] for each in found), strict=True)
    )
    return Throughput(offered, achieved, tokens_out if told else None, tokens_in if told else None)


def answers(visit: LevelData) -> tuple[pl.LazyFrame, int, float]:
    """The answers of a single visit that make its achieved rate.

    Returns:
        Their rows, the number of all of them (of a sampled level more than have a row), and seconds in which they came.
    """
    found = _answers(visit)
    return found.rows, found.answered, found.length_s


def _due_window(visit: LevelData) -> tuple[int, int]:
    """The part of the steady window in which requests could be due: after the close there are none."""
    low, high = visit.window()
    close = visit.meta.get("close_ns")
    return low, high if close is None or visit.concurrency is not None else max(low, min(high, int(close)))


def _span_s(low: int, high: int) -> float:
    return max(0, high - low) / NS_PER_S


def _answers(visit: LevelData) -> _Answers:
    import polars as pl

    if visit.concurrency is not None:
        low, high = visit.window()
        frame = visit.ok()
    else:
        ok = visit.records.filter(pl.col("outcome") == "ok")
        low, high = _answer_window(visit, ok)
        frame = ok.filter((pl.col("end_ns") >= low) & (pl.col("end_ns") < high))
    count, tokens_out, tokens_in, told = (
        frame.select(
            pl.len(),
            pl.col("tokens_out").cast(pl.Int64).sum().alias("out"),
            pl.col("tokens_in").cast(pl.Int64).sum().alias("in"),
            pl.any_horizontal(pl.col("tokens_out", "tokens_in").is_not_null()).any().alias("told"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    found = _Answers(count, tokens_out, tokens_in, bool(told), _span_s(low, high), frame)
    return found if visit.sampled == 1 else _of_all(found, visit, low, high)


def _answer_window(visit: LevelData, ok: pl.LazyFrame) -> tuple[int, int]:
    """The part of the window in which requests were due, later by the runtime of the first answer to one of them.

    A request takes its time, however light the load is: so shifted, as many answers come as requests were due where
    the target keeps up, and as many as it can give where it does not. A level that was broken off has no answers after
    its end.
    """
    import polars as pl

    low, high = _due_window(visit)
    due, end = pl.col("due_ns"), pl.col("end_ns")
    rows = ok.filter((due >= low) & (due < high)).select(due, end).sort("end_ns").head(1).collect(engine="streaming")
    later = int(rows["end_ns"].item() - rows["due_ns"].item()) if rows.height else 0
    low, high, last = low + later, high + later, visit.meta.get("end_ns")
    if visit.meta.get("stop_reason") not in (None, *WHOLE) and last is not None:
        high = max(low, min(high, int(last)))
    return low, high


def _of_all(rows: _Answers, visit: LevelData, low: int, high: int) -> _Answers:
    """Likewise of a level of which not every request has a row: by whole seconds, with the rows' mean of tokens."""
    import polars as pl

    if visit.concurrency is not None or visit.seconds is None:
        count, length_s = visit.outcomes().get("ok", 0), rows.length_s
    else:
        start = int(visit.meta.get("start_ns") or 0)
        first, last = math.ceil((low - start) / NS_PER_S), math.floor((high - start) / NS_PER_S)
        second = pl.col("second")
        inside = visit.seconds.filter((second >= first) & (second < last)).select(pl.col("ok").sum()).collect()
        count, length_s = int(inside.item() or 0), float(max(0, last - first))
    each = count / rows.answered if rows.answered else 0.0
    return _Answers(count, rows.tokens_out * each, rows.tokens_in * each, rows.told, length_s, rows.rows)
