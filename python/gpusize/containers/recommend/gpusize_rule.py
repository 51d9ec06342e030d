"""The rule of gpusize.

    base   = max(working set, hard + error) + what no reading saw, at most the kernel's own peak
    memory = max(base x 1.15, base + 100 MiB), up to 64 MiB
    cpu    = 95th percentile of CPU use over windows, x 1.15, up to 0.1 (or whole) cores; no limit

``hard`` is memory without file cache and reclaimable slab, ``error`` what the kernel's counters may be off by. What no
reading saw is how far the kernel's high-water mark lies above the highest reading: a spike between two of them, whose
kind nobody knows, so it counts in full. With a large cache the kernel's peak is far above the working set at readings
that saw all of it, and nothing is added. The margin scales where a constant one would be a small share (CPOST's 100 MB
on 4455 MB are 2 %) and does not vanish where a share would be small.

Of a process tree whose shared pages were divided among its processes (PSS), that is the base, with what no look at it
saw: a container pays for a page once.

Windows are a tenth of the run, at least 100 ms and at most 1 s, and no shorter than readings are apart: a percentile of
one window is only the mean, and an operator that takes its second of CPU time at once is slower with less. Nothing
above the CPUs of the machine it ran on is recommended, since nothing above them was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.containers.recommend.types import MIB, Execution, round_up
from gpusize.containers.recommend.vpa_rule import after_oom
from gpusize.observe.usage.usage import LIMIT_WINDOW_S, REQUEST_WINDOW_S, windowed_cores

if TYPE_CHECKING:
    from gpusize.observe.usage.usage_types import MemoryUsage

__all__ = [
    "Default",
    "MemoryBase",
    "cores_request",
    "memory_base",
    "memory_for",
    "memory_raised",
    "peak_limit",
    "request_window_s",
]

MARGIN_PERCENT: Final = 15
LEAST_MARGIN: Final = 100 * MIB
STEP: Final = 64 * MIB
PERCENTILE: Final = 95
MARGIN: Final = 1.15
CPU_STEP: Final = 0.1


@dataclass(frozen=True, slots=True)
class MemoryBase:
    """What a memory request is built on, in bytes, and which figure decided it."""

    size_bytes: int
    decided_by: str


def memory_base(memory: MemoryUsage) -> MemoryBase | None:
    """The most that has to fit; None where nothing told of memory."""
    if memory.peak_bytes is None:
        return None
    if memory.proportional_peak_bytes is not None:
        # A container pays for a page once, however many of its processes share it.
        base = min(memory.peak_bytes, memory.proportional_peak_bytes + memory.proportional_unseen_bytes)
        return MemoryBase(base, "memory with shared pages divided (PSS)")
    known = {"the working set": memory.working_set_peak_bytes}
    if memory.hard_peak_bytes is not None:
        known["memory without cache"] = memory.hard_peak_bytes + memory.error_bytes
    told = {name: value for name, value in known.items() if value is not None}
    if not told:
        return MemoryBase(memory.peak_bytes, "all memory in use, its parts not reported,")
    name = max(told, key=lambda each: told[each])
    unseen = memory.unseen_bytes
    if memory.kernel_peak_bytes is not None and memory.sampled_max_bytes is not None:
        unseen += max(0, memory.kernel_peak_bytes - memory.sampled_max_bytes)
    base = told[name] + unseen
    # A reading above the kernel's mark: that of a process tree is the largest mark of one of its processes.
    if memory.kernel_peak_bytes is not None and base >= memory.peak_bytes:
        whose = "the kernel's own peak" if memory.peak_from == "kernel" else "all memory in use"
        return MemoryBase(memory.peak_bytes, whose)
    return MemoryBase(base, f"{name} with {unseen / MIB:.1f} MiB that no reading saw" if unseen else name)


def memory_for(base_bytes: int) -> int:
    """The request for a base: 15 % and at least 100 MiB more, up to a multiple of 64 MiB."""
    wanted = max(-(-base_bytes * (100 + MARGIN_PERCENT) // 100), base_bytes + LEAST_MARGIN)
    return int(round_up(wanted, STEP))


def memory_raised(used_bytes: int) -> int:
    """The request after a container was killed at ``used_bytes``: VPA's step, up to a multiple of 64 MiB."""
    return int(round_up(after_oom(used_bytes), STEP))


