"""Which part of a level counts, and whether as many requests were in flight as were asked for.

A level that was stopped by count or time is cut into warm-up, steady and drain by due time:

- Warm-up, closed loop: until all slots run requests of this level, plus one residence time (the 99th percentile of the
  service time), so that every slot has been refilled under the level's own load. Open loop: one residence time.
- Drain: the last residence time before the level closed. Requests due in it finished under a load
  that was already falling. Where an end was asked for while requests waited for a connection, the drain begins one
  residence time before the first of those that were never sent: of what was due later only the luckier ones have ended.

With passes, the sizing calculator's way, every request counts. So it does in a ramp, of which no steady state is
claimed, up to the first request that was cut off unsent. All rules use due times only, so which requests count does not
depend on how long they took. The window of a sampled level begins and ends with a whole second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.analysis.delivery.intended import is_ramp, think_s
from gpusize.analysis.metrics import NS_PER_S, metric
from gpusize.analysis.stop_cause import first_cut
from gpusize.records.schema import quantiles

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["Little", "Windows", "filled_ns", "filled_of", "intervals", "little_of", "littles_law"]

RESIDENCE_QUANTILE: Final = 0.99
MIN_REQUESTS: Final = 20
"""Fewer requests than this, or than one per slot, are no steady window."""
MIN_ROUNDS: Final = 3
"""Requests per slot below which Little's law is not checked: the edges of the window would decide."""
LITTLE_TOLERANCE: Final = 0.05
REACHED: Final = 0.75
"""With requests for fewer of the slots a level never was what was asked for; in a short one some begin late."""
FULL_SHARE: Final = 0.95
"""All slots count as running from this share on: between two requests a slot is empty for a moment."""
_CUT: Final = "the first request that was never sent, as the run was ended"


class Windows(NamedTuple):
    """Intervals as in docs/reference/run-folder.md, and texts for the level's alerts."""

    intervals: list[dict[str, Any]]
    alerts: list[str]


class Little(NamedTuple):
    """Little's law for one level.

    Attributes:
        status: ``ok``, ``flagged`` or ``not checkable``.
        in_flight: requests in flight on average, X times mean of end - sent; None when not checkable.
        ratio: ``in_flight`` (plus those that think) over the concurrency asked for.
        reason: why it is flagged or cannot be checked, else an empty text.
    """

    status: str
    in_flight: float | None
    ratio: float | None
    reason: str


class _Span(NamedTuple):
    """A level's times. From ``cut`` on requests were never sent as an end was asked for; else it is ``end``."""

    start: int
    close: int
    end: int
    rows: int
    cut: int


