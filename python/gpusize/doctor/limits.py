"""What the system lets a generator open, and what its container lets it use."""

from __future__ import annotations

import json
import math
import os
import resource
from typing import Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.units import with_cores
from gpusize.doctor.finding import Finding, System
from gpusize.engine.limits import RESERVE, TIME_WAIT_S, local_ports
from gpusize.engine.session import core
from gpusize.report.text import count, number

__all__ = ["container_findings", "limit_findings"]

MANY: Final = 10_000
"""Connections that a machine for load tests should be able to hold."""
GIB: Final = 1 << 30


def limit_findings(system: System) -> list[Finding]:
    """Open files, local ports, queues of listeners."""
    return [_files(), *_ports(system), _listeners(system)]


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = math.inf if hard == resource.RLIM_INFINITY else hard
    room = max(0.0, most - RESERVE)
    soft_text, hard_text = ("no limit" if each == resource.RLIM_INFINITY else count(each) for each in (soft, hard))
    shown = f"{soft_text}, raised to {hard_text} where needed" if soft != hard else hard_text
    few = room < MANY
    todo = f"raise the hard limit (ulimit -Hn, LimitNOFILE): {count(room)} connections fit"
    facts = {"soft": None if soft == resource.RLIM_INFINITY else soft, "hard": None if math.isinf(most) else hard}
    return Finding(
        "limits", "open files", "warn" if few else "ok", shown, todo if few else "", facts, prevents=room < 1
    )


def _ports(system: System) -> list[Finding]:
    ports = local_ports(system.root / "proc")
    if ports is None:
        return [
            Finding("limits", "local ports", "warn", "the system does not report it", "look at ip_local_port_range")
        ]
    shown = f"{ports.low} to {ports.high}: {count(ports.usable)} connections to each target per source address"
    todo = "widen net.ipv4.ip_local_port_range (1024 65535), or connect from more addresses (--source-address)"
    facts = {"low": ports.low, "high": ports.high, "connections_per_target": ports.usable, "tcp_tw_reuse": ports.reuse}
    anywhere = ports.reuse == 1
    rate = ports.usable / TIME_WAIT_S
    where = {0: "never", 1: "towards any target", 2: "towards this machine"}.get(ports.reuse, "unknown")
    said = f"used again early {where}" + ("" if anywhere else f"; else {number(rate)} new connections/s to a target")
    return [
        Finding.checked("limits", "local ports", shown, todo, facts, bad=ports.usable < MANY),
        Finding("limits", "closed ports", "ok", said, "", {"connects_per_s": None if anywhere else rate}),
    ]


def _listeners(system: System) -> Finding:
    queue = system.number("proc/sys/net/core/somaxconn")
    few = queue is not None and queue < 1024
    shown = "the system does not report it" if queue is None else f"{count(queue)} connections may wait to be accepted"
    todo = "raise net.core.somaxconn if the target runs here: a burst of connects overflows its queue"
    return Finding.checked("limits", "somaxconn", shown, todo, {"somaxconn": queue}, bad=few)


def container_findings(system: System) -> list[Finding]:
    """Which control groups there are, and the CPU and memory that they leave to this process."""
    root = str(system.root)
    try:
        mode, own = json.loads(core().cgroup_mounts(root))["mode"], json.loads(core().cgroup_of(os.getpid(), root))
    except EnvironmentLacks:
        mode, own = "none", {"limits": {}}
    limits = {name: limit["value"] for name in ("cpu_cores", "memory_bytes") if (limit := own["limits"].get(name))}
    return [
        Finding("container", "control groups", "ok", mode, "", {"mode": mode}),
        _cpu_quota(limits.get("cpu_cores")),
        _memory(system, limits.get("memory_bytes")),
    ]


def _cpu_quota(cores: float | None) -> Finding:
    todo = "lift the CPU limit of the generator's container: at the limit the kernel stops it for the rest of 100 ms"
    if cores is None:
        return Finding("container", "CPU limit", "ok", "no limit", "", {"cores": None})
    return Finding("container", "CPU limit", "warn", with_cores(f"{cores:.3g}"), todo, {"cores": cores})


def _memory(system: System, limit: float | None) -> Finding:
    told = [line.split() for line in system.text("proc/meminfo").splitlines() if line.startswith("MemAvailable:")]
    available = int(told[0][1]) * 1024 if told else None
    room = min((each for each in (limit, available) if each is not None), default=None)
    shown = "the system does not report it" if room is None else f"{room / GIB:.3g} GiB"
    shown += f", limit of the container {limit / GIB:.3g} GiB" if limit is not None else ", no limit of a container"
    todo = "give it 1 GiB or more: records are written as they come, results are made in memory"
    facts = {"limit_bytes": None if limit is None else int(limit), "available_bytes": available}
    return Finding.checked("container", "memory", shown, todo, facts, bad=room is not None and room < GIB)
