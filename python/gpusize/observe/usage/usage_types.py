"""What a source used over a span of time: the figures, without how they are worked out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CpuUsage", "CpuWindow", "IoUsage", "MemoryUsage", "Throttling", "Usage"]


@dataclass(frozen=True, slots=True)
class CpuWindow:
    """CPU use over windows of one length, in cores.

    Attributes:
        window_s: the length that was asked for.
        over_s: the length that the peak stands for: shorter where all of the run is.
        peak_cores: the highest over any window, wherever it begins.
        error_cores: how far the scheduler tick may put ``peak_cores`` off; None where the counter has no such steps.
        peak_at_s: when that window begins, from the start of the span.
        percentiles: cores by percentile, over windows side by side.
        windows: how many of these there are.
    """

    window_s: float
    over_s: float
    peak_cores: float
    error_cores: float | None
    peak_at_s: float
    percentiles: Mapping[int, float]
    windows: int


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU time used.

    Attributes:
        total_s: CPU time.
        mean_cores: ``total_s`` over the span's length.
        user_share: of it in user mode; the kernel splits by ticks, so this is rough. None when not told.
        windows: by length, ascending; lengths that the readings do not resolve are left out.
        unresolved_s: those lengths.
        lower_bound: why more may be wanted than was used; None where nothing held it back.
    """

    total_s: float
    mean_cores: float | None
    user_share: float | None
    windows: tuple[CpuWindow, ...]
    unresolved_s: tuple[float, ...] = ()
    lower_bound: str | None = None

    def window(self, window_s: float) -> CpuWindow | None:
        """The figures for one length; None where it was not asked for or is not resolved."""
        return next((each for each in self.windows if each.window_s == window_s), None)


@dataclass(frozen=True, slots=True)
class Throttling:
    """What a CPU limit held back.

    Attributes:
        periods: scheduler periods in which the group ran.
        throttled_periods: those in which it used up its quota.
        throttled_s: time that it was then held back for, summed over CPUs.
    """

    periods: int
    throttled_periods: int
    throttled_s: float

    @property
    def share(self) -> float:
        """Share of the periods in which it was throttled."""
        return self.throttled_periods / self.periods if self.periods else 0.0


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Memory used, in bytes.

    Attributes:
        peak_bytes: the most in use, page cache included: the larger of the two below.
        peak_from: ``kernel`` or ``sampled``.
        kernel_peak_bytes: the kernel's own high-water mark; None where there is none for this span.
        sampled_max_bytes: the largest reading.
        mean_bytes: over time.
        working_set_peak_bytes: largest ``memory in use - inactive file cache``.
        hard_peak_bytes: largest ``memory in use - file cache - reclaimable slab``: what cannot be given back.
        error_bytes: how far the kernel's counters may be from what is in use.
        unseen_bytes: how much higher memory in use was than at any reading that had its parts.
        swap_peak_bytes: largest reading of swap.
        proportional_peak_bytes: of a process tree the largest sum of memory with shared pages counted by halves, thirds
            and so on (PSS), at the readings that had it.
        proportional_unseen_bytes: how much more was resident than at any of these.
        growing_bytes_per_s: how fast it still grew when sampling ended; None where it did not, or had ended by itself.
        limit_bytes: the smallest limit on the way to the root.
        limit_path: the cgroup that has it.
        limit_events: times that memory in use reached the limit.
        oom_kills: processes killed for lack of memory.
        lower_bound: why more may be wanted than was used; None where nothing held it back.
    """

    peak_bytes: int | None = None
    peak_from: str | None = None
    kernel_peak_bytes: int | None = None
    sampled_max_bytes: int | None = None
    mean_bytes: float | None = None
    working_set_peak_bytes: int | None = None
    hard_peak_bytes: int | None = None
    error_bytes: int = 0
    unseen_bytes: int = 0
    swap_peak_bytes: int | None = None
    proportional_peak_bytes: int | None = None
    proportional_unseen_bytes: int = 0
    growing_bytes_per_s: float | None = None
    limit_bytes: int | None = None
    limit_path: str | None = None
    limit_events: int | None = None
    oom_kills: int | None = None
    lower_bound: str | None = None


@dataclass(frozen=True, slots=True)
class IoUsage:
    """Bytes and operations that reached block devices; what the page cache answered is not among them."""

    read_bytes: int
    write_bytes: int
    reads: int | None
    writes: int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What one source used.

    Attributes:
        name: the source.
        kind: ``cgroup``, ``process`` or ``host``.
        start_ns: start of the span, on the engine's clock.
        duration_s: its length.
        readings: readings in it.
        missed: due readings that were not taken, over all of the sampling.
        restarts: times that it began anew.
        cpu: None where CPU time was not reported.
        throttling: None where there is no CPU limit, or none is told.
        memory: figures that are not told are None.
        pressure: share of the time in which ``some`` or all tasks (``full``) waited for a resource, as ``cpu_some``.
        io: None where it is not told.
        pids_peak: most processes and threads.
        notes: what weakens the figures.
    """

    name: str
    kind: str
    start_ns: int
    duration_s: float
    readings: int
    missed: int
    restarts: int
    cpu: CpuUsage | None
    throttling: Throttling | None
    memory: MemoryUsage
    pressure: Mapping[str, float] = field(default_factory=dict)
    io: IoUsage | None = None
    pids_peak: int | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As a document; keys name their units."""
        made = dataclasses.asdict(self)
        if self.throttling is not None:
            made["throttling"]["share"] = self.throttling.share
        return made
