"""Numbers of one series over a span of time: counters that start anew, gauges between readings, gaps left out.

``t`` are times in nanoseconds, int64, ascending; ``v`` the values at them, float64, of the same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GAP_S", "Covered", "Gauge", "counter_increase", "gauge_summary", "max_gap_ns", "without_resets"]

GAP_S: Final = 5.0
"""Readings further apart than this, and than three times their usual distance, have a gap between them."""


@dataclass(frozen=True, slots=True)
class Covered:
    """What a counter rose by, and during how much of the span it was watched, in seconds."""

    increase: float
    over_s: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge over a span.

    Attributes:
        mean: over time, by the trapezoid rule between readings no further apart than a gap.
        low: smallest reading in the span.
        high: largest.
        first: value at the start of the span, interpolated; or of the first reading after it.
        last: likewise at the end.
        over_s: how much of the span the mean stands for.
        readings: readings in the span.
    """

    mean: float
    low: float
    high: float
    first: float
    last: float
    over_s: float
    readings: int


def without_resets(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """A counter as if it had never started anew: where it falls, what it shows after the fall is new."""
    import numpy as np

    if v.size == 0:
        return v
    steps = np.diff(v)
    steps = np.where(steps < 0, v[1:], steps)
    return np.concatenate([[v[0]], v[0] + np.cumsum(steps)])


def max_gap_ns(t: NDArray[np.int64]) -> float:
    """The largest distance of readings that is no gap."""
    import numpy as np

    usual = float(np.median(np.diff(t))) if t.size > 1 else 0.0
    return max(GAP_S * 1e9, 3 * usual)


def counter_increase(t: NDArray[np.int64], v: NDArray[np.float64], start_ns: int, end_ns: int) -> Covered | None:
    """What a counter rose by from ``start_ns`` to ``end_ns``.

    The counter's value at either end is interpolated between the readings around it. Without a reading before the
    start the span begins with the first one, likewise at the end: ``over_s`` says how long it was then. A gap does no
    harm, as the counter goes on counting in it.

    Returns:
        None with less than two readings, or when none of the span is covered.
    """
    import numpy as np

    from_ns, to_ns = max(start_ns, int(t[0])) if t.size else start_ns, min(end_ns, int(t[-1])) if t.size else end_ns
    if t.size < 2 or to_ns <= from_ns:
        return None
    risen = without_resets(v)
    # Relative times: nanoseconds since boot do not fit the 53 bits of a float exactly after 104 days.
    low, high = np.interp([0.0, float(to_ns - from_ns)], (t - from_ns).astype(np.float64), risen)
    return Covered(float(high - low), (to_ns - from_ns) / 1e9)


def gauge_summary(t: NDArray[np.int64], v: NDArray[np.float64], start_ns: int, end_ns: int) -> Gauge | None:
    """A gauge from ``start_ns`` to ``end_ns``.

    Returns:
        None when no reading is in the span and none stand close enough around it.
    """
    import numpy as np

    inside = (t >= start_ns) & (t <= end_ns)
    relative = (t - start_ns).astype(np.float64)
    span = float(end_ns - start_ns)
    gap = max_gap_ns(t)
    distance = np.diff(relative)
    k = np.flatnonzero((relative[:-1] < span) & (relative[1:] > 0) & (distance > 0) & (distance <= gap))
    left, right = np.maximum(0.0, relative[k]), np.minimum(span, relative[k + 1])
    slope = (v[k + 1] - v[k]) / distance[k]
    middle = v[k] + slope * ((left + right) / 2 - relative[k])
    covered = float((right - left).sum())
    area = float((middle * (right - left)).sum())
    values = v[inside]
    if covered <= 0 and values.size == 0:
        return None
    edges = _edges(relative, v, span, gap)
    if values.size == 0:
        values = np.array(edges)
    mean = area / covered if covered > 0 else float(values.mean())
    return Gauge(mean, float(values.min()), float(values.max()), *edges, covered / 1e9, int(inside.sum()))


def _edges(relative: NDArray[np.float64], v: NDArray[np.float64], span: float, gap: float) -> tuple[float, float]:
    """The gauge at the start and at the end: interpolated unless a gap lies there, else the nearest reading within."""
    import numpy as np

    last = relative.size - 1
    from_start = int(np.searchsorted(relative, 0.0, "left"))
    to_end = int(np.searchsorted(relative, span, "right")) - 1
    first_value, last_value = float(v[min(from_start, last)]), float(v[max(to_end, 0)])
    if 0 < from_start <= last and relative[from_start] - relative[from_start - 1] <= gap:
        first_value = float(np.interp(0.0, relative, v))
    if 0 <= to_end < last and relative[to_end + 1] - relative[to_end] <= gap:
        last_value = float(np.interp(span, relative, v))
    return first_value, last_value
