"""Containers, processes and cgroups sampled beside a load, on the records' clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.files import storing, write_frame
from gpusize.observe.usage.counter_curve import Span
from gpusize.observe.usage.limits_hit import THROTTLED, held_reasons
from gpusize.observe.usage.readings import COUNTERS
from gpusize.observe.usage.sampler import INTERVAL_S, Sampling, check_interval
from gpusize.observe.usage.sources import source_of
from gpusize.observe.usage.usage import LIMIT_WINDOW_S, REQUEST_WINDOW_S, usage_of

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.sampler import Source
    from gpusize.observe.usage.usage_types import Usage

__all__ = ["METRICS", "PART", "Beside", "ResourceObserver", "level_row", "long_samples"]

PART: Final = "part-resources-00000.parquet"
"""Beside the parts of the server's metrics, and read with them."""

METRICS: Final[dict[str, str]] = {
    "cpu_ns": "container_cpu_usage_seconds_total",
    "cpu_user_ns": "container_cpu_user_seconds_total",
    "cpu_system_ns": "container_cpu_system_seconds_total",
    "cpu_periods": "container_cpu_cfs_periods_total",
    "cpu_throttled_periods": "container_cpu_cfs_throttled_periods_total",
    "cpu_throttled_ns": "container_cpu_cfs_throttled_seconds_total",
    "mem_bytes": "container_memory_usage_bytes",
    "mem_peak_bytes": "container_memory_max_usage_bytes",
    "mem_inactive_file_bytes": "container_memory_inactive_file_bytes",
    "mem_active_file_bytes": "container_memory_active_file_bytes",
    "mem_anon_bytes": "container_memory_anon_bytes",
    "mem_file_bytes": "container_memory_cache",
    "mem_shmem_bytes": "container_memory_shmem_bytes",
    "mem_slab_reclaimable_bytes": "container_memory_slab_reclaimable_bytes",
    "mem_slab_unreclaimable_bytes": "container_memory_slab_unreclaimable_bytes",
    "mem_kernel_bytes": "container_memory_kernel_usage",
    "swap_bytes": "container_memory_swap",
    "mem_pss_bytes": "container_memory_pss_bytes",
    "tmpfs_bytes": "container_tmpfs_used_bytes",
    "mem_max_events": "container_memory_failcnt",
    "oom_events": "container_memory_oom_total",
    "oom_kill_events": "container_oom_events_total",
    "io_read_bytes": "container_fs_reads_bytes_total",
    "io_write_bytes": "container_fs_writes_bytes_total",
    "io_reads": "container_fs_reads_total",
    "io_writes": "container_fs_writes_total",
    "pids": "container_threads",
    "pids_peak": "container_threads_peak",
    "cpu_some_ns": "container_pressure_cpu_waiting_seconds_total",
    "cpu_full_ns": "container_pressure_cpu_stalled_seconds_total",
    "mem_some_ns": "container_pressure_memory_waiting_seconds_total",
    "mem_full_ns": "container_pressure_memory_stalled_seconds_total",
    "io_some_ns": "container_pressure_io_waiting_seconds_total",
    "io_full_ns": "container_pressure_io_stalled_seconds_total",
    "cpu_waited_ns": "container_cpu_schedstat_runqueue_seconds_total",
}
"""Names in the samples: cAdvisor's where it has one, in its units."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What is to be sampled, as the user named it.

    Attributes:
        kind: ``container``, ``pid`` or ``cgroup``.
        named: the container, process or group.
    """

    kind: str
    named: str

    def source(self) -> Source:
        """What the sampler is asked for; its name says what it is, as ``container box``.

        Raises:
            UsageError: there is no such thing.
            EnvironmentLacks: the Docker daemon cannot be asked.
        """
        if self.kind == "container":
            source, _ = source_of(container=self.named)
        elif self.kind == "pid":
            if not self.named.isascii() or not self.named.isdigit():
                raise UsageError(f'"{self.named}" is not a process id', "sample_pid", "give a number, as ps shows it")
            source, _ = source_of(pid=int(self.named))
        else:
            source, _ = source_of(cgroup=self.named)
        return replace(source, name=f"{self.kind} {self.named}")


