"""Facts about the machine that generates the load."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import TypedDict

__all__ = ["HostFacts", "cpu_model", "host_facts"]


class HostFacts(TypedDict):
    """One host, as ``run.json`` keeps it; ``cores`` are those that this process may use."""

    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    boot_id: str | None


def host_facts() -> HostFacts:
    """Facts about this machine; what the system does not report it is left empty."""
    return {
        "hostname": socket.gethostname(),
        "cpu": cpu_model(_read_text("/proc/cpuinfo")) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "boot_id": _read_text("/proc/sys/kernel/random/boot_id").strip() or None,
    }


def cpu_model(cpuinfo: str) -> str:
    """The name of the CPU out of the text of ``/proc/cpuinfo``; empty where it has none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "cpu model"):
            return value.strip()
    return ""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
