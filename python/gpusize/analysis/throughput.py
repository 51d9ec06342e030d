"""What came out of a level while its load went on: requests and tokens answered per second.

Answers count by when they came, over the time in which they could: no window goes on after the load has ended, although
the requests of a short level are all kept, those of its drain included.

- Closed loop: from when all slots run this level's requests to the close. Where fewer answers came by then than there
  are slots, as with one pass, from the start to the last answer. Of few passes by how long the slots took for them
  (``gpusize.analysis.few_passes``).
- Open loop: in a window as long as that in which requests were due, begun as much later as the first answer took. A
  target that cannot keep up answers later and later: counted by due time it would look as fast as the load. Where
  requests were due for less time than half of the answers took, and the answers came further apart than they were due,
  from the first answer to the last. Of a burst, whose requests were due in a moment, from the first due time to the
  last answer: it ends in a burst, and how many answers come in a moment says nothing of how many come in a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.delivery.intended import is_ramp
from gpusize.analysis.few_passes import few_passes
from gpusize.analysis.metrics import NS_PER_S
from gpusize.analysis.stop_cause import WHOLE
from gpusize.analysis.windows import filled_of

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = [
    "KEPT_UP",
    "Responses",
    "Throughput",
    "achieved_by",
    "is_brief",
    "kept_up_in_time",
    "of_another_tool",
    "only_in_flight",
    "overrun_rate",
    "process_of",
    "rates_of",
    "request_rate",
    "requests_each",
    "responses",
    "throughput",
]

KEPT_UP: Final = 0.95
"""Share of a rate that must be answered for a target to have kept up with it; as the check for saturation has it."""

RISEN: Final = 1.5
"""Runtimes that grow by such a factor in a level show a queue that grows."""
BURST: Final = 0.1
"""Requests that are due within this share of the median runtime are due at once."""


class _Window(NamedTuple):
    """Where answers of an open loop count, ns; see ``_response_window``."""

    low: int
    high: int
    brief: bool = False
    burst: bool = False


class Throughput(NamedTuple):
    """Rates of one level; None where there is no time to speak of.

    Attributes:
        offered: requests due per second.
        achieved: requests answered ok per second.
        tokens_out: their output tokens per second, as the server reported; None where it reported them of no answer.
        tokens_in: their input tokens likewise.
    """

    offered: float | None
    achieved: float | None
    tokens_out: float | None
    tokens_in: float | None


class Responses(NamedTuple):
    """What makes the achieved rate of a visit.

    Attributes:
        rows: its responses.
        answered: the number of all of them, of a sampled level more than have a row.
        length_s: the seconds that the rate divides them by: in which they came, or that the slots took for them.
        by_due: whether the slots took so long for them, of a level of few passes.
    """

    rows: pl.LazyFrame
    answered: int
    length_s: float
    by_due: bool


@dataclass(frozen=True, slots=True)
class _Responses:
    """Answers of one visit in their window (``low`` to ``high``, ns): all of them, and those that have a row.

    They are in it by when they came, or by when their requests were due (``by_due``). Tokens are None where no answer
    reported them, as answers of embeddings have no output tokens.
    """

    answered: int
    kept: int
    tokens_out: float | None
    tokens_in: float | None
    length_s: float
    low: int
    high: int
    by_due: bool = False


def throughput(level: LevelData) -> Throughput:
    """Rates over the steady window of a level's visits."""
    visits = level.visits()
    due_s = sum(_span_s(*_due_window(visit)) for visit in visits)
    found = [_responses(visit) for visit in visits]
    length_s = sum(each.length_s for each in found)
    offered = sum(level.outcomes().values()) / due_s if due_s > 0 else None
    if length_s <= 0:
        return Throughput(offered, None, None, None)
    columns = zip(*((each.answered, each.tokens_out, each.tokens_in) for each in found), strict=True)
    answered, tokens_out, tokens_in = ([value for value in column if value is not None] for column in columns)
    return Throughput(
        *(offered, sum(answered) / length_s),
        *(sum(tokens) / length_s if tokens else None for tokens in (tokens_out, tokens_in)),
    )


