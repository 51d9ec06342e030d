"""What one container or process used of each GPU, from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.observe.metrics.prometheus_text import parse_labels
from gpusize.observe.metrics.series import counter_increase, gauge_summary

if TYPE_CHECKING:
    import polars as pl

__all__ = ["HELD", "OTHERS", "UNTOLD", "GpuUse", "gpu_uses"]

HELD: Final = "nvml_process_memory_bytes"
"""In the samples: memory that the source's processes hold of a GPU."""
OTHERS: Final = "nvml_other_processes"
UNTOLD: Final = "nvml_processes_of_untold_memory"
"""In the samples: how many processes of others use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """Use of one GPU, or of one of its MIG instances.

    Attributes:
        gpu: its UUID.
        name: its model, as the driver has it.
        mem_peak_bytes: the most memory that the processes of the source held; None where that is not told.
        mem_from: ``accounting`` (the driver's own high-water mark), ``sampled``, or ``whole GPU`` where the driver does
            not tell memory by process.
        mem_total_bytes: memory of the GPU.
        busy_mean: share of the time with a kernel running, of the whole GPU; None for MIG instances.
        busy_max: the largest of the driver's samples of that, each of a sixth of a second up to a second; it would be
            lost in means of several, as `busy_mean` is one.
        power_mean_w: of the whole GPU.
        energy_j: what the whole GPU used meanwhile.
        sm_clock_mean_mhz: clock of its multiprocessors.
        slowed: share of the readings at which it was slowed down (power, heat).
        readings: how many there were.
        others: whether other processes used it as well, so that figures of the whole GPU are not of the source alone.
    """

    gpu: str
    name: str = ""
    mem_peak_bytes: int | None = None
    mem_from: str | None = None
    mem_total_bytes: int | None = None
    busy_mean: float | None = None
    busy_max: float | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None
    sm_clock_mean_mhz: float | None = None
    slowed: float | None = None
    readings: int = 0
    others: bool = False


def gpu_uses(
    samples: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    *,
    accounted: dict[str, int] | None = None,
    names: dict[str, str] | None = None,
    split: frozenset[str] = frozenset(),
) -> list[GpuUse]:
    """What a source used of each GPU, from samples.

    Args:
        samples: columns t_ns, source, metric, labels, value.
        start_ns: start of the span on the engine's clock.
        end_ns: its end.
        accounted: the driver's own high-water marks by GPU, in bytes.
        names: models of the GPUs, by UUID.
        split: GPUs of which the instances are told instead.

    Returns:
        GPUs that its processes were seen on; all where the driver does not tell processes.
    """
    import polars as pl

    made = []
    for key, part in samples.filter(pl.col("labels") != "").group_by("labels", maintain_order=True):
        gpu = (parse_labels(str(key[0])) or {}).get("gpu")
        if gpu is not None and gpu not in split:
            use = _use(part, gpu, (start_ns, end_ns), (accounted or {}).get(gpu), (names or {}).get(gpu, ""))
            if use is not None:
                made.append(use)
    return made


def _use(part: pl.DataFrame, gpu: str, span: tuple[int, int], mark: int | None, name: str) -> GpuUse | None:
    import polars as pl

    def series(metric: str) -> tuple[Any, Any]:
        found = part.filter(pl.col("metric") == metric).sort("t_ns")
        return found["t_ns"].to_numpy(), found["value"].to_numpy()

    def gauge(metric: str) -> Any:
        t, v = series(metric)
        return gauge_summary(t, v, *span) if t.size else None

    held, whole, total = gauge(HELD), gauge("nvml_memory_used_bytes"), gauge("nvml_memory_total_bytes")
    others, untold = gauge(OTHERS), gauge(UNTOLD)
    if untold is not None:
        # Processes of the source were there, and the driver keeps what they held to itself.
        held = None
    peak, whence = _peak(held, whole if others is None or untold is not None else None, mark)
    if others is not None and not peak:
        # The driver tells processes, and none of ours was there.
        return None
    busy, busiest, slowed = (
        gauge(metric) for metric in ("nvml_gpu_utilization", "nvml_gpu_utilization_max", "nvml_throttled")
    )
    power, clock = gauge("nvml_power_watts"), gauge("nvml_sm_clock_mhz")
    energy = counter_increase(*series("nvml_energy_joules_total"), *span)
    return GpuUse(
        gpu=gpu,
        name=name,
        mem_peak_bytes=peak,
        mem_from=whence,
        mem_total_bytes=None if total is None else round(total.high),
        busy_mean=None if busy is None else busy.mean,
        busy_max=None if busiest is None else busiest.high,
        power_mean_w=None if power is None else power.mean,
        energy_j=None if energy is None else energy.increase,
        sm_clock_mean_mhz=None if clock is None else clock.mean,
        slowed=None if slowed is None else slowed.mean,
        readings=max((each.readings for each in (held, whole) if each is not None), default=0),
        others=others is not None and others.high > 0,
    )


def _peak(held: Any, whole: Any, mark: int | None) -> tuple[int | None, str | None]:
    """The most memory and where that is from: of a mark and of readings the larger one."""
    sampled = None if held is None else round(held.high)
    if mark is not None and mark >= (sampled or 0):
        return mark, "accounting"
    if sampled is not None:
        return sampled, "sampled"
    return (None, None) if whole is None else (round(whole.high), "whole GPU")
