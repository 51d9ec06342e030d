"""What a source used, and what to request for it, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpusize.base.units import with_cores
from gpusize.report.containers.request_blocks import memory_text, request_text
from gpusize.report.summary.terminal import plain
from gpusize.report.text import clean, count, duration, number, percent, plain_number

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.containers.recommend.types import Recommendation
    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.usage_types import CpuUsage, MemoryUsage, Usage

__all__ = ["cores_text", "gpu_lines", "print_recommendation", "print_usage", "usage_lines"]

_PRESSURE = {
    "cpu_some": "for a CPU",
    "mem_some": "for memory",
    "io_some": "for disks",
}


def cores_text(cores: float | None) -> str:
    """Cores with their unit."""
    return with_cores(plain_number(cores))


def print_usage(usage: Usage, console: Console, gpus: Sequence[GpuUse] = ()) -> None:
    """Print what one source used: a head, a line for each kind of resource, and what weakens the figures."""
    from rich.table import Table
    from rich.text import Text

    missed = f", {usage.missed} missed" if usage.missed else ""
    head = f"{clean(usage.name, 80)}: {duration(usage.duration_s)}, {count(usage.readings)} readings{missed}"
    console.print(Text(plain(console, head), style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, text in usage_lines(usage, gpus):
        table.add_row(f"  {name}", Text(plain(console, text)))
    console.print(table)
    for note in usage.notes:
        console.print(Text(plain(console, f"! {note}"), style="yellow"))


def usage_lines(usage: Usage, gpus: Sequence[GpuUse] = ()) -> list[tuple[str, str]]:
    """Names and texts of what was used; what is not told has no line."""
    return [
        *_cpu_lines(usage.cpu),
        *_throttle_lines(usage),
        *_memory_lines(usage.memory, usage.kind),
        *_pressure_lines(usage),
        *_io_lines(usage),
        *gpu_lines(gpus),
    ]


def _cpu_lines(cpu: CpuUsage | None) -> Iterator[tuple[str, str]]:
    if cpu is None:
        yield "CPU", "not told"
        return
    mean = "" if cpu.mean_cores is None else f"{cores_text(cpu.mean_cores)} on average, "
    user = "" if cpu.user_share is None else f", {percent(cpu.user_share)} in user mode"
    yield "CPU", f"{mean}{duration(cpu.total_s)} of CPU time{user}"
    # What is shorter than several windows is told once.
    windows = {window.over_s: window for window in reversed(cpu.windows)}
    for window in reversed(windows.values()):
        error = "" if window.error_cores is None else f" ± {number(window.error_cores, 2)}"
        shares = ", ".join(f"p{p} {plain_number(value)}" for p, value in window.percentiles.items())
        over = f"over {duration(window.over_s)}"
        peak = with_cores(plain_number(window.peak_cores) + error)
        yield over, f"peak {peak} at {duration(window.peak_at_s)}; {shares}"
    if cpu.lower_bound is not None:
        yield "", f"at least: {clean(cpu.lower_bound)}"


def _throttle_lines(usage: Usage) -> Iterator[tuple[str, str]]:
    held = usage.throttling
    if held is not None and held.periods:
        yield (
            "throttled",
            f"in {percent(held.share)} of {count(held.periods)} periods, {duration(held.throttled_s)} in all",
        )


def _memory_lines(memory: MemoryUsage, kind: str) -> Iterator[tuple[str, str]]:
    if memory.peak_bytes is None:
        yield "memory", "not told"
        return
    whose = "the kernel's own peak" if memory.peak_from == "kernel" else "the highest reading"
    if kind == "process":
        yield "memory", f"{memory_text(memory.peak_bytes)} resident, {whose}"
        if memory.proportional_peak_bytes is not None:
            unseen = memory.proportional_unseen_bytes
            more = f", and up to {memory_text(unseen)} that no look at it saw" if unseen else ""
            yield "shared by parts", f"{memory_text(memory.proportional_peak_bytes)} at most (PSS){more}"
    else:
        yield "memory", f"{memory_text(memory.peak_bytes)} with page cache, {whose}"
        yield from _parts_of_a_group(memory)
    if memory.lower_bound is not None:
        yield "", f"at least: {clean(memory.lower_bound)}"


def _parts_of_a_group(memory: MemoryUsage) -> Iterator[tuple[str, str]]:
    error = f", ± {memory_text(memory.error_bytes)}" if memory.error_bytes else ""
    if memory.working_set_peak_bytes is not None:
        yield "working set", f"{memory_text(memory.working_set_peak_bytes)} at most{error}"
    if memory.hard_peak_bytes is not None:
        yield "hard", f"{memory_text(memory.hard_peak_bytes)} at most: without file cache, which can be given back"
    if memory.swap_peak_bytes:
        yield "swap", f"{memory_text(memory.swap_peak_bytes)} at most"
    if memory.limit_bytes is not None:
        yield "limit", f"{memory_text(memory.limit_bytes)}, of {clean(memory.limit_path or '/', 120)}"


def _pressure_lines(usage: Usage) -> Iterator[tuple[str, str]]:
    waits = [f"{what} {percent(usage.pressure[name])}" for name, what in _PRESSURE.items() if name in usage.pressure]
    if waits:
        yield "waited", f"{', '.join(waits)} of the time"


def _io_lines(usage: Usage) -> Iterator[tuple[str, str]]:
    if usage.io is not None and (usage.io.read_bytes or usage.io.write_bytes):
        yield "disks", f"read {memory_text(usage.io.read_bytes)}, wrote {memory_text(usage.io.write_bytes)}"
    if usage.pids_peak is not None:
        yield "threads", f"{count(usage.pids_peak)} at most"


def gpu_lines(gpus: Sequence[GpuUse]) -> Iterator[tuple[str, str]]:
    """For each GPU its name and what was used of it."""
    for gpu in gpus:
        parts = []
        if gpu.mem_peak_bytes is not None:
            parts.append(f"{memory_text(gpu.mem_peak_bytes)} held at most ({gpu.mem_from})")
        if gpu.busy_mean is not None:
            most = "" if gpu.busy_max is None else f", at most {percent(gpu.busy_max)}"
            parts.append(f"{percent(gpu.busy_mean)} busy{most}")
        if gpu.power_mean_w is not None:
            parts.append(f"{number(gpu.power_mean_w)} W")
        if gpu.others:
            parts.append("used by others too")
        yield f"GPU {clean(gpu.name or gpu.gpu, 40)}", ", ".join(parts) or "told nothing"


def print_recommendation(made: Recommendation, console: Console) -> None:
    """Print what to request and what that rests on."""
    from rich.text import Text

    console.print(Text(plain(console, recommendation_sentence(made)), style="bold green" if made.mem_bytes else "bold"))
    for reason in made.reasons:
        console.print(Text(plain(console, f"  {clean(reason)}"), style="dim"))
    if made.bounds:
        text = ", ".join(_bound_text(name, value) for name, value in made.bounds.items())
        console.print(Text(plain(console, f"  bounds: {text}"), style="dim"))
    for doubt in made.doubts:
        console.print(Text(plain(console, f"! {clean(doubt)}"), style="yellow"))


def _bound_text(name: str, value: float) -> str:
    """One further figure of a policy, such as ``mem_lower_bytes``, with its unit."""
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes').replace('_', ' ')} {memory_text(round(value))}"
    return f"{name.removesuffix('_cores').replace('_', ' ')} {cores_text(value)}"


def recommendation_sentence(made: Recommendation) -> str:
    """The recommendation in one line."""
    if made.refused is not None:
        return f"No recommendation: {clean(made.refused)}"
    parts = []
    if made.cpu_cores is not None:
        kind = "" if made.cpu_measured else " (an estimate)"
        parts.append(f"{cores_text(made.cpu_cores)}{kind}")
    if made.mem_bytes is not None:
        parts.append(f"{request_text(made.mem_bytes)} of memory")
    if made.gpu_count:
        size = "" if made.gpu_mem_bytes is None else f" with {request_text(made.gpu_mem_bytes)} each"
        parts.append(f"{made.gpu_count} {'GPU' if made.gpu_count == 1 else 'GPUs'}{size}")
    if not parts:
        return "No recommendation: neither CPU time nor memory was reported"
    return f"Request {', '.join(parts)}; policy {made.policy}, confidence {made.confidence}"
