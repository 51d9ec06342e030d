"""Memory in use, told in three ways: all of it, the working set, and what cannot be given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.observe.metrics.series import gauge_summary
from gpusize.observe.usage.counter_curve import Span, curves, increase
from gpusize.observe.usage.limits_hit import MEMORY_KINDS, held_reasons, mebibytes, named, own_limit
from gpusize.observe.usage.memory_growth import still_grew
from gpusize.observe.usage.usage_types import MemoryUsage

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.source_facts import Facts

__all__ = ["hard_set", "memory_usage", "working_set"]

LEAST_IN_FILES: Final = 16 << 20
IN_FILES: Final = 0.1
"""Files in memory are told of where they grew by more than this share of the peak, and by more than that."""


def working_set() -> pl.Expr:
    """Memory in use less inactive file cache, at least 0: as Docker, cAdvisor and the kubelet have it."""
    import polars as pl

    return (pl.col("mem_bytes") - pl.col("mem_inactive_file_bytes")).clip(lower_bound=0)


def hard_set() -> pl.Expr:
    """Memory in use less all file cache and reclaimable slab, at least 0: what the kernel cannot take back."""
    import polars as pl

    slab = pl.col("mem_slab_reclaimable_bytes").fill_null(0)
    return (pl.col("mem_bytes") - pl.col("mem_inactive_file_bytes") - pl.col("mem_active_file_bytes") - slab).clip(
        lower_bound=0
    )


def memory_usage(readings: Readings, span: Span, *, cut: bool = False) -> MemoryUsage:
    """Memory that a source used in a span.

    Args:
        readings: of the source.
        span: the stretch of time.
        cut: whether the span begins later than what is measured: a high-water mark from before is then not of it.
    """
    facts = readings.facts
    inside = readings.frame.filter(readings.frame["t_ns"].is_between(span.start_ns, span.end_ns))
    if facts.kind == "process":
        # A process that has ended, and was not waited for yet, holds none: that is no use of memory.
        inside = inside.filter(inside["mem_bytes"].is_null() | (inside["mem_bytes"] > 0))
    sampled = _highest(inside["mem_bytes"])
    kernel = _kernel_peak(readings, span, cut=cut)
    peak = max((value for value in (sampled, kernel) if value is not None), default=None)
    t, v = readings.array("mem_bytes")
    gauge = gauge_summary(t, v.astype(float), span.start_ns, span.end_ns) if t.size else None
    told = inside.drop_nulls(["mem_bytes", "mem_inactive_file_bytes"])
    seen = _highest(inside.drop_nulls(["mem_pss_bytes"])["mem_bytes"])
    whole = readings.frame["mem_inactive_file_bytes"].is_null().all()
    working = _highest(told.select(working_set()).to_series()) if not told.is_empty() else None
    hard = _highest(told.select(hard_set()).to_series()) if not told.is_empty() else None
    limit, events = facts.mem_limit(), increase(curves(readings, "mem_max_events"), span)
    kills = increase(curves(readings, "oom_kill_events"), span)
    return MemoryUsage(
        peak_bytes=peak,
        peak_from=None if peak is None else "kernel" if kernel is not None and kernel == peak else "sampled",
        kernel_peak_bytes=kernel,
        sampled_max_bytes=sampled,
        mean_bytes=None if gauge is None else gauge.mean,
        # A source without file cache in its figures, as a process has, is all working set.
        working_set_peak_bytes=sampled if whole else working,
        hard_peak_bytes=_anon_peak(inside) if whole else hard,
        error_bytes=facts.mem_error_bytes,
        unseen_bytes=0 if whole or sampled is None else max(0, sampled - (_highest(told["mem_bytes"]) or 0)),
        swap_peak_bytes=_highest(inside["swap_bytes"]),
        proportional_peak_bytes=_highest(inside["mem_pss_bytes"]),
        proportional_unseen_bytes=0 if seen is None else max(0, (peak or 0) - seen),
        growing_bytes_per_s=None if facts.ended_ns is not None else still_grew(*_held(inside), span),
        limit_bytes=None if limit is None else limit.mem_bytes,
        limit_path=None if limit is None else limit.path,
        limit_events=None if events is None else round(events),
        oom_kills=None if kills is None else round(kills),
        lower_bound=_bound(readings, span, peak, events, kills),
    )


def _held(inside: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times, and memory at them that cannot be given back: without file cache, where readings tell it."""
    import polars as pl

    parts = inside.drop_nulls(["mem_bytes", "mem_inactive_file_bytes", "mem_active_file_bytes"])
    if parts.is_empty():
        whole = inside.drop_nulls(["mem_bytes"])
        return whole["t_ns"].to_numpy(), whole["mem_bytes"].to_numpy()
    return parts["t_ns"].to_numpy(), parts.select(hard_set().cast(pl.Int64)).to_series().to_numpy()


