"""Readings of made-up workloads, whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from gpusize.containers.recommend import Execution
from gpusize.observe.usage.readings import Readings, wide_frame
from gpusize.observe.usage.source_facts import Facts

MS = 1_000_000
S = 1_000_000_000
MIB = 1 << 20


def readings(columns: Mapping[str, Any], name: str = "made", **facts: Any) -> Readings:
    """Readings from columns; the facts say that 2 CPUs and a tick of 4 ms are there unless told otherwise."""
    frame = wide_frame(pl.DataFrame(dict(columns), schema_overrides=dict.fromkeys(columns, pl.Int64)))
    return Readings(name, frame, Facts(**{"cpus": 2, "tick_ns": 4 * MS, **facts}))


def workload(
    cores: Callable[[float], float],
    duration_s: float,
    *,
    memory: Callable[[float], int] = lambda _: 64 * MIB,
    interval_s: float = 0.02,
    start_ns: int = 1000 * S,
    **facts: Any,
) -> Readings:
    """Read every ``interval_s``: CPU use is ``cores`` at a time in s, memory in use ``memory``, a tenth of it cache."""
    count = round(duration_s / interval_s)
    fine = 20
    cpu, grown = [0], 0.0
    for step in range(count):
        for part in range(fine):
            grown += cores((step + (part + 0.5) / fine) * interval_s) * interval_s / fine
        cpu.append(round(grown * S))
    times = [start_ns + round(step * interval_s * S) for step in range(count + 1)]
    held = [memory(step * interval_s) for step in range(count + 1)]
    columns = {
        "t_ns": times,
        "cpu_ns": cpu,
        "mem_bytes": held,
        "mem_peak_bytes": [max(held[: place + 1]) for place in range(len(held))],
        "mem_inactive_file_bytes": [each // 10 for each in held],
        "mem_active_file_bytes": [0] * len(held),
    }
    return readings(columns, **{"begun_ns": start_ns, "ended_ns": times[-1], "cpus": 64, **facts})


def execution(
    highest_percent: float, highest_mb: float, *, duration_s: float = 4.0, failed: str | None = None, **facts: Any
) -> Execution:
    """An execution whose highest 200 ms and whose highest memory are these; half of each otherwise."""

    def cores(t: float) -> float:
        return highest_percent / 100 * (1.0 if 1.0 <= t < 1.2 else 0.5)

    def memory(t: float) -> int:
        return round(highest_mb * 1e6 * (1.0 if 1.99 <= t <= 2.41 else 0.5))

    return Execution.of(workload(cores, duration_s, memory=memory, **facts), failed)