def intervals(
    meta: Mapping[str, Any],
    records: pl.LazyFrame,
    warmup_s: float | None = None,
    *,
    seconds: pl.LazyFrame | None = None,
) -> Windows:
    """Cut a level into warm-up, steady and drain.

    Args:
        meta: its ``level.json``: ``setting``, ``state``, and where known ``start_ns``, ``close_ns`` and ``end_ns``.
        records: the records of the level visit.
        warmup_s: warm-up the user asked for, in seconds from the start; replaces the rule. With passes there is no
            warm-up without it.
        seconds: of a sampled level, as ``gpusize.records.per_second.scan_seconds``.

    Returns:
        Half-open intervals by ``due_ns``, in order, without gap, the steady one always among them; and alerts where
        the level was too short for the rule.
    """
    span = _span(meta, records)
    asked = None if warmup_s is None else span.start + int(warmup_s * NS_PER_S)
    setting = meta["setting"]
    if span.rows == 0 or setting.get("passes") or is_ramp(setting) or meta.get("state") == "interrupted":
        ramp = "a ramp: all count, no steady state is assumed" if is_ramp(setting) else "all"
        return _whole(span, asked, records, "passes" if setting.get("passes") else ramp)
    residence_ns = _residence_ns(records)
    sampled = int(meta.get("sampled") or 1)
    if seconds is not None and sampled > 1:
        fill_ns = _fill_by_seconds(seconds, setting.get("concurrency"), span.start)
    else:
        fill_ns = filled_ns(records, setting.get("concurrency"), span.start)
    warm = fill_ns + residence_ns if asked is None else asked
    slots = setting.get("concurrency")
    rule = f"{residence_ns / NS_PER_S:.6g} s residence (p99)"
    how = f"{slots} slots filled after {(fill_ns - span.start) / NS_PER_S:.6g} s + {rule}" if slots else rule
    if asked is not None:
        how = f"asked for: {warmup_s:g} s"
    drain = min(span.close, span.cut) - residence_ns
    if sampled > 1:
        warm, drain = _whole_seconds(span.start, warm, drain)
    need = max(MIN_REQUESTS, int(slots or 0))
    counts = [sampled * n for n in _due_counts(records, [(warm, drain), (warm, span.cut), (span.start, span.cut)])]
    if counts[0] >= need:
        before = "the close" if span.cut >= span.close else _CUT
        return Windows(_cut(span, warm, drain, how, f"last {rule} before {before}"), [])
    if counts[1] >= need or (asked is not None and counts[1] > 0):
        alert = f"too short to leave out the drain: {counts[0]} requests were due between warm-up and drain"
        return Windows(_cut(span, warm, span.cut, how, f"from {_CUT}"), [alert])
    alert = f"too short for a steady window: {counts[1]} requests were due after the warm-up; all {counts[2]} count"
    return Windows(_cut(span, span.start, span.cut, "", f"from {_CUT}", "all, too short for a warm-up"), [alert])


def little_of(visit: LevelData) -> Little:
    """Little's law for one visit over its steady window, worked out once."""

    def found() -> Little:
        return littles_law(visit.meta, visit.requests(), visit.window(), sampled=visit.sampled)

    return visit.kept.once("little", found)


def filled_of(visit: LevelData, slots: int, start_ns: int) -> int:
    """``filled_ns`` of one visit, worked out once."""
    return visit.kept.once(("filled", slots, start_ns), lambda: filled_ns(visit.requests(), slots, start_ns))


