"""What this machine can measure: its clock, timers, cores and limits, and the highest rate it can generate itself."""

from __future__ import annotations

from gpusize.doctor.examine import examine
from gpusize.doctor.finding import Finding

__all__ = ["Finding", "examine"]