def rates_of(level: LevelData) -> Throughput:
    """As ``throughput``; of an imported level what the other tool says, without what was offered."""
    if not level.imported:
        return throughput(level)
    counts = level.meta.get("counts") or {}
    told = (level.meta.get("achieved_rate"), counts.get("tokens_out_per_s"), counts.get("tokens_in_per_s"))
    return Throughput(None, *(None if each is None else float(each) for each in told))


def request_rate(level: LevelData) -> float | None:
    """Requests per second that an open loop brings; None for a closed loop.

    As many as were asked for; of conversations what became due in the steady window, as their later turns wait for
    answers: a conversation of four turns brings four requests.
    """
    if level.rate is None or not level.by_session:
        return level.rate
    return throughput(level).offered


def requests_each(level: LevelData) -> float:
    """How many requests each arrival of an open loop brings: 1, of conversations about as many as these have turns."""
    if not level.by_session:
        return 1.0
    import polars as pl

    first = (pl.col("turn").fill_null(0) == 0).sum()
    all_, begun = level.steady("turn").select(pl.len(), first.alias("begun")).collect(engine="streaming").row(0)
    return all_ / begun if begun else 1.0


def responses(visit: LevelData, *columns: str) -> Responses:
    """The responses of a single visit that make its achieved rate, with columns as ``LevelData.requests``."""
    found = _responses(visit)
    rows = _rows(visit, found.low, found.high, *columns, by_due=found.by_due)
    return Responses(rows, found.answered, found.length_s, found.by_due)


def is_brief(level: LevelData) -> bool:
    """Whether requests of an open loop were due for less time than half of them took.

    Then it cannot be told whether the target keeps up: what it would have answered had the load gone on nobody saw.
    """
    return level.concurrency is None and any(_response_window(visit).brief for visit in level.visits())


def overrun_rate(level: LevelData) -> float | None:
    """Requests answered per second of a rate that the target did not keep up with; None where it did.

    None of a burst, too: how long its answers took says nothing of how many could come each second. And None where no
    queue grew: requests that take longer than they were due for come later than that, however many can be answered.
    """
    if level.concurrency is not None or is_ramp(level.setting) or kept_up_in_time(level):
        return None
    if level.imported:
        offered, answered = level.rate, rates_of(level).achieved
    elif any(_is_burst(visit) for visit in level.visits()):
        return None
    else:
        offered, answered = throughput(level)[:2]
    if not offered or answered is None or answered >= KEPT_UP * offered:
        return None
    return answered if level.imported or any(_queue_grew(visit) for visit in level.visits()) else None


def kept_up_in_time(level: LevelData) -> bool:
    """Whether an imported level of a rate lasted no longer than its requests were due for and the longest of them took.

    Its rate is then that of a target that keeps up, however few came per second of the whole: of 200 requests in 5 s
    that take 8 s each these are 15, not 40. False where the figures do not tell.
    """
    if not level.imported or not level.rate:
        return False
    n, took_s = (level.meta.get("counts") or {}).get("n"), level.meta.get("total_runtime_s")
    if not n or not took_s:
        return False
    longest_s = level.quantile("service", 1.0)
    return longest_s is not None and float(took_s) <= int(n) / level.rate / KEPT_UP + longest_s


def of_another_tool(level: LevelData) -> bool:
    """Whether a level was made of another tool's requests: only such a level says whether their due times are known."""
    return not level.imported and all("due_known" in visit.meta for visit in level.visits())


def process_of(level: LevelData) -> str | None:
    """How the requests of an open loop came: ``constant``, ``poisson`` or another name; None where nobody says.

    Ours came as a Poisson process where nothing else was asked for. Other tools need not say.
    """
    process = level.setting.get("process")
    if process is None and not level.imported and not of_another_tool(level):
        return "poisson"
    return None if process is None else str(process)


