"""The cores that the generator may use, and who else uses them."""

from __future__ import annotations

import os
from typing import Final

from gpusize.base.host import cpu_model
from gpusize.base.units import with_cores
from gpusize.doctor.finding import Finding, System
from gpusize.observe.machine import CpuTimes

__all__ = ["cpu_findings"]

BUSY: Final = 0.2
"""Share of the cores that others may use before they show in the lateness."""
STOLEN: Final = 0.01
_PERFORMANCE: Final = ("performance", "schedutil")


def cpu_findings(system: System, before: CpuTimes | None, after: CpuTimes | None) -> list[Finding]:
    """Cores, their governor, and how busy others kept them between two looks while this process slept."""
    return [_cores(system), _governor(system), *_others(system, before, after)]


def _cores(system: System) -> Finding:
    there, usable = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    model = cpu_model(system.text("proc/cpuinfo"))
    shown = f"{usable} of {with_cores(str(there))}" + (f", {model}" if model else "")
    todo = "give it a second core: with one, a target on this machine and the generator wait for each other"
    facts = {"cores": there, "usable_cores": usable, "model": model}
    return Finding.checked("cpu", "cores", shown, todo, facts, bad=usable < 2)


def _governor(system: System) -> Finding:
    governor = system.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    slow = bool(governor) and governor not in _PERFORMANCE
    todo = "set the governor to performance: a core that clocks up under load is slow for the first requests"
    shown = governor or "not reported, as on most virtual machines"
    return Finding.checked("cpu", "governor", shown, todo, {"governor": governor}, bad=slow)


def _others(system: System, before: CpuTimes | None, after: CpuTimes | None) -> list[Finding]:
    if before is None or after is None or after.total <= before.total:
        return []
    total = after.total - before.total
    busy = 1 - (after.idle - before.idle) / total
    stolen = (after.stolen - before.stolen) / total
    load = system.text("proc/loadavg").partition(" ")[0]
    shown = f"{busy:.0%} of the cores busy with other work, load {load or 'unknown'}"
    todo = "stop other processes here, or measure from another machine"
    facts = {"busy_share": busy, "load_1min": float(load) if load else None}
    taken = f"{stolen:.1%} taken away by the host"
    advice = "the host gives this machine's cores to others: ask for dedicated ones"
    return [
        Finding.checked("cpu", "others", shown, todo, facts, bad=busy > BUSY),
        Finding.checked("cpu", "steal", taken, advice, {"steal_share": stolen}, bad=stolen > STOLEN),
    ]
