"""Was a stream of an open loop delivered? When its requests were sent, against the process that was asked for.

Bounds and their sources are in docs/reference/delivery.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.check import DeliveryCheck
from gpusize.analysis.detect.arrivals import gap_autocorrelation, index_of_dispersion

if TYPE_CHECKING:
    from gpusize.analysis.delivery.actual import SentRequests
    from gpusize.analysis.delivery.intended import IntendedStream

__all__ = ["stream_checks"]

LATE_FLOOR_S: Final = 1e-3
"""Lateness below this is the noise of timers and of the scheduler, whatever the rate."""
ORDER_SHARE: Final = 0.01
"""Share of the requests of a trace that may be sent after one that was due later."""

_SHAPE: Final = ("autocorrelation", "dispersion")


def stream_checks(sent: SentRequests, intended: IntendedStream) -> list[DeliveryCheck]:
    """Lateness of what was sent of one stream, and what its process asks for: order, or correlation and dispersion."""
    late, allowed = _lateness(sent, intended)
    checks = [late]
    if intended.process in ("trace", "plan", "mixed"):
        return [*checks, _order(sent)]
    if not intended.renewal:
        why = "the setting does not say how the rate changes over time"
        return [*checks, *(DeliveryCheck(each, None, None, "not judged", why) for each in _SHAPE)]
    if sent.sampled > 1:
        return [*checks, *_by_seconds(sent, intended, allowed)]
    return [*checks, *_shape(sent, intended)]


def _lateness(sent: SentRequests, intended: IntendedStream) -> tuple[DeliveryCheck, float]:
    """The 99th percentile of sent - due against the mean gap, and what of it is allowed, in seconds."""
    import numpy as np

    late_s = sent.late_p99_s
    if late_s is None:
        return DeliveryCheck("lateness", None, None, "not judged", "no request was sent"), LATE_FLOOR_S
    gap_s = sent.length_s / max(sent.count, 1)
    bound_s = max(LATE_FLOOR_S, gap_s)
    # While the rate changes each request is held against the gap of its own moment.
    ratio = late_s / bound_s
    if (
        intended.renewal
        and len(intended.phases) + (intended.phases[0].start != intended.phases[0].end) > 1
        and sent.due_s.size
    ):
        own_s = np.maximum(LATE_FLOOR_S, 1 / np.maximum(intended.rate(sent.due_s), 1e-9))
        ratio = float(np.quantile(sent.late_s / own_s, 0.99))
        bound_s = late_s / ratio if ratio > 0 else bound_s
    if ratio <= 1:
        text = f"p99 of sent - due {late_s:.3g} s, {bound_s:.3g} s are allowed"
        return DeliveryCheck("lateness", late_s, bound_s, "ok", text), bound_s
    return DeliveryCheck("lateness", late_s, bound_s, "failed", _why_late(sent, late_s, bound_s)), bound_s


def _why_late(sent: SentRequests, late_s: float, bound_s: float) -> str:
    """Whose lateness it was: requests that waited for a connection, or the generator's own."""
    allowed = f"{bound_s:.3g} s are allowed"
    if sent.pacer_p99_s is None and sent.waited_p99_s is None:
        return f"requests were sent late: p99 of sent - due {late_s:.3g} s ({allowed})"
    pacer_s, waited_s = sent.pacer_p99_s or 0.0, sent.waited_p99_s or 0.0
    if waited_s >= pacer_s:
        what = f"requests waited for a free connection: p99 {waited_s:.3g} s ({allowed})"
        return f"{what}; give more --connections or --overload grow, or offer less: the target may be slower than that"
    what = f"the generator itself was late: p99 {pacer_s:.3g} s of {late_s:.3g} s ({allowed})"
    return f"{what}; give it --workers and idle cores, or ask for less"


def _order(sent: SentRequests) -> DeliveryCheck:
    """Whether requests of a trace went in the order in which they were due."""
    import numpy as np

    if sent.sampled > 1 or sent.sent_s.size < 2:
        return DeliveryCheck("order", None, None, "not judged", "not every row was kept, or there is only one")
    by_due = sent.sent_s[np.argsort(sent.due_s, kind="stable")]
    before = np.maximum.accumulate(by_due)
    share = float(np.mean(by_due < before - LATE_FLOOR_S))
    text = f"{share:.2%} of the requests were sent after one that was due later by more than {LATE_FLOOR_S * 1e3:g} ms"
    return DeliveryCheck("order", share, ORDER_SHARE, "ok" if share <= ORDER_SHARE else "failed", text)