class ResourceObserver:
    """Samples what serves the load while a run goes on, stores the samples with each level and sums them up.

    Args:
        beside: what to sample.
        interval_s: time between two readings.

    Attributes:
        notes: what the user should know.
    """

    def __init__(self, beside: Sequence[Beside], interval_s: float = INTERVAL_S) -> None:
        self.notes: list[str] = []
        self._beside = list(dict.fromkeys(beside))
        self._interval_s = check_interval(interval_s, "sample_interval")
        self._sampling: Sampling | None = None

    def start(self) -> None:
        """Find everything and begin to read.

        Raises:
            UsageError: one of them is not there.
            EnvironmentLacks: one of them cannot be read.
        """
        if self._beside:
            self._sampling = Sampling([each.source() for each in self._beside], self._interval_s)

    def boundary(self) -> None:
        """Read everything now, and have high-water marks begin anew where the kernel can do that."""
        if self._sampling is not None:
            self._sampling.mark("boundary")

    def level(self, folder: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Write ``samples/`` and sum the level up.

        Returns:
            ``resources``: one row per source, as `level_row` makes it; ``alerts``. Empty when nothing is sampled.

        Raises:
            StoreError: the samples cannot be written.
        """
        import polars as pl

        if self._sampling is None:
            return {}
        told = [each.array("cpu_ns")[0] for each in self._sampling.look().values()]
        if any(times.size == 0 or times[-1] < end_ns for times in told):
            # Counters need a value after the end of the level.
            self._sampling.mark("level")
        rows, alerts, frames = [], [], []
        for readings in self._sampling.take(start_ns).values():
            usage = usage_of(readings, start_ns=start_ns, end_ns=end_ns)
            rows.append(level_row(usage))
            alerts += _alerts(readings, usage, end_ns)
            frames.append(long_samples(readings.since(start_ns)))
        with storing(folder):
            (folder / "samples").mkdir(exist_ok=True)
        write_frame(folder / "samples" / PART, pl.concat(frames))
        return {"resources": rows, "alerts": alerts}

    def stop(self) -> None:
        """End; safe to call twice."""
        if self._sampling is not None:
            for readings in self._sampling.stop().values():
                self.notes += [f"{readings.name}: {note}" for note in readings.facts.notes]
            self._sampling = None


def long_samples(readings: Readings) -> pl.DataFrame:
    """Readings in the columns of samples: one row per value, times in s, sorted by time."""
    import polars as pl

    seconds = [column for column in COUNTERS if column.endswith("_ns")]
    wide = readings.frame.with_columns(pl.col(*[c for c in METRICS if c not in seconds]).cast(pl.Float64))
    wide = wide.with_columns(pl.col(*seconds) / 1e9)
    long = wide.unpivot(list(METRICS), index="t_ns", variable_name="column", value_name="value").drop_nulls("value")
    return long.select(
        "t_ns",
        pl.lit(readings.name).alias("source"),
        pl.col("column").replace_strict(METRICS, return_dtype=pl.String).alias("metric"),
        pl.lit("").alias("labels"),
        "value",
    ).sort("t_ns", maintain_order=True)


def level_row(usage: Usage) -> dict[str, Any]:
    """What a source used in a level, flat: members of ``level.json``'s ``resources``; what is not told is null."""
    cpu, memory = usage.cpu, usage.memory
    short, long = (None if cpu is None else cpu.window(each) for each in (LIMIT_WINDOW_S, REQUEST_WINDOW_S))
    return {
        "source": usage.name,
        "kind": usage.kind,
        "over_s": usage.duration_s,
        "readings": usage.readings,
        "cpu_mean_cores": None if cpu is None else cpu.mean_cores,
        "cpu_p95_cores": None if long is None else long.percentiles[95],
        "cpu_peak_cores": None if short is None else short.peak_cores,
        "cpu_peak_error_cores": None if short is None else short.error_cores,
        "throttled_share": None if usage.throttling is None else usage.throttling.share,
        "mem_peak_bytes": memory.peak_bytes,
        "mem_peak_from": memory.peak_from,
        "mem_working_set_bytes": memory.working_set_peak_bytes,
        "mem_hard_bytes": memory.hard_peak_bytes,
        "mem_error_bytes": memory.error_bytes,
        "mem_limit_bytes": memory.limit_bytes,
        "oom_kills": memory.oom_kills,
        "cpu_wait_share": usage.pressure.get("cpu_some"),
        "mem_wait_share": usage.pressure.get("mem_some"),
        "io_wait_share": usage.pressure.get("io_some"),
        "threads_peak": usage.pids_peak,
        "restarts": usage.restarts,
    }


def _alerts(readings: Readings, usage: Usage, end_ns: int) -> list[str]:
    alerts = []
    facts = readings.facts
    if facts.ended_ns is not None and facts.ended_ns <= end_ns:
        alerts.append(f"{usage.name}: it has ended, so there are no further readings")
    if usage.restarts:
        alerts.append(f"{usage.name}: it was restarted {usage.restarts} times")
    if usage.throttling is not None and usage.throttling.share >= THROTTLED:
        alerts.append(f"{usage.name}: its CPU limit throttled it in {usage.throttling.share:.0%} of the periods")
    span = Span(usage.start_ns, usage.start_ns + round(usage.duration_s * 1e9))
    alerts += [f"{usage.name}: {why}" for why in held_reasons(facts, span, "cpu")]
    if usage.memory.lower_bound is not None:
        alerts.append(f"{usage.name}: {usage.memory.lower_bound}")
    return alerts
