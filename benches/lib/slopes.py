"""Cost per request of a tool whose start-up costs as much as its requests: the slope between two lengths of run."""

from __future__ import annotations

from dataclasses import dataclass

from benches.lib.procs import BenchFailed
from benches.lib.stats import Interval

__all__ = ["Slope", "over", "slope"]


@dataclass(frozen=True)
class Slope:
    """CPU seconds per request, and the requests/s that the longer run reached."""

    cpu_s: float
    rate: float


def slope(requests: int, cpu_s: float, more_requests: int, more_cpu_s: float, rate: float) -> Slope:
    """From a short and a long run; raises BenchFailed when the long one sent no more than the short one."""
    if more_requests <= requests:
        raise BenchFailed(f"the longer run sent {more_requests} requests, the shorter {requests}")
    return Slope((more_cpu_s - cpu_s) / (more_requests - requests), rate)


def over(a: Interval, b: Interval) -> Interval:
    """The ratio of two that were not paired; its ends are the worst that both intervals allow."""
    return Interval(a.value / b.value, a.lo / b.hi, a.hi / b.lo)
