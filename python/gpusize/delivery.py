"""Was a level's load delivered? The sent times against the process that was asked for, by effect sizes.

An open loop is judged by how many requests were sent of those scheduled, how late they were beside the gaps between
them, whether neighbouring gaps know of each other, and whether counts vary as those of the process do; a trace by
whether each request was sent, in order and in time; a closed loop by Little's law and its think time. Bounds and their
sources are in docs/reference/delivery.md. Of sampled levels, what their seconds and histograms tell is judged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpusize.asked import Asked, asked_of
from gpusize.closed_delivery import closed_checks
from gpusize.detect.arrivals import gap_autocorrelation, index_of_dispersion
from gpusize.sent import Sent, sent_of
from gpusize.textio import shown

if TYPE_CHECKING:
    from gpusize.levels import LevelData

__all__ = ["Delivery", "DeliveryCheck", "counts_of", "verdict"]

COUNT_SHARE: Final = 0.01
"""Share of the schedule that may stay unsent."""
LATE_FLOOR_S: Final = 1e-3
"""Lateness below this is the noise of timers and of the scheduler, whatever the rate."""
ORDER_SHARE: Final = 0.01
"""Share of the requests of a trace that may be sent after one that was due later."""

Status = Literal["ok", "failed", "not judged"]


class DeliveryCheck(NamedTuple):
    """One thing that was held against what was asked for.

    Attributes:
        name: ``count``, ``lateness``, ``autocorrelation``, ``dispersion``, ``order``, ``little`` or ``think``; with
            several streams followed by the stream's name in brackets.
        value: what was found; lateness in seconds, count as a share of the schedule.
        bound: what it may be; of a band the end that is nearer.
        status: ``ok``, ``failed`` or ``not judged``.
        text: in words; of a failed check the reason, with what to do.
    """

    name: str
    value: float | None
    bound: float | None
    status: Status
    text: str


class Delivery(NamedTuple):
    """The verdict.

    Attributes:
        delivered: whether this load was delivered; None where nothing could be judged.
        reasons: why it was not.
        checks: all that was held against the request.
    """

    delivered: bool | None
    reasons: list[str]
    checks: list[DeliveryCheck]

    @property
    def text(self) -> str:
        """The verdict in one sentence."""
        if self.delivered is None:
            return "not judged" + (f": {self.checks[0].text}" if self.checks else "")
        if self.delivered:
            return "this load was delivered"
        return f"it was not, because {'; '.join(self.reasons)}"


class Counts(NamedTuple):
    """Where the requests of a level visit went: offered = sent + shed + unsent, always."""

    offered: int
    sent: int
    shed: int
    unsent: int


def counts_of(level: LevelData) -> Counts:
    """What became of every request of a single visit that was due.

    ``unsent`` are those that were neither sent nor shed: no connection could be opened, or an end was asked for while
    they waited.
    """
    meta, outcomes = level.meta, level.meta.get("outcomes") or {}
    if meta.get("due") is not None and meta.get("sent") is not None:
        offered, sent = int(meta["due"]), int(meta["sent"])
    else:
        import polars as pl

        counted = level.records.select(pl.len().alias("due"), pl.col("sent_ns").count().alias("sent"))
        offered, sent = (int(n) for n in counted.collect(engine="streaming").row(0))
    shed = int(outcomes.get("shed", 0))
    return Counts(offered, sent, shed, max(0, offered - sent - shed))


def verdict(level: LevelData) -> Delivery:
    """Judge one visit of a level, over all of it: warm-up and drain were asked for as well.

    Args:
        level: a single visit; of pooled ones the first is judged.
    """
    if level.imported:
        return Delivery(None, [], [DeliveryCheck("count", None, None, "not judged", "imported: there are no records")])
    visit = level.visits()[0]
    if visit.setting.get("kind") == "closed":
        counts = counts_of(visit)
        checks = [DeliveryCheck(*each) for each in closed_checks(visit, counts.offered, counts.sent)]
    else:
        checks = _open_checks(visit)
    reasons = [each.text for each in checks if each.status == "failed"]
    judged = any(each.status != "not judged" for each in checks)
    return Delivery(not reasons if judged else None, reasons, checks)


def _open_checks(level: LevelData) -> list[DeliveryCheck]:
    counts = counts_of(level)
    if counts.offered == 0:
        return [DeliveryCheck("count", None, None, "not judged", "nothing was due")]
    sent = sent_of(level)
    checks = [_count(level, counts, sent)]
    streams = asked_of(level.setting)
    for asked in streams:
        several = f" ({shown(asked.name, 40)})" if len(streams) > 1 else ""
        found = _stream_checks(sent.of(asked.stream if several else None), asked)
        checks += [each._replace(name=each.name + several) for each in found]
    return checks


def _count(level: LevelData, counts: Counts, sent: Sent) -> DeliveryCheck:
    """Sent against scheduled; a level that was stopped early against what had become due.

    A schedule of sessions says how many begin; how many turns they have is for the answers to say.
    """
    expected, went, what = level.setting.get("expected"), counts.sent, "requests were sent"
    whole = level.meta.get("stop_reason") in (None, "count", "duration")
    if expected and whole and level.setting.get("unit") == "session":
        whole = sent.sampled == 1
        went, what = (sent.count, "sessions began") if whole else (went, what)
    wanted = int(expected) if expected and whole else counts.offered
    exact = level.setting.get("process") in ("trace", "plan")
    share, bound = went / wanted, 1.0 if exact else 1 - COUNT_SHARE
    text = f"{went:,} of {wanted:,} {what}"
    if bound <= share <= 2 - bound:
        return DeliveryCheck("count", share, bound, "ok", text)
    why = []
    if counts.shed:
        why.append(f"{counts.shed:,} were shed: the target did not keep up; offer less or give it more")
    if counts.unsent:
        ended = level.meta.get("stop_reason") not in (None, "count", "duration")
        cause = "the level was ended while they waited" if ended else "no connection was to be had; see its errors"
        why.append(f"{counts.unsent:,} were never sent: {cause}")
    if wanted != counts.offered and went == counts.sent:
        why.append(f"{counts.offered:,} became due where the schedule has {wanted:,}")
    return DeliveryCheck("count", share, bound, "failed", ": ".join([text, "; ".join(why)] if why else [text]))


def _stream_checks(sent: Sent, asked: Asked) -> list[DeliveryCheck]:
    late, allowed = _lateness(sent, asked)
    checks = [late]
    if asked.process in ("trace", "plan", "mixed"):
        return [*checks, _order(sent)]
    if not asked.renewal:
        why = "the setting does not say how the rate changes over time"
        return [*checks, *(DeliveryCheck(each, None, None, "not judged", why) for each in _SHAPE)]
    if sent.sampled > 1:
        return [*checks, *_by_seconds(sent, asked, allowed)]
    return [*checks, *_shape(sent, asked)]


_SHAPE: Final = ("autocorrelation", "dispersion")


def _lateness(sent: Sent, asked: Asked) -> tuple[DeliveryCheck, float]:
    """The 99th percentile of sent - due against the mean gap, and what of it is allowed, in seconds."""
    import numpy as np

    late_s = sent.late_p99_s
    if late_s is None:
        return DeliveryCheck("lateness", None, None, "not judged", "nothing was sent"), LATE_FLOOR_S
    gap_s = sent.length_s / max(sent.count, 1)
    bound_s = max(LATE_FLOOR_S, gap_s)
    # While the rate changes each request is held against the gap of its own moment.
    ratio = late_s / bound_s
    if asked.renewal and len(asked.phases) + (asked.phases[0].start != asked.phases[0].end) > 1 and sent.due_s.size:
        own_s = np.maximum(LATE_FLOOR_S, 1 / np.maximum(asked.rate(sent.due_s), 1e-9))
        ratio = float(np.quantile(sent.late_s / own_s, 0.99))
        bound_s = late_s / ratio if ratio > 0 else bound_s
    if ratio <= 1:
        text = f"p99 of sent - due {late_s:.3g} s, {bound_s:.3g} s are allowed"
        return DeliveryCheck("lateness", late_s, bound_s, "ok", text), bound_s
    return DeliveryCheck("lateness", late_s, bound_s, "failed", _why_late(sent, late_s, bound_s)), bound_s


def _why_late(sent: Sent, late_s: float, bound_s: float) -> str:
    """Whose lateness it was: requests that waited for a connection, or the generator's own."""
    pacer_s, waited_s = sent.pacer_p99_s or 0.0, sent.waited_p99_s or 0.0
    allowed = f"{bound_s:.3g} s are allowed"
    if waited_s >= pacer_s:
        what = f"requests waited for a free connection: p99 {waited_s:.3g} s ({allowed})"
        return f"{what}; give more --connections or --overload grow, or offer less: the target may be slower than that"
    what = f"the generator itself was late: p99 {pacer_s:.3g} s of {late_s:.3g} s ({allowed})"
    return f"{what}; give it --workers and idle cores, or ask for less"