def _highest(values: pl.Series) -> int | None:
    highest = values.max()
    return int(highest) if isinstance(highest, int) else None


def _anon_peak(inside: pl.DataFrame) -> int | None:
    import polars as pl

    parts = inside.drop_nulls(["mem_anon_bytes"])
    return _highest(parts.select(pl.col("mem_anon_bytes") + pl.col("mem_shmem_bytes").fill_null(0)).to_series())


def _kernel_peak(readings: Readings, span: Span, *, cut: bool) -> int | None:
    """The kernel's high-water mark as far as it is of this span: one that rose in it, or that began with it."""
    import numpy as np

    t, v = readings.array("mem_peak_bytes")
    from_begin = readings.facts.begun_ns is not None and not cut
    within = (t <= span.end_ns) & (from_begin | (t > span.start_ns))
    rose = from_begin | (np.diff(v, prepend=v[:1]) > 0)
    known = [int(value) for value in v[within & rose]]
    total = readings.facts.totals.get("mem_peak_bytes")
    last = int(v[-1]) if t.size else 0
    to_end = readings.facts.ended_ns is None or span.end_ns >= readings.facts.ended_ns
    if total is not None and to_end and (from_begin or (t.size and total > last)):
        known.append(total)
    return max(known, default=None)


def _bound(readings: Readings, span: Span, peak: int | None, events: float | None, kills: float | None) -> str | None:
    facts = readings.facts
    held = held_reasons(facts, span, *MEMORY_KINDS)
    reasons = [] if peak is None or held else _reached(facts, peak)
    if kills:
        reasons = [f"{round(kills)} processes were killed for lack of memory"]
    elif events:
        own = named(own_limit(facts, "mem_bytes"))
        reasons = [f"memory in use, page cache included, reached its limit {round(events)} times{own}"]
    beside = _in_files(readings, span)
    if beside > max(LEAST_IN_FILES, IN_FILES * (peak or 0)):
        what = f"files in memory (tmpfs, as /dev/shm) grew by {mebibytes(beside)} meanwhile, whoever wrote them"
        reasons.append(f"{what}: a container's memory holds its own")
    return "; ".join([*reasons, *held]) or None


def _in_files(readings: Readings, span: Span) -> int:
    """By how much files in memory grew at most beyond what a process has mapped of them, which its figures have."""
    grown = []
    for column in ("tmpfs_bytes", "mem_shmem_bytes"):
        t, v = readings.array(column)
        inside = v[(t >= span.start_ns) & (t <= span.end_ns)]
        grown.append(int(inside.max() - inside[0]) if inside.size else 0)
    return grown[0] - grown[1]


def _reached(facts: Facts, peak: int) -> list[str]:
    """Limits that the peak came to, where no counter says so."""
    low = peak + facts.mem_error_bytes
    limit, high = facts.mem_limit(), facts.high_limit()
    if limit is not None and limit.mem_bytes and low >= limit.mem_bytes:
        return [f"memory in use, page cache included, reached the limit of {limit.path or '/'}"]
    if high is not None and high.mem_high_bytes and low >= high.mem_high_bytes:
        return [f"memory in use, page cache included, reached memory.high of {high.path or '/'}"]
    return []
