"""A made-up machine: the files in which it tells of itself."""

from __future__ import annotations

import os
from pathlib import Path

from gpusize.doctor.finding import Finding, System

FILES = {
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "proc/self/timerslack_ns": "50000\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU 9000\n",
    "proc/loadavg": "0.25 0.10 0.05 1/200 4242\n",
    "proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n",
    "proc/self/cgroup": "0::/system.slice/run.scope\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "proc/sys/net/ipv4/tcp_tw_reuse": "2\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "sys/fs/cgroup/system.slice/cpu.max": "max 100000\n",
    "sys/fs/cgroup/system.slice/run.scope/cpu.max": "max 100000\n",
    "sys/fs/cgroup/system.slice/run.scope/cgroup.events": "populated 1\n",
    "sys/fs/cgroup/system.slice/run.scope/memory.max": "max\n",
}


def machine(folder: Path, **other: str | None) -> System:
    """The machine, with some of its files otherwise; None: it does not have that one. ``__`` stands for ``/``."""
    changed = {name.replace("__", "/"): text for name, text in other.items()}
    for name, text in {**FILES, **changed}.items():
        if text is not None:
            file = folder / name.replace("proc/self/cgroup", f"proc/{os.getpid()}/cgroup")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return System(folder)


def named(findings: list[Finding], name: str) -> Finding:
    [found] = [finding for finding in findings if finding.name == name]
    return found