def _order(sent: Sent) -> DeliveryCheck:
    """Whether requests of a trace went in the order in which they were due."""
    import numpy as np

    if sent.sampled > 1 or sent.sent_s.size < 2:
        return DeliveryCheck("order", None, None, "not judged", "not every row was kept, or there is but one")
    by_due = sent.sent_s[np.argsort(sent.due_s, kind="stable")]
    before = np.maximum.accumulate(by_due)
    share = float(np.mean(by_due < before - LATE_FLOOR_S))
    text = f"{share:.2%} of the requests were sent after one that was due later by more than {LATE_FLOOR_S * 1e3:g} ms"
    return DeliveryCheck("order", share, ORDER_SHARE, "ok" if share <= ORDER_SHARE else "failed", text)


def _shape(sent: Sent, asked: Asked) -> list[DeliveryCheck]:
    """Autocorrelation and dispersion of the sent times in operational time."""
    import numpy as np

    times = asked.operational(sent.sent_s)
    late = times - asked.operational(sent.due_s)
    times = np.sort(times)
    length = float(asked.operational(np.array([_last_due_s(sent)]))[0])
    usual = float(np.quantile(late, 0.99)) if late.size else 0.0
    variation = 0.0 if asked.process == "constant" else 1 / math.sqrt(asked.shape if asked.process == "gamma" else 1.0)
    checks = []
    if variation > 0:
        spread = float(np.std(np.clip(late, None, usual))) if late.size else 0.0
        found = gap_autocorrelation(times, spread=spread, variation=variation)
        checks.append(_autocorrelation(found.value, found.bound, found.gaps))
    dispersion = index_of_dispersion(times, length, asked.process, asked.shape, late=usual)
    if dispersion.value is None:
        why = f"{dispersion.windows} windows of {dispersion.window:.3g} requests, 30 are needed"
        return [*checks, DeliveryCheck("dispersion", None, None, "not judged", why)]
    how = f"{dispersion.windows:,} windows of {dispersion.window:.3g} requests"
    return [*checks, _dispersion(dispersion.value, dispersion.low, dispersion.high, asked, how)]


