"""The clock that stamps requests, and the timers that wake the generator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gpusize.doctor.finding import Finding, System
from gpusize.engine.session import core
from gpusize.report.text import duration

__all__ = ["Wakes", "clock_findings", "timer_finding", "wake_up"]

READS: Final = 20_000
SLOW_READ_S: Final = 1e-6
"""A read that costs more goes through the kernel: the stamps of a request then cost more than its parsing."""
DRIFT_PPM: Final = 500.0
"""The most by which the system may bend the clock of the day (adjtimex); beyond it the clock was set."""
WAKES: Final = 300
STEP_S: Final = 0.002
LATE_S: Final = 1e-3
"""Lateness of a wake-up beyond which requests at more than 1,000/s go in bunches."""

Pair = tuple[int, int, int]
"""One reading of both clocks: (monotonic ns, wall ns, uncertainty ns)."""


class Wakes(NamedTuple):
    """Lateness of many wake-ups, in seconds."""

    p50_s: float
    p99_s: float
    most_s: float


def wake_up(count: int = WAKES, step_s: float = STEP_S) -> Wakes:
    """Sleep until so many times on a grid and see how late each wake-up comes."""
    due = time.monotonic() + step_s
    late = []
    for _ in range(count):
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        late.append(max(0.0, now - due))
        due = max(due + step_s, now)
    late.sort()
    return Wakes(late[len(late) // 2], late[len(late) * 99 // 100], late[-1])


def read_cost_s(clock: Callable[[], int], reads: int = READS) -> float:
    """Seconds for one read of a clock, Python's call included: the least of ten rounds, so that nobody else counts."""
    rounds = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(reads // 10):
            clock()
        rounds.append((time.perf_counter() - start) / (reads // 10))
    return min(rounds)


def clock_findings(system: System, before: Pair, after: Pair) -> list[Finding]:
    """The clock's source, what a read of it costs, and how the clock of the day goes beside it.

    Args:
        system: the machine.
        before: both clocks, some while ago.
        after: both clocks now.
    """
    base = "sys/devices/system/clocksource/clocksource0/"
    source = system.text(f"{base}current_clocksource") or "unknown"
    cost_s, resolution_s = read_cost_s(core().monotonic_ns), time.clock_getres(time.CLOCK_MONOTONIC)
    slow = cost_s > SLOW_READ_S
    shown = f"{source}, steps of {resolution_s * 1e9:.3g} ns, {cost_s * 1e9:.3g} ns a read"
    todo = f"choose a faster source, if {base}available_clocksource has one (tsc)"
    facts = {"source": source, "resolution_s": resolution_s, "read_s": cost_s}
    return [Finding.checked("clock", "clock", shown, todo, facts, bad=slow), _wall(before, after)]


def _wall(before: Pair, after: Pair) -> Finding:
    mono_ns, wall_ns = after[0] - before[0], after[1] - before[1]
    uncertain_ns = before[2] + after[2]
    ppm = (wall_ns - mono_ns) / mono_ns * 1e6
    # Two readings of which each may be wrong by its uncertainty.
    sure = max(0.0, abs(wall_ns - mono_ns) - uncertain_ns) / mono_ns * 1e6
    shown = f"{ppm:+.1f} ppm against the monotonic clock, read to {after[2]:,} ns"
    todo = "the time of day was set meanwhile: let NTP slew it, and compare with other hosts' times by the records only"
    facts = {"wall_drift_ppm": ppm, "pair_uncertainty_s": after[2] / 1e9, "watched_s": mono_ns / 1e9}
    return Finding.checked("clock", "time of day", shown, todo, facts, bad=sure > DRIFT_PPM)


def timer_finding(wakes: Wakes, slack_ns: int | None) -> Finding:
    """How late the kernel wakes a sleeper.

    Args:
        wakes: what was measured.
        slack_ns: by how much it may be late on purpose, to save wake-ups; None: not told.
    """
    shown = f"woken p50 {duration(wakes.p50_s)}, p99 {duration(wakes.p99_s)}, at most {duration(wakes.most_s)} late"
    todo = "let nothing else run here, or pin the generator (--pin): the p99 says what open loops will show as lateness"
    facts = {"p50_s": wakes.p50_s, "p99_s": wakes.p99_s, "max_s": wakes.most_s}
    facts |= {} if slack_ns is None else {"slack_s": slack_ns / 1e9}
    return Finding.checked("clock", "timers", shown, todo, facts, bad=wakes.p99_s > LATE_S)
