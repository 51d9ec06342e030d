"""Whether a level can be believed: was the load delivered, and was it the generator that was slow?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.metrics import NS_PER_S, metric
from gpusize.remarks import remarks
from gpusize.windows import Little, littles_law

if TYPE_CHECKING:
    from gpusize.levels import LevelData

__all__ = ["CPU_LIMIT", "LATE_FLOOR_S", "LATE_SHARE", "Checks", "check"]

CPU_LIMIT: Final = 0.8
"""Share of its cores from which the generator itself queues; a thread at 80 % already makes work wait for itself."""
CPU_LEAST_S: Final = 0.05
"""A level that is over sooner says nothing of the generator's CPU: its set-up and last part are most of it."""
LATE_FLOOR_S: Final = 1e-3
"""Lateness below this is the noise of timers and of the scheduler."""
LATE_SHARE: Final = 0.01
"""Lateness below this share of the median runtime cannot move a percentile that anyone reads."""


class Checks(NamedTuple):
    """Findings about one level.

    Attributes:
        little: Little's law.
        cpu: CPU of the generator as a share of its workers' cores; None when unknown.
        pacer_late_p99_s: 99th percentile of fired - due, seconds.
        late_budget_s: what of it is tolerated.
        flags: ``little``, ``generator-limited``, ``late``, ``connection-limited``, ``write-error`` and states other
            than ``done``.
        alerts: one text per finding.
        remarks: what else a reader of the figures should know; no doubt about the load.
    """

    little: Little
    cpu: float | None
    pacer_late_p99_s: float | None
    late_budget_s: float
    flags: list[str]
    alerts: list[str]
    remarks: list[str]


def check(level: LevelData) -> Checks:
    """Judge one visit of a level."""
    if level.imported:
        little = Little("not checkable", None, None, "imported: there are no records")
        return Checks(little, None, None, LATE_FLOOR_S, _state_flags(level), [], [])
    window = level.window()
    little = littles_law(level.meta, level.records, window)
    cpu = generator_cpu(level)
    steady = level.steady()
    median_s = metric("runtime").quantiles(steady, [0.5])[0]
    budget_s = max(LATE_FLOOR_S, LATE_SHARE * (median_s or 0.0))
    late_s = metric("pacer_late").quantiles(steady, [0.99])[0]
    waited_s = metric("no_connection").quantiles(steady, [0.99])[0]
    flags, alerts = _state_flags(level), []
    if little.status == "flagged":
        flags.append("little")
        alerts.append(f"Little's law: {little.reason}")
    if cpu is not None and cpu > CPU_LIMIT:
        flags.append("generator-limited")
        alerts.append(f"the generator used {cpu:.0%} of its cores, more than {CPU_LIMIT:.0%}: give it more workers")
    if late_s is not None and late_s > budget_s:
        flags.append("late")
        alerts.append(f"the generator was late: p99 {late_s:.3g} s, {budget_s:.3g} s are tolerated")
    if waited_s is not None and waited_s > budget_s:
        flags.append("connection-limited")
        alerts.append(f"requests waited for a free connection: p99 {waited_s:.3g} s, {budget_s:.3g} s are tolerated")
    if level.meta.get("write_error"):
        flags.append("write-error")
        alerts.append(f"records were lost: {level.meta['write_error']}")
    return Checks(little, cpu, late_s, budget_s, flags, alerts, remarks(level))


def generator_cpu(level: LevelData) -> float | None:
    """CPU time of the generator over elapsed time and workers; None for a very short level and where nobody says."""
    cpu_ns, start, end = (level.meta.get(key) for key in ("cpu_ns", "start_ns", "end_ns"))
    workers = level.meta.get("workers") or 1
    if cpu_ns is None or start is None or end is None or end - start < CPU_LEAST_S * NS_PER_S:
        return None
    return float((cpu_ns / NS_PER_S) / ((end - start) / NS_PER_S * workers))


def _state_flags(level: LevelData) -> list[str]:
    return [] if level.state == "done" else [level.state]
