"""From readings to what was used: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from gpusize.base.units import with_cores
from gpusize.observe.usage.counter_curve import Span, curves, increase, peak_rate, rates, span_of
from gpusize.observe.usage.limits_hit import held_reasons, named, own_limit
from gpusize.observe.usage.memory_use import memory_usage
from gpusize.observe.usage.usage_types import CpuUsage, CpuWindow, IoUsage, Throttling, Usage

if TYPE_CHECKING:
    from gpusize.observe.usage.counter_curve import Curve
    from gpusize.observe.usage.readings import Readings

__all__ = ["LIMIT_WINDOW_S", "PERCENTILES", "REQUEST_WINDOW_S", "usage_of", "windowed_cores"]

LIMIT_WINDOW_S: Final = 0.1
"""The kernel's usual CFS period: what a CPU limit is enforced over."""
REQUEST_WINDOW_S: Final = 1.0
PERCENTILES: Final = (50, 90, 95, 99)
PRESSURE: Final = ("cpu_some", "cpu_full", "mem_some", "mem_full", "io_some", "io_full")
FULL: Final = 0.95
"""Share of a limit, or of all CPUs, from which on it may have held the use back."""
WAITED: Final = 0.1
"""Share of the time in which a task waited for a CPU from which on more of them would have been used: of a cgroup by
the clock, of a process tree of the time in which its threads could have run."""
LEAST_WAITED: Final = 0.05
"""Cores that a process tree waited for: less changes no request."""


