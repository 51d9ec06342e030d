"""What one container or process used of one GPU: the figures, without how they are read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GpuUse"]


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
        busy_max: the highest of the driver's samples.
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