def littles_law(meta: Mapping[str, Any], records: pl.LazyFrame, window: tuple[int, int], *, sampled: int = 1) -> Little:
    """Compare X times mean(end - sent) with the concurrency that was asked for.

    The window is narrowed to where all N slots must be busy: from the moment they run this level's requests to the last
    request sent. A request counts with the part of (end - sent) that lies in the window; the sum of these over the
    window's length is X times the mean without the error of cutting requests at the edges. The mean pause is
    added after each answer, so that N is comparable; where pauses are drawn, their chance is allowed for.

    Args:
        meta: ``level.json``; uses ``setting`` and ``start_ns``.
        records: the records of the level visit.
        window: (start_ns, end_ns) of the steady interval.
        sampled: n where 1 in n requests has a row: each then stands for n, and the window is not narrowed at its start.
    """
    import polars as pl

    setting = meta["setting"]
    slots = setting.get("concurrency")
    think = think_s(setting)
    if think is None or not slots or is_ramp(setting):
        return Little("not checkable", None, None, _unchecked(setting))
    sent, end = pl.col("sent_ns"), pl.col("end_ns")
    last, rows = records.select(sent.max().alias("last"), sent.count().alias("rows")).collect(engine="streaming").row(0)
    if last is None:
        return Little("not checkable", None, None, "no request was sent")
    if sampled * rows < REACHED * slots and meta.get("state", "done") == "done":
        most = sampled * rows
        return Little("flagged", float(most), most / slots, f"{most} requests cannot be {slots} in flight")
    # What was cut off at the end was in flight until then; of a failure in another tool's file the end may be missing.
    lost = sent.is_not_null() & end.is_null() & ~pl.col("outcome").is_in(["ok", "cancelled"])
    failures = int(records.select(lost.sum()).collect(engine="streaming").item())
    if failures:
        return Little("not checkable", None, None, f"{failures} requests failed at a time that is not known")
    full_ns = window[0] if sampled > 1 else filled_ns(records, slots, int(meta.get("start_ns") or window[0]))
    start_ns = max(window[0], full_ns)
    end_ns = min(window[1], int(last))
    inside = pl.min_horizontal(end.fill_null(end_ns), pl.lit(end_ns)) - pl.max_horizontal(sent, pl.lit(start_ns))
    pause_ns = round(think[0] * NS_PER_S)
    # Whose end is not known did not pause; the least of nothing and a number would be the number.
    paused = pl.when(end.is_not_null()).then(
        pl.min_horizontal(end + pause_ns, pl.lit(end_ns)) - pl.max_horizontal(end, pl.lit(start_ns))
    )
    busy_ns, paused_ns, begun = (
        sampled * int(value or 0)
        for value in records.filter(sent.is_not_null())
        .select(
            inside.clip(lower_bound=0).sum(),
            paused.clip(lower_bound=0).sum().alias("paused"),
            ((sent >= start_ns) & (sent < end_ns)).sum().alias("begun"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    if end_ns <= start_ns or begun < MIN_ROUNDS * slots:
        reason = f"{begun} requests while all {slots} slots were busy, {MIN_ROUNDS * slots} are needed"
        return Little("not checkable", None, None, reason)
    length_ns = end_ns - start_ns
    in_flight = busy_ns / length_ns
    thinking = paused_ns / length_ns
    ratio = (in_flight + thinking) / slots
    # Random pauses add up to something else than so many times their mean, within three standard deviations.
    chance = 3 * math.sqrt(begun) * think[1] * NS_PER_S / length_ns / slots
    if abs(ratio - 1) <= max(LITTLE_TOLERANCE, chance):
        return Little("ok", in_flight, ratio, "")
    users = f" and {thinking:.4g} users thought" if thinking else ""
    found = f"{in_flight:.4g} requests were in flight{users}, {slots} were asked for"
    return Little("flagged", in_flight, ratio, found)


def _unchecked(setting: Mapping[str, Any]) -> str:
    if is_ramp(setting):
        return "the number in flight changes while the level runs"
    if setting.get("concurrency"):
        return "the rows say how long users think"
    return "an open loop asks for a rate, not for a number in flight"


def _span(meta: Mapping[str, Any], records: pl.LazyFrame) -> _Span:
    """Start, close and end of the level; from the records where ``level.json`` does not say (after a crash)."""
    import polars as pl

    first, last, end, rows = (
        records.select(
            pl.col("due_ns").min().alias("first"),
            pl.col("due_ns").max().alias("last"),
            pl.col("end_ns").max().alias("end"),
            pl.len().alias("rows"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    start = int(_first(meta.get("start_ns"), first, 0))
    after_last = start if last is None else int(last) + 1
    close = max(int(_first(meta.get("close_ns"), after_last)), start)
    stop = max(int(_first(meta.get("end_ns"), end, close)), after_last, close)
    # A slot's first request can be due at the very start; keep it inside, whatever the metadata rounds to.
    start = start if first is None else min(start, int(first))
    cut = first_cut(meta, records, start)
    return _Span(start, close, stop, int(rows), stop if cut is None or cut <= start else min(cut, stop))


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _whole(span: _Span, asked: int | None, records: pl.LazyFrame, method: str) -> Windows:
    if asked is None or asked <= span.start:
        return Windows(_cut(span, span.start, span.cut, "", f"from {_CUT}", method), [])
    if span.rows == 0 or _due_counts(records, [(asked, span.cut)])[0] == 0:
        alert = "the warm-up that was asked for leaves no request; all count"
        return Windows(_cut(span, span.start, span.cut, "", f"from {_CUT}", method), [alert])
    how = f"asked for: {(asked - span.start) / NS_PER_S:g} s"
    return Windows(_cut(span, asked, span.cut, how, f"from {_CUT}", f"{method}, after the warm-up"), [])


def _cut(
    span: _Span, warm: int, drain: int, warm_how: str, drain_how: str, steady_how: str = "between warm-up and drain"
) -> list[dict[str, Any]]:
    cut: list[dict[str, Any]] = []
    if warm > span.start:
        cut.append({"name": "warmup", "start_ns": span.start, "end_ns": warm, "method": warm_how})
    cut.append({"name": "steady", "start_ns": warm, "end_ns": drain, "method": steady_how})
    if drain < span.end:
        cut.append({"name": "drain", "start_ns": drain, "end_ns": span.end, "method": drain_how})
    return cut


def _residence_ns(records: pl.LazyFrame) -> int:
    """99th percentile of the service time of requests that ended ok, else of all; 0 when nothing was sent."""
    import polars as pl

    service = metric("service").raw()
    ok_ns = quantiles(records.filter(pl.col("outcome") == "ok"), service, [RESIDENCE_QUANTILE])[0]
    any_ns = ok_ns if ok_ns is not None else quantiles(records, service, [RESIDENCE_QUANTILE])[0]
    return 0 if any_ns is None else round(any_ns)


def filled_ns(records: pl.LazyFrame, slots: int | None, start_ns: int) -> int:
    """When the level's own requests first occupied (nearly) all slots; ``start_ns`` for an open loop.

    Slots that the level before still holds are not ours yet, and a fast slot can send twice before a slow one sends at
    all, so the requests in flight are counted. When they never reach the number, the time of the N-th request sent.
    """
    import numpy as np
    import polars as pl

    if not slots:
        return start_ns
    head = (
        records.select("sent_ns", "end_ns")
        .filter(pl.col("sent_ns").is_not_null())
        .bottom_k(20 * slots + 1000, by="sent_ns")
        .collect(engine="streaming")
        .sort("sent_ns")
    )
    if head.is_empty():
        return start_ns
    sent = head["sent_ns"].to_numpy()
    ended = np.sort(head["end_ns"].drop_nulls().to_numpy())
    in_flight = np.arange(1, len(sent) + 1) - np.searchsorted(ended, sent, side="right")
    full = np.flatnonzero(in_flight >= np.ceil(FULL_SHARE * slots))
    at = full[0] if full.size else min(slots, len(sent)) - 1
    return max(start_ns, int(sent[at]))


def _fill_by_seconds(seconds: pl.LazyFrame, slots: int | None, start_ns: int) -> int:
    """As ``filled_ns``, by the first second at whose end (nearly) all slots were busy; the first one where none was."""
    import polars as pl

    if not slots:
        return start_ns
    rows = seconds.group_by("second").agg(pl.col("sent", "done").sum()).sort("second").collect()
    full = rows.filter(pl.col("sent").cum_sum() - pl.col("done").cum_sum() >= FULL_SHARE * slots)
    return start_ns + round(((full["second"].item(0) + 1) if full.height else 1) * NS_PER_S)


def _whole_seconds(start_ns: int, warm_ns: int, drain_ns: int) -> tuple[int, int]:
    """The window from the next whole second after the warm-up to the last one before the drain."""
    second = round(NS_PER_S)
    return start_ns + -(-(warm_ns - start_ns) // second) * second, start_ns + (drain_ns - start_ns) // second * second


def _due_counts(records: pl.LazyFrame, windows: list[tuple[int, int]]) -> list[int]:
    import polars as pl

    due = pl.col("due_ns")
    inside = [((due >= low) & (due < high)).sum().alias(str(k)) for k, (low, high) in enumerate(windows)]
    return [int(n) for n in records.select(inside).collect(engine="streaming").row(0)]