def request_window_s(duration_s: float) -> float:
    """Length of the windows whose percentile the CPU request is: a tenth of the run, from 100 ms to 1 s."""
    return min(REQUEST_WINDOW_S, max(LIMIT_WINDOW_S, duration_s / 10))


def cores_request(execution: Execution, *, whole_cores: bool = False) -> float | None:
    """CPU request of one execution in cores; None where CPU time is not told."""
    import numpy as np

    usage, readings = execution.usage, execution.readings
    if usage.cpu is None:
        return None
    wanted = request_window_s(usage.duration_s)
    # Readings that are further apart tell of windows as long as that: a second would average a short run's peak away.
    apart = max(wanted, (readings.facts.interval_ns or 0) / 1e9)
    tried = (windowed_cores(readings, each) for each in (wanted, min(apart, REQUEST_WINDOW_S), REQUEST_WINDOW_S))
    rates = next(filter(None, tried), None)
    cores = float(np.quantile(rates, PERCENTILE / 100)) if rates else usage.cpu.mean_cores
    return None if cores is None else _rounded(cores * MARGIN, readings.facts.cpus, whole_cores=whole_cores)


def peak_limit(executions: Sequence[Execution], *, whole_cores: bool = False) -> float | None:
    """The CPU limit that would not have throttled: the highest 100 ms, rounded up; None where it is not resolved."""
    limits = []
    for each in executions:
        window = None if each.usage.cpu is None else each.usage.cpu.window(LIMIT_WINDOW_S)
        if window is not None:
            limits.append(_rounded(window.peak_cores, each.readings.facts.cpus, whole_cores=whole_cores))
    return max(limits, default=None)


def _rounded(cores: float, cpus: int | None, *, whole_cores: bool) -> float:
    """Up to the next step, from one step to all CPUs of the machine."""
    step = 1 if whole_cores else CPU_STEP
    up = max(float(step), round(round_up(cores, step), 1))
    return up if cpus is None else min(up, float(cpus))


class Default:
    """gpusize's rule as a policy.

    Args:
        whole_cores: round CPU up to whole cores, as Clara's ``requests`` want it.
    """

    name = "default"

    def __init__(self, *, whole_cores: bool = False) -> None:
        self._whole_cores = whole_cores

    def cpu(self, executions: Sequence[Execution]) -> tuple[float | None, tuple[str, ...]]:
        """The highest request of the executions."""
        known = [cores_request(each, whole_cores=self._whole_cores) for each in executions]
        told = [cores for cores in known if cores is not None]
        if not told:
            return None, ()
        return max(told), ("CPU: the 95th percentile of use over windows of up to 1 s, plus 15 %",)

    def memory(self, executions: Sequence[Execution]) -> tuple[int | None, tuple[str, ...]]:
        """The request for the highest base of the executions."""
        bases = [base for each in executions if (base := memory_base(each.usage.memory)) is not None]
        if not bases:
            return None, ()
        base = max(bases, key=lambda each: each.size_bytes)
        margin = "15 %" if base.size_bytes * MARGIN_PERCENT >= 100 * LEAST_MARGIN else "100 MiB"
        why = f"memory: {base.decided_by} {base.size_bytes / MIB:.1f} MiB, plus {margin}, up to a multiple of 64 MiB"
        return memory_for(base.size_bytes), (why,)

    def more(self, executions: Sequence[Execution]) -> dict[str, Any]:  # noqa: ARG002 -- all is said above
        """Nothing."""
        return {}