def only_in_flight(level: LevelData) -> bool:
    """Whether what another tool's rate left without an answer is no more than is in flight where a target keeps up.

    Such a level begins with an idle target, so that fewer are answered than come while it lasts: by Little's law as
    many as its rate times how long they take, here those of its first half, before a queue can have grown much. False
    of our own levels, whose window begins behind a warm-up, and where no request tells.
    """
    import polars as pl

    if level.concurrency is not None or not of_another_tool(level):
        return False
    start, close = int(level.meta.get("start_ns") or 0), int(level.meta.get("close_ns") or 0)
    due, end, outcome = pl.col("due_ns"), pl.col("end_ns"), pl.col("outcome").cast(pl.String)
    ok = outcome == "ok"
    rows, unanswered, took_ns = (
        level.requests("outcome")
        .filter((due >= start) & (due < close))
        .select(
            pl.len().alias("rows"),
            ((ok & (end >= close)) | (outcome == "cancelled")).sum().alias("unanswered"),
            (end - due).filter(ok & (due < start + (close - start) // 2)).mean().alias("took"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    if not rows or took_ns is None or close <= start:
        return False
    expected = rows * took_ns / (close - start)
    return bool(unanswered - expected <= (1 - KEPT_UP) * rows + math.sqrt(expected))


def _queue_grew(visit: LevelData) -> bool:
    """Whether runtimes of an open loop rose from its first third to its last, or requests were shed."""
    import polars as pl

    start, close = int(visit.meta.get("start_ns") or 0), int(visit.meta.get("close_ns") or 0)
    third, due, took = (close - start) / 3, pl.col("due_ns"), pl.col("end_ns") - pl.col("due_ns")
    shed = (pl.col("outcome").cast(pl.String) == "shed").any()
    if visit.requests("outcome").select(shed).collect(engine="streaming").item():
        return True
    early, late = (took.filter(due < start + third).median(), took.filter(due >= close - third).median())
    first, last = _ok(visit).select(early.alias("early"), late.alias("late")).collect(engine="streaming").row(0)
    return first is not None and last is not None and last > RISEN * first


def _is_burst(visit: LevelData) -> bool:
    """Whether all requests were due in a moment, not only those that a window has left."""
    window, start, close = _response_window(visit), visit.meta.get("start_ns"), visit.meta.get("close_ns")
    if not window.burst or start is None or close is None:
        return window.burst
    return int(close) - int(start) < BURST * (window.high - window.low)


def achieved_by(level: LevelData, column: str) -> dict[int, float] | None:
    """The achieved rate by the value of a column of the records; None where there is no time to speak of."""
    import polars as pl

    found = [_responses(visit) for visit in level.visits()]
    length_s = sum(each.length_s for each in found)
    if length_s <= 0:
        return None
    rates: dict[int, float] = {}
    for visit, each in zip(level.visits(), found, strict=True):
        rows_ = _rows(visit, each.low, each.high, column, by_due=each.by_due)
        counted = rows_.group_by(column).agg(pl.len()).collect(engine="streaming")
        for value, rows in counted.iter_rows():
            # Of a sampled level each row stands for as many answers as all others.
            rates[value] = rates.get(value, 0.0) + rows * each.answered / each.kept / length_s
    return rates


def _due_window(visit: LevelData) -> tuple[int, int]:
    """The part of the steady window in which requests could be due: after the close there are none."""
    low, high = visit.window()
    if visit.concurrency is not None:
        return low, _busy_window(visit)[1]
    close = visit.meta.get("close_ns")
    return low, high if close is None else max(low, min(high, int(close)))


def _span_s(low: int, high: int) -> float:
    return max(0, high - low) / NS_PER_S


def _responses(visit: LevelData) -> _Responses:
    return visit.kept.once("responses", lambda: _counted(visit))


def _rows(visit: LevelData, low: int, high: int, *columns: str, by_due: bool = False) -> pl.LazyFrame:
    """The answers that came in a window, or those to requests that were due in it."""
    import polars as pl

    if by_due:
        return _ok(visit, *columns).filter(pl.col("due_ns").is_between(low, high, closed="right"))
    end = pl.col("end_ns")
    # As a level by count closes, an answer has just come.
    inside = (end > low) & (end <= high) if visit.concurrency is not None else (end >= low) & (end < high)
    return _ok(visit, *columns).filter(inside)


def _counted(visit: LevelData) -> _Responses:
    import polars as pl

    few = None
    if visit.concurrency is None:
        low, high = _response_window(visit)[:2]
    else:
        low, high = _busy_window(visit)
        few = few_passes(visit, low, high)
        low, high = (low, high) if few is None else few[:2]
    tokens = [pl.col(name).cast(pl.Int64) for name in ("tokens_out", "tokens_in")]
    sums = [pl.when(each.count() > 0).then(each.sum()).alias(name) for each, name in zip(tokens, "oi", strict=True)]
    rows = _rows(visit, low, high, by_due=few is not None)
    count, tokens_out, tokens_in = rows.select(pl.len(), *sums).collect(engine="streaming").row(0)
    length_s = _span_s(low, high) if few is None else few.took_s
    found = _Responses(count, count, tokens_out, tokens_in, length_s, low, high, by_due=few is not None)
    return found if visit.sampled == 1 else _of_all(found, visit)


def _ok(visit: LevelData, *columns: str) -> pl.LazyFrame:
    import polars as pl

    return visit.requests(*columns).filter(pl.col("outcome") == "ok")


def _busy_window(visit: LevelData) -> tuple[int, int]:
    """Of a closed loop the part of the window in which all its slots were busy, as far as answers came in it."""
    return visit.kept.once("busy", lambda: _found_busy(visit))


def _found_busy(visit: LevelData) -> tuple[int, int]:
    import polars as pl

    low, high = visit.window()
    slots, close = visit.concurrency or 1, visit.meta.get("close_ns")
    begun = low
    if not is_ramp(visit.setting) and visit.sampled == 1:
        begun = max(low, filled_of(visit, slots, int(visit.meta.get("start_ns") or low)))
    closed = high if close is None else min(high, int(close))
    end = pl.col("end_ns")
    came = _ok(visit).select(((end > begun) & (end <= closed)).sum()).collect(engine="streaming").item()
    if came * visit.sampled >= slots and closed > begun:
        return begun, closed
    last = visit.requests().select(end.max()).collect(engine="streaming").item()
    return low, high if last is None else max(low, min(high, int(last)))


def _response_window(visit: LevelData) -> _Window:
    """The part of the window in which requests were due, later by the runtime of the first answer to one of them.

    And whether it is shorter than half of the runtimes (``is_brief``): then the answers alone may say how long it is;
    and whether requests were due in a moment.

    A request takes its time, however light the load is: so shifted, as many answers come as requests were due where
    the target keeps up, and as many as it can give where it does not. A level that was broken off has no answers after
    its end.
    """
    return visit.kept.once("answered", lambda: _found_responses(visit))


def _found_responses(visit: LevelData) -> _Window:
    import polars as pl

    low, high = _due_window(visit)
    due, end = pl.col("due_ns"), pl.col("end_ns")
    took = end - due
    half, first, began, ended = (
        _ok(visit)
        .filter((due >= low) & (due < high))
        .select(
            took.quantile(0.5, interpolation="lower").alias("half"),
            took.filter(end == end.min()).first().alias("first"),
            end.min().alias("began"),
            end.max().alias("ended"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    brief = half is not None and high - low < half
    if brief and high - low < BURST * half:
        return _Window(low, int(ended) + 1, brief=True, burst=True)
    if brief and ended - began > high - low:
        # Counted from an answer on, that one is not one of those that came since.
        return _Window(int(began) + 1, int(ended) + 1, brief=True)
    later = int(first or 0)
    low, high, last = low + later, high + later, visit.meta.get("end_ns")
    if visit.meta.get("stop_reason") not in (None, *WHOLE) and last is not None:
        high = max(low, min(high, int(last)))
    return _Window(low, high, brief)


def _of_all(rows: _Responses, visit: LevelData) -> _Responses:
    """Likewise of a level of which not every request has a row: by whole seconds, with the rows' mean of tokens."""
    import polars as pl

    start, low, high = int(visit.meta.get("start_ns") or 0), rows.low, rows.high
    first, last = math.ceil((low - start) / NS_PER_S), math.floor((high - start) / NS_PER_S)
    if visit.seconds is None or last <= first:
        count, length_s = visit.sampled * rows.answered, rows.length_s
    else:
        second = pl.col("second")
        inside = visit.seconds.filter((second >= first) & (second < last)).select(pl.col("ok").sum()).collect()
        count, length_s = int(inside.item() or 0), float(last - first)
    each = count / rows.answered if rows.answered else 0.0
    tokens_out, tokens_in = (None if told is None else told * each for told in (rows.tokens_out, rows.tokens_in))
    return _Responses(count, rows.kept, tokens_out, tokens_in, length_s, low, high)
