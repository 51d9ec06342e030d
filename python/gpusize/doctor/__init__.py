"""What this machine can measure: clock, timers, cores, limits, highest rate."""

from __future__ import annotations

from gpusize.doctor.examine import examine
from gpusize.doctor.finding import Finding

__all__ = ["Finding", "examine"]
