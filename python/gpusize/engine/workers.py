"""How many threads send, and on which cores, where the user leaves that open."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["chosen_workers", "is_local", "parse_cores", "peak_rate", "usable_cores"]

_CORE: Final = re.compile(r"[0-9]{1,6}")
RATE_PER_WORKER: Final = 20_000.0
"""Requests per second that one thread sends with most of its core to spare: 8 to 10 us of CPU time each."""
SLOTS_PER_WORKER: Final = 256
"""Requests in flight that one thread serves without any waiting long for its turn."""


def usable_cores(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: its affinity, cut down to the CPU quota of its control group."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota_cores(root)
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def chosen_workers(rate: float | None, in_flight: int, *, local: bool, cores: int | None = None) -> int:
    """Threads for a load: as many as it needs, at most the cores there are.

    Args:
        rate: most requests per second that are asked for; None where answers decide.
        in_flight: most requests in flight.
        local: whether the target runs on this machine and needs a core as well.
        cores: cores that may be used; None: as `usable_cores`.

    Returns:
        1 or more.
    """
    there = usable_cores() if cores is None else cores
    most = max(1, there - 1 if local else there)
    by_rate = math.ceil((rate or 0.0) / RATE_PER_WORKER)
    # At a rate the slots are a bound and mostly idle; in a closed loop all of them work.
    by_slots = 1 if rate is not None else math.ceil(in_flight / SLOTS_PER_WORKER)
    return min(max(by_rate, by_slots, 1), most)


def peak_rate(settings: Iterable[Mapping[str, Any]]) -> float | None:
    """The highest rate among levels, requests/s, from their settings as in ``level.json``; None without an open one."""
    rates = [
        float(value)
        for setting in settings
        if setting.get("kind") == "open"
        for value in (
            setting.get("rate"),
            setting.get("from_rate"),
            setting.get("to_rate"),
            (setting.get("bursts") or {}).get("rate"),
        )
        if value is not None
    ]
    return max(rates, default=None)


def is_local(host: str) -> bool:
    """Whether a host is this machine by its loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_cores(text: str) -> tuple[int, ...]:
    """Core numbers from a text such as ``0,2-4``, in the order in which they are named.

    Raises:
        UsageError: it is no such list, or names a core that this process may not use.
    """
    cores: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not _CORE.fullmatch(low) or (dash and not _CORE.fullmatch(high)):
            raise UsageError(f'"{shown(text)}" is not a list of cores', "pin", "write it as 0,2-4")
        cores += range(int(low), int(high or low) + 1)
    allowed = os.sched_getaffinity(0)
    if wrong := [core for core in cores if core not in allowed]:
        raise UsageError(f"core {wrong[0]} may not be used by this process", "pin", f"choose among {sorted(allowed)}")
    if not cores:
        raise UsageError(f'"{text}" names no core', "pin", "write it as 0,2-4")
    return tuple(dict.fromkeys(cores))


def _quota_cores(root: Path) -> float | None:
    """CPU quota of the control group that this process sees, in cores; None without one."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return None
