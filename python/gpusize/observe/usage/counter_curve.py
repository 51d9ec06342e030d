"""Counters as curves over time: from where they began to where they ended, cut at restarts.

Between two readings a counter is taken to grow evenly. CPU counters move with the scheduler's tick, and a reading falls
anywhere between two of them: over a window of ``w`` seconds a busy CPU is told to within ``tick / w`` cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.observe.usage.readings import Readings

__all__ = ["Curve", "Span", "curves", "increase", "moving_rate", "peak_rate", "rates", "span_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on the engine's clock, in ns."""

    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Curve:
    """One counter between two restarts.

    Attributes:
        t_ns: times, int64, strictly ascending.
        value: the counter at them, float64; it never falls.
    """

    t_ns: NDArray[np.int64]
    value: NDArray[np.float64]

    def at(self, times_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """The counter at times that count from the curve's first."""
        import numpy as np

        return np.asarray(np.interp(times_ns, self.relative, self.value), np.float64)

    @property
    def relative(self) -> NDArray[np.float64]:
        """Times from the curve's first, in ns: those since boot do not fit a float exactly after 104 days."""
        import numpy as np

        return np.asarray(self.t_ns - self.t_ns[0], np.float64)


def span_of(readings: Readings, start_ns: int | None = None, end_ns: int | None = None) -> Span:
    """What the readings cover, from the begin of what is measured to its end where these are known, cut to the given.

    Without any reading and without these times the span has no length.
    """
    facts, times = readings.facts, readings.frame["t_ns"]
    first, last = (int(times[0]), int(times[-1])) if len(times) else (None, None)
    begun = first if facts.begun_ns is None else facts.begun_ns
    ended = last if facts.ended_ns is None else facts.ended_ns
    begun = begun if begun is not None else ended or 0
    ended = ended if ended is not None else begun
    low = begun if start_ns is None else max(begun, start_ns)
    high = ended if end_ns is None else min(ended, end_ns)
    return Span(low, max(low, high))


def curves(readings: Readings, column: str) -> list[Curve]:
    """One counter as a curve for each stretch between restarts; those without two points are left out.

    The counter is 0 where what is measured began, if that is known, and at a restart. Totals that were read after the
    end close the last curve.
    """
    import numpy as np

    facts, epochs = readings.facts, readings.epochs()
    made: list[Curve] = []
    counted, last_ns = 0, facts.begun_ns
    for number, epoch in enumerate(epochs):
        t, v = epoch.array(column)
        if last_ns is not None:
            zero_ns = min(last_ns, int(t[0]) - 1) if t.size else last_ns
            t, v = np.concatenate([[zero_ns], t]), np.concatenate([[0], v])
        before = counted
        counted += int(v[-1]) if v.size else 0
        if number == len(epochs) - 1:
            total = facts.totals.get(column)
            if total is not None and t.size:
                # A parent goes on counting over restarts of what is in it.
                final = max(int(v[-1]), total - (before if facts.totals_from == "parent" else 0))
                t, v = np.concatenate([t, [max(facts.ended_ns or 0, int(t[-1]))]]), np.concatenate([v, [final]])
            if facts.ended_ns is not None:
                # Readings of what has ended show its last values.
                t = np.minimum(t, facts.ended_ns)
        last_ns = int(t[-1]) if t.size else last_ns
        kept = np.append(np.diff(t) > 0, True) if t.size else np.zeros(0, bool)
        t, v = t[kept], np.maximum.accumulate(v[kept])
        if t.size >= 2:
            curve = Curve(t.astype(np.int64), v.astype(np.float64))
            late = column == "cpu_ns" and facts.kind == "process" and facts.cpus
            made.append(_possible(curve, late) if late else curve)
    return made


def _possible(curve: Curve, cpus: int) -> Curve:
    """A tree's CPU time where it can have been used: what was told late is put back, as little as must be.

    Processes are read one after the other, and one that was born and waited for between two readings is told of by its
    parent, so that a reading may bring more than all CPUs can have given since the one before. The least curve above
    the readings that never rises faster than these is ``max over s >= t of v(s) - cpus (s - t)``. Sums stay.
    """
    import numpy as np

    most = cpus * curve.relative
    value = np.maximum.accumulate((curve.value - most)[::-1])[::-1] + most
    # Before the first reading there is nowhere to put it. Rounding must not make it fall.
    value[0] = curve.value[0]
    return Curve(curve.t_ns, np.maximum.accumulate(np.maximum(value, curve.value)))


def increase(found: list[Curve], span: Span) -> float | None:
    """What the curves grew by within ``span``; None where none of them is in it."""
    total, seen = 0.0, False
    for curve in found:
        cut = _cut(curve, span)
        if cut is not None:
            seen, total = True, total + float(cut.value[-1] - cut.value[0])
    return total if seen else None


def rates(found: list[Curve], window_s: float, span: Span) -> NDArray[np.float64]:
    """Growth per ns in windows side by side, from the start of each curve in ``span``. Shape (n,), float64.

    A rest of half a window or more at the end is told by the last whole window, a shorter one is left out. A curve that
    is shorter than a window is one window. Windows between readings that are further apart than a window tell nothing
    of their own, so a curve of such readings gives none.
    """
    import numpy as np

    made: list[NDArray[np.float64]] = []
    for curve in _resolved(found, window_s, span):
        times = curve.relative
        window_ns = min(window_s * 1e9, float(times[-1]))
        count = int(times[-1] / window_ns * (1 + 1e-12))
        starts = np.minimum(np.arange(count) * window_ns, times[-1] - window_ns)
        if times[-1] - count * window_ns >= window_ns / 2:
            starts = np.append(starts, times[-1] - window_ns)
        made.append((curve.at(starts + window_ns) - curve.at(starts)) / window_ns)
    return np.concatenate(made) if made else np.zeros(0)


def moving_rate(curve: Curve, window_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Growth per ns over windows of one length, of which each begins or ends at a point of the curve.

    Between these the growth changes evenly, so that they hold its highest and its lowest.

    Returns:
        When each window begins, in ns after the curve's first, ascending; its rate. Of shape (n,), n at least 1: a
        curve that is shorter than a window is one window.
    """
    import numpy as np

    times = curve.relative
    window_ns = min(window_s * 1e9, float(times[-1]))
    starts = np.unique(np.concatenate([times, times - window_ns]))
    starts = starts[(starts >= 0) & (starts + window_ns <= times[-1])]
    return starts, (curve.at(starts + window_ns) - curve.at(starts)) / window_ns


def peak_rate(found: list[Curve], window_s: float, span: Span) -> tuple[float, float, int] | None:
    """The highest growth per ns over any window of this length, wherever it begins.

    Returns:
        The rate; the length in s of the window that it stands for, which is shorter where a curve is; when that window
        began. None without a window.
    """
    import numpy as np

    best: tuple[float, float, int] | None = None
    for curve in _resolved(found, window_s, span):
        starts, found_rates = moving_rate(curve, window_s)
        place = int(np.argmax(found_rates))
        rate = float(found_rates[place])
        if best is None or rate > best[0]:
            over_s = min(window_s, float(curve.relative[-1]) / 1e9)
            best = rate, over_s, int(curve.t_ns[0]) + round(float(starts[place]))
    return best


def _resolved(found: list[Curve], window_s: float, span: Span) -> list[Curve]:
    import numpy as np

    cuts = [cut for cut in (_cut(curve, span) for curve in found) if cut is not None]
    # Readings come within microseconds of when they are due: a window of one interval is one that they can tell.
    return [cut for cut in cuts if float(np.median(np.diff(cut.t_ns))) <= window_s * 1e9 * 1.05]


def _cut(curve: Curve, span: Span) -> Curve | None:
    """The part of a curve within ``span``, its ends interpolated; None where it is empty."""
    import numpy as np

    low, high = max(span.start_ns, int(curve.t_ns[0])), min(span.end_ns, int(curve.t_ns[-1]))
    if high <= low:
        return None
    inside = (curve.t_ns > low) & (curve.t_ns < high)
    t = np.concatenate([[low], curve.t_ns[inside], [high]])
    return Curve(t, curve.at((t - curve.t_ns[0]).astype(np.float64)))
