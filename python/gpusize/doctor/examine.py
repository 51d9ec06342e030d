"""Looks at everything, one thing after the other."""

from __future__ import annotations

from collections.abc import Callable

from gpusize.doctor.ceiling import ceiling_findings
from gpusize.doctor.clock import clock_findings, timer_finding, wake_up
from gpusize.doctor.cpu import cpu_findings
from gpusize.doctor.finding import Finding, System
from gpusize.doctor.limits import container_findings, limit_findings
from gpusize.doctor.software import software_findings
from gpusize.engine.limits import allow_most_files
from gpusize.engine.session import core
from gpusize.engine.workers import usable_cores
from gpusize.observe.machine import cpu_times

__all__ = ["examine"]


def examine(
    *, quick: bool = False, note: Callable[[str], None] = lambda _: None, system: System | None = None
) -> list[Finding]:
    """Everything about this machine that bears on measuring; about ten seconds.

    Args:
        quick: leave out the highest rate; then about one second.
        note: told what is looked at now.
        system: the machine's files; another one for tests.
    """
    machine = system or System()
    software = software_findings()
    if any(finding.prevents for finding in software):
        return software
    note("looking at clock, timers and limits")
    times, pair = cpu_times(machine.text("proc/stat")), core().clock_pair()
    wakes = wake_up()
    found = [
        *clock_findings(machine, pair, core().clock_pair()),
        timer_finding(wakes, machine.number("proc/self/timerslack_ns")),
        *cpu_findings(machine, times, cpu_times(machine.text("proc/stat"))),
        *limit_findings(machine),
        *container_findings(machine),
        *software,
    ]
    if not quick:
        allow_most_files()
        found += ceiling_findings(usable_cores(), note=note)
    return found