def _autocorrelation(value: float | None, bound: float | None, gaps: int) -> DeliveryCheck:
    name = "autocorrelation"
    if value is None or bound is None:
        return DeliveryCheck(name, None, None, "not judged", f"{gaps} gaps, 30 are needed")
    text = f"lag-1 autocorrelation of {gaps:,} gaps {value:+.3f}, {bound:.3f} is allowed"
    if abs(value) <= bound:
        return DeliveryCheck(name, value, bound, "ok", text)
    return DeliveryCheck(name, value, bound, "failed", f"the gaps between requests follow each other: {text}")


def _dispersion(value: float, low: float, high: float, asked: Asked, how: str) -> DeliveryCheck:
    bound = low if value < low else high
    text = f"index of dispersion {value:.3g} over {how}, {low:.3g} to {high:.3g} is right"
    if low <= value <= high:
        return DeliveryCheck("dispersion", value, bound, "ok", text)
    which = "clustered" if value > high else "too regular"
    return DeliveryCheck("dispersion", value, bound, "failed", f"arrivals are {which} for {asked.process}: {text}")


def _last_due_s(sent: Sent) -> float:
    """Until when there was something to send: a stream may end by its count, long before the level."""
    return float(sent.due_s.max()) if sent.due_s.size else 0.0


def _by_seconds(sent: Sent, asked: Asked, late_s: float) -> list[DeliveryCheck]:
    """Of a sampled level: the dispersion of the requests sent in each whole second."""
    import numpy as np

    from gpusize.detect.arrivals import LEAST_WINDOWS, SMALLEST, band

    checks: list[DeliveryCheck] = []
    if asked.process != "constant":
        checks.append(DeliveryCheck(_SHAPE[0], None, None, "not judged", f"1 in {sent.sampled} rows was kept"))
    whole = math.floor(_last_due_s(sent))
    counts = np.zeros(max(whole, 0))
    kept = sent.per_second[:whole]
    counts[: kept.size] = kept
    expected = np.diff(asked.operational(np.arange(whole + 1, dtype=float)))
    used = expected >= SMALLEST
    if used.sum() < LEAST_WINDOWS:
        why = f"{int(used.sum())} whole seconds with {SMALLEST:g} requests, {LEAST_WINDOWS} are needed"
        return [*checks, DeliveryCheck(_SHAPE[1], None, None, "not judged", why)]
    # How many were sent is judged apart; here it is how they were spread.
    expected = expected[used] * (counts[used].sum() / expected[used].sum())
    value = float(((counts[used] - expected) ** 2 / expected).sum() / (used.sum() - 1))
    low, high = band(asked.process, asked.shape, int(used.sum()), float(np.median(expected)))
    # Requests that slip over the edge of a second, by what lateness allows, vary the counts as well.
    high += 2 * float(np.median(expected)) * min(late_s, sent.late_p99_s or 0.0) ** 2
    return [*checks, _dispersion(value, low, high, asked, f"{int(used.sum())} seconds")]


def check_rows(level: LevelData) -> list[dict[str, Any]]:
    """The checks of one level as rows of a table: ``check``, ``value``, ``bound``, ``status``, ``text``."""
    found = verdict(level)
    return [
        {"check": each.name, "value": each.value, "bound": each.bound, "status": each.status, "text": each.text}
        for each in found.checks
    ]
