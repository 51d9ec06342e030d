"""A spike of memory in a real container: who sees it."""

from __future__ import annotations

from statistics import median

import pytest

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.procs import BenchFailed
from benches.lib.stats import Interval
from gpusize.containers.pipeline import Operator, Pipeline, RunOptions, run_pipeline
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.recommend.cpost_rule import cpost_rows
from gpusize.observe.usage.readings import Readings
from gpusize.observe.usage.usage import usage_of
from tests.containers.engine import IMAGE, daemon_address, import_image
from tests.containers.stats import DockerStats

__all__ = ["spike"]

MIB = 1 << 20
SPIKE_MIB = 300
# dd holds one block: it fills it, writes it, and is gone.
SCRIPT = f"sleep 0.6; dd if=/dev/zero of=/dev/null bs={SPIKE_MIB}M count=1 2>/dev/null; sleep 0.6"


def spike(ctx: Context) -> None:
    """As many containers as there are rounds, one after the other, each with one spike."""
    runs = ctx.size(20, 3)
    try:
        with daemon_address() as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            daemon = Daemon.connect()
            import_image(daemon.client)
            try:
                seen, long_s = _measured(daemon, runs)
            finally:
                daemon.client.remove_image(IMAGE, force=True)
                daemon.close()
    except pytest.skip.Exception as problem:
        raise BenchFailed(f"no real container: {problem}") from None
    rows: list[list[object]] = []
    for who, highest in seen.items():
        count = sum(each >= SPIKE_MIB for each in highest)
        say(f"spike: {who}: {count} of {runs}")
        rows.append([who, f"{count} of {runs}", f"{median(highest):.1f}", f"{min(highest):.1f}"])
    note = (
        f"dd with a block of {SPIKE_MIB} MiB between two pauses of 0.6 s; more than half of it is held for "
        f"{1000 * median(long_s):.0f} ms in the median, by the readings. Docker's stream tells once a second."
    )
    ctx.report.table("who sees a spike", ["", "saw all of it", "highest, median MiB", "least of all runs"], rows, note)
    share = sum(each >= SPIKE_MIB for each in seen["gpusize: the kernel's peak"]) / runs
    ctx.report.bar(Bar("sample_spikes_seen", Interval.exact(share), 1.0, at_least=True))


def _measured(daemon: Daemon, runs: int) -> tuple[dict[str, list[float]], list[float]]:
    """The highest that each one saw of each run, in MiB, and how long the spikes were."""
    stats = DockerStats(daemon)
    operator = Operator("spike", IMAGE, command=("sh", "-c", SCRIPT))
    result = run_pipeline(
        Pipeline("p", (operator,), "own"), options=RunOptions(repeat=runs), daemon=daemon, events=stats
    )
    stats.wait()
    seen: dict[str, list[float]] = {}
    long_s = []
    for execution in result.operators[0].executions:
        if execution.readings is None:
            raise BenchFailed(f"nothing was read: {execution.unread}")
        for who, highest_bytes in _highest(execution.readings).items():
            seen.setdefault(who, []).append(highest_bytes / MIB)
        long_s.append(_above_s(execution.readings))
    return {**seen, "docker stats": [each / MIB for each in stats.most]}, long_s


def _highest(readings: Readings) -> dict[str, float]:
    memory = usage_of(readings).memory
    return {
        "gpusize: the kernel's peak": float(memory.kernel_peak_bytes or 0),
        "gpusize: readings every 20 ms": float(memory.sampled_max_bytes or 0),
        "CPOST's rule: every 200 ms, neighbours averaged": max(row.memory_mb for row in cpost_rows(readings)) * 1e6,
    }


def _above_s(readings: Readings) -> float:
    """How long more than half of the spike was held, by the readings."""
    t_ns, held = readings.array("mem_bytes")
    high = t_ns[held > SPIKE_MIB * MIB / 2]
    return float(high[-1] - high[0]) / 1e9 if high.size else 0.0