def usage_of(
    readings: Readings,
    *,
    windows_s: Sequence[float] = (LIMIT_WINDOW_S, REQUEST_WINDOW_S),
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Usage:
    """What a source used.

    Cores over a window are growth of the CPU counter over its length, the counter interpolated at its ends (the unit
    cancels: ns of CPU time per ns). Sums come from counters, from 0 where the begin is known to the totals that were
    read after the end; so they are there also where no reading was taken.

    Args:
        readings: of the source.
        windows_s: lengths of the windows that CPU use is looked at over.
        start_ns: where to begin, on the engine's clock; by default where what was measured began.
        end_ns: where to end.
    """
    span = span_of(readings, start_ns, end_ns)
    inside = readings.frame["t_ns"].is_between(span.start_ns, span.end_ns).sum()
    memory = memory_usage(readings, span, cut=start_ns is not None)
    return Usage(
        name=readings.name,
        kind=readings.facts.kind,
        start_ns=span.start_ns,
        duration_s=span.duration_s,
        readings=int(inside),
        missed=readings.facts.missed,
        restarts=len(readings.epochs()) - 1,
        cpu=_cpu(readings, span, windows_s),
        throttling=_throttling(readings, span),
        memory=memory,
        pressure=_pressure(readings, span),
        io=_io(readings, span),
        pids_peak=(pids := _pids(readings, span)),
        notes=tuple(_notes(readings, int(inside), pids)),
    )


def windowed_cores(readings: Readings, window_s: float, span: Span | None = None) -> list[float]:
    """Cores in windows side by side; one window where all of it is shorter; empty where they are not resolved."""
    whole = span or span_of(readings)
    return [float(rate) for rate in rates(curves(readings, "cpu_ns"), window_s, whole)]


def _cpu(readings: Readings, span: Span, windows_s: Sequence[float]) -> CpuUsage | None:
    found = curves(readings, "cpu_ns")
    total_ns = increase(found, span)
    if total_ns is None:
        return None
    user, system = (increase(curves(readings, column), span) for column in ("cpu_user_ns", "cpu_system_ns"))
    split = (user or 0.0) + (system or 0.0)
    made = {length: _window(readings, found, length, span) for length in sorted(set(windows_s))}
    windows = tuple(window for window in made.values() if window is not None)
    return CpuUsage(
        total_s=total_ns / 1e9,
        mean_cores=total_ns / 1e9 / span.duration_s if span.duration_s > 0 else None,
        user_share=user / split if user is not None and system is not None and split > 0 else None,
        windows=windows,
        unresolved_s=tuple(length for length, window in made.items() if window is None),
        lower_bound=_cpu_bound(readings, span, windows),
    )


def _window(readings: Readings, found: list[Curve], window_s: float, span: Span) -> CpuWindow | None:
    import numpy as np

    peak, side_by_side = peak_rate(found, window_s, span), rates(found, window_s, span)
    if peak is None or side_by_side.size == 0:
        return None
    cores, over_s, at_ns = peak
    tick_share = None if readings.facts.tick_ns is None else readings.facts.tick_ns / (over_s * 1e9)
    values = np.quantile(side_by_side, [p / 100 for p in PERCENTILES])
    return CpuWindow(
        window_s=window_s,
        over_s=over_s,
        peak_cores=cores,
        # Each busy CPU's counter may be a tick behind at either end of the window; one alone can read as 1 + tick.
        error_cores=None if tick_share is None else max(1, ceil(cores / (1 + tick_share) - 1e-9)) * tick_share,
        peak_at_s=(at_ns - span.start_ns) / 1e9,
        percentiles={p: float(value) for p, value in zip(PERCENTILES, values, strict=True)},
        windows=side_by_side.size,
    )


def _cpu_bound(readings: Readings, span: Span, windows: tuple[CpuWindow, ...]) -> str | None:
    throttling, held = _throttling(readings, span), held_reasons(readings.facts, span, "cpu")
    if throttling is not None and throttling.throttled_periods > 0:
        own = named(own_limit(readings.facts, "cpu_cores"))
        held.insert(0, f"a CPU limit throttled it in {throttling.share:.1%} of the periods{own}")
    if held:
        return "; ".join(held)
    longest = max((window.peak_cores for window in windows[-1:]), default=0.0)
    limit = readings.facts.cpu_limit()
    if limit is not None and limit.cpu_cores is not None and longest >= FULL * limit.cpu_cores:
        return f"it used all that the CPU limit of {limit.path or '/'} allows ({with_cores(f'{limit.cpu_cores:g}')})"
    if readings.facts.cpus is not None and longest >= FULL * readings.facts.cpus:
        return f"it used all {readings.facts.cpus} CPUs"
    waited = _pressure(readings, span).get("cpu_some", 0.0)
    if waited >= WAITED:
        return f"it waited for a CPU for {waited:.0%} of the time, as this machine was busy or it has many threads"
    ready, cores = _waited_while_ready(readings, span)
    if ready >= WAITED and cores >= LEAST_WAITED:
        why = "as this machine was busy or it has more threads than CPUs"
        return f"its threads waited for a CPU for {ready:.0%} of the time in which they could have run, {why}"
    return None


def _waited_while_ready(readings: Readings, span: Span) -> tuple[float, float]:
    """Share of the time in which threads of a process tree could have run that they waited, and cores they waited for.

    Both are 0 where it is not known.
    """
    waited_ns = increase(curves(readings, "cpu_waited_ns"), span) or 0.0
    ran_ns = increase(curves(readings, "cpu_ns"), span) or 0.0
    if waited_ns <= 0 or span.duration_s <= 0:
        return 0.0, 0.0
    return waited_ns / (waited_ns + ran_ns), waited_ns / 1e9 / span.duration_s


def _throttling(readings: Readings, span: Span) -> Throttling | None:
    columns = ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_ns")
    periods, throttled, lost_ns = (increase(curves(readings, column), span) for column in columns)
    if periods is None or throttled is None:
        return None
    return Throttling(round(periods), round(throttled), (lost_ns or 0.0) / 1e9)


def _pressure(readings: Readings, span: Span) -> dict[str, float]:
    if span.duration_s <= 0:
        return {}
    grown = {name: increase(curves(readings, f"{name}_ns"), span) for name in PRESSURE}
    return {name: value / 1e9 / span.duration_s for name, value in grown.items() if value is not None}


def _io(readings: Readings, span: Span) -> IoUsage | None:
    columns = ("io_read_bytes", "io_write_bytes", "io_reads", "io_writes")
    read, written, reads, writes = (increase(curves(readings, column), span) for column in columns)
    if read is None or written is None:
        return None
    return IoUsage(
        round(read), round(written), None if reads is None else round(reads), None if writes is None else round(writes)
    )


def _pids(readings: Readings, span: Span) -> int | None:
    known = [readings.facts.totals.get("pids_peak")]
    for column in ("pids", "pids_peak"):
        t, v = readings.array(column)
        inside = v[(t >= span.start_ns) & (t <= span.end_ns)]
        known.append(int(inside.max()) if inside.size else None)
    return max((value for value in known if value is not None), default=None)


def _notes(readings: Readings, inside: int, pids: int | None) -> list[str]:
    facts, notes = readings.facts, []
    if inside < 2:
        count = "no reading was" if not inside else "one reading was"
        notes.append(f"{count} taken: sums are from counters, peaks are not resolved")
    if facts.missed:
        notes.append(f"{facts.missed} readings were missed")
    if facts.begun_ns is None:
        notes.append("it ran before the first reading: sums begin there")
    limit = facts.pids_limit()
    if limit is not None and limit.pids is not None and pids is not None and pids >= limit.pids:
        notes.append(f"it had all {limit.pids} threads that {limit.path or '/'} allows: more may have been refused")
    return notes
