"""How near the sampler comes to the truth: programs that use known cores and memory, by their own clocks."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import polars as pl

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.known_use import Series, compare
from benches.lib.procs import BenchFailed
from benches.lib.stats import Interval, bootstrap_median
from benches.lib.turns import whole_range
from tests.resources.live_groups import made

__all__ = ["truth", "used"]

CORES = (0.5, 1.0, 2.0)
MEMORY_MIB = (64, 256, 1024)
MIB = 2**20
MEAN, PEAK, MEMORY = 0.02, 0.1, 1.0


def used(tool: str, cores: float, seconds: float, mib: int) -> tuple[dict[str, Any], pl.DataFrame, dict[str, Any]]:
    """Run the program in a group of its own, sampled at the usual rates; what it says, the readings, the facts."""
    from gpusize import _core

    group = made()
    if group is None:
        raise BenchFailed("no cgroup can be made here: run it as root")
    command = [tool, "--cores", str(cores), "--seconds", str(seconds), "--mib", str(mib)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            if process.stdin is None or process.stdout is None:
                raise BenchFailed("the program's lines are not ours")
            pid = json.loads(process.stdout.readline())["up"]
            group.take(pid)
            sampler = _core.ResourceSampler(json.dumps({"sources": [{"name": "it", "kind": "cgroup", "pid": pid}]}))
            process.stdin.write("\n")
            process.stdin.flush()
            told: dict[str, Any] = json.loads(process.stdout.readline())
            process.wait()
            facts: dict[str, Any] = json.loads(sampler.stop())
        finally:
            process.kill()
            group.remove()
    (_, batches), *_ = sampler.drain()
    return told, pl.DataFrame(batches), facts


def truth(ctx: Context) -> None:
    """Mean and largest 100 ms of CPU, then the peak of memory."""
    _cpu(ctx)
    _memory(ctx)


def _cpu(ctx: Context) -> None:
    rounds, seconds = ctx.size(7, 1), ctx.size(6, 1)
    rows: list[list[object]] = []
    worst = {"mean": Interval.exact(0.0), "peak": Interval.exact(0.0)}
    for cores in CORES:
        errors: dict[str, list[float]] = {"mean": [], "peak": [], "true": []}
        for _ in range(rounds):
            told, frame, _ = used(ctx.tools.known_use, cores, seconds, 0)
            counted = frame.filter(pl.col("cpu_ns").is_not_null())
            sampled = Series(counted["t_ns"].to_list(), counted["cpu_ns"].to_list())
            mean, peak, true = compare(sampled, Series(*map(list, zip(*told["marks"], strict=True))))
            for name, value in (("mean", mean), ("peak", peak), ("true", true)):
                errors[name].append(value)
        say(f"{cores} cores: mean {errors['mean']}, peak {errors['peak']}")
        found = {name: bootstrap_median(values) for name, values in errors.items()}
        rows.append(
            [f"{cores:g}", found["true"], *(bootstrap_median([100 * v for v in errors[k]]) for k in ("mean", "peak"))]
        )
        worst = {name: max(before, found[name], key=lambda interval: interval.hi) for name, before in worst.items()}
    ctx.report.table(
        f"CPU against the program's own clock, {rounds} runs of {seconds} s, readings every 20 ms",
        ["cores asked", "cores it had", "error of the mean, %", "of the largest 100 ms, %"],
        rows,
        "Truth is the process's CPU clock, read by itself every 5 ms. Two cores are as much of them as it got.",
    )
    ctx.report.bar(Bar("sample_mean_cores_error", worst["mean"], MEAN))
    ctx.report.bar(Bar("sample_peak_cores_error", worst["peak"], PEAK))


def _memory(ctx: Context) -> None:
    rows: list[list[object]] = []
    worst, batches_mib = 0.0, 0.0
    for mib in MEMORY_MIB[: ctx.size(3, 2)]:
        errors = []
        for _ in range(ctx.size(7, 1)):
            told, frame, facts = used(ctx.tools.known_use, 0.0, 0.3, mib)
            before = frame["mem_bytes"].drop_nulls()[0]
            peak = facts["sources"]["it"]["last"]["mem_peak_bytes"]
            errors.append((peak - before - told["bytes"]) / MIB)
            batches_mib = facts["mem_error_bytes"] / MIB
        rows.append([mib, whole_range(errors)])
        worst = max(worst, *(abs(error) for error in errors))
    note = (
        "Truth is by how much the program's resident memory and page tables grew; measured is the kernel's high-water "
        f"mark less the group's use before. The kernel charges in batches: {batches_mib:g} MiB on this machine's CPUs."
    )
    ctx.report.table("peak memory, MiB above the truth", ["MiB touched", "median and range"], rows, note)
    ctx.report.bar(Bar("sample_memory_peak_error_mib", Interval.exact(worst), MEMORY + batches_mib, "MiB"))