def _shape(sent: SentRequests, intended: IntendedStream) -> list[DeliveryCheck]:
    """Autocorrelation and dispersion of the sent times in operational time."""
    import numpy as np

    times = intended.operational(sent.sent_s)
    late = times - intended.operational(sent.due_s)
    times = np.sort(times)
    length = float(intended.operational(np.array([_last_due_s(sent)]))[0])
    usual = float(np.quantile(late, 0.99)) if late.size else 0.0
    variation = (
        0.0 if intended.process == "constant" else 1 / math.sqrt(intended.shape if intended.process == "gamma" else 1.0)
    )
    checks = []
    if variation > 0:
        spread = float(np.std(np.clip(late, None, usual))) if late.size else 0.0
        found = gap_autocorrelation(times, spread=spread, variation=variation)
        checks.append(_autocorrelation(found.value, found.bound, found.gaps))
    dispersion = index_of_dispersion(times, length, intended.process, intended.shape, late=usual)
    if dispersion.value is None:
        why = f"{dispersion.windows} windows of {dispersion.window:.3g} requests, 30 are needed"
        return [*checks, DeliveryCheck("dispersion", None, None, "not judged", why)]
    how = f"{dispersion.windows:,} windows of {dispersion.window:.3g} requests"
    return [*checks, _dispersion(dispersion.value, dispersion.low, dispersion.high, intended, how)]


def _autocorrelation(value: float | None, bound: float | None, gaps: int) -> DeliveryCheck:
    name = "autocorrelation"
    if value is None or bound is None:
        return DeliveryCheck(name, None, None, "not judged", f"{gaps} gaps, 30 are needed")
    text = f"lag-1 autocorrelation of {gaps:,} gaps {value:+.3f}, {bound:.3f} is allowed"
    if abs(value) <= bound:
        return DeliveryCheck(name, value, bound, "ok", text)
    return DeliveryCheck(name, value, bound, "failed", f"the gaps between requests follow each other: {text}")


def _dispersion(value: float, low: float, high: float, intended: IntendedStream, how: str) -> DeliveryCheck:
    bound = low if value < low else high
    text = f"index of dispersion {value:.3g} over {how}, {low:.3g} to {high:.3g} is right"
    if low <= value <= high:
        return DeliveryCheck("dispersion", value, bound, "ok", text)
    which = "clustered" if value > high else "too regular"
    return DeliveryCheck("dispersion", value, bound, "failed", f"arrivals are {which} for {intended.process}: {text}")


def _last_due_s(sent: SentRequests) -> float:
    """Until when there was something to send: a stream may end by its count, long before the level."""
    return float(sent.due_s.max()) if sent.due_s.size else 0.0


def _by_seconds(sent: SentRequests, intended: IntendedStream, late_s: float) -> list[DeliveryCheck]:
    """Of a sampled level: the dispersion of the requests sent in each whole second."""
    import numpy as np

    from gpusize.analysis.detect.arrivals import LEAST_WINDOWS, SMALLEST, band

    checks: list[DeliveryCheck] = []
    if intended.process != "constant":
        checks.append(DeliveryCheck(_SHAPE[0], None, None, "not judged", f"1 in {sent.sampled} rows was kept"))
    whole = math.floor(_last_due_s(sent))
    counts = np.zeros(max(whole, 0))
    kept = sent.per_second[:whole]
    counts[: kept.size] = kept
    expected = np.diff(intended.operational(np.arange(whole + 1, dtype=float)))
    used = expected >= SMALLEST
    if used.sum() < LEAST_WINDOWS:
        why = f"{int(used.sum())} whole seconds with {SMALLEST:g} requests, {LEAST_WINDOWS} are needed"
        return [*checks, DeliveryCheck(_SHAPE[1], None, None, "not judged", why)]
    # How many were sent is judged apart; here it is how they were spread.
    expected = expected[used] * (counts[used].sum() / expected[used].sum())
    value = float(((counts[used] - expected) ** 2 / expected).sum() / (used.sum() - 1))
    low, high = band(intended.process, intended.shape, int(used.sum()), float(np.median(expected)))
    # Requests that slip over the edge of a second, by what lateness allows, vary the counts as well.
    high += 2 * float(np.median(expected)) * min(late_s, sent.late_p99_s or 0.0) ** 2
    return [*checks, _dispersion(value, low, high, intended, f"{int(used.sum())} seconds")]
