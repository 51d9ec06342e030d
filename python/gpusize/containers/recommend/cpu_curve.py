"""What less CPU costs: the time of an operator at several CPU limits, and the least limit that costs little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.units import with_cores

__all__ = ["TOLERANCE", "CpuCurve", "CurvePoint", "curve_limits"]

TOLERANCE: Final = 0.05
"""Share by which an operator may take longer for fewer cores."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Executions at one CPU limit.

    Attributes:
        cores: the limit; None for none.
        duration_s: how long it took; the median where there were several.
        throttled_share: share of the scheduler periods in which it was throttled.
        failed: why it failed; None where it did not.
    """

    cores: float | None
    duration_s: float
    throttled_share: float = 0.0
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class CpuCurve:
    """Executions without a limit and at lower ones.

    Args:
        points: one without a limit that went well, and others.
        base_cores: the limit that a definition sets, under which those ran that count as without; None for none.

    Raises:
        UsageError: none without a limit.
    """

    points: tuple[CurvePoint, ...]
    base_cores: float | None = None

    def __post_init__(self) -> None:
        if not any(point.cores is None and point.failed is None for point in self.points):
            raise UsageError(
                "every execution had a CPU limit or failed, so the cost of less CPU is unknown",
                "cpu_curve",
                "run it once without a limit",
            )

    @property
    def free_s(self) -> float:
        """How long it takes without a limit."""
        return min(point.duration_s for point in self.points if point.cores is None and point.failed is None)

    @property
    def limited(self) -> list[CurvePoint]:
        """The points with a limit, the highest first."""
        return sorted((p for p in self.points if p.cores is not None), key=lambda p: p.cores or 0.0, reverse=True)

    @property
    def tells(self) -> bool:
        """Whether two limits or more were tried: of one, nobody knows whether less would do, or a little more."""
        return len({point.cores for point in self.limited}) > 1

    def slower(self, point: CurvePoint) -> float:
        """Share by which it took longer than without a limit; negative where it was faster."""
        return point.duration_s / self.free_s - 1 if self.free_s > 0 else 0.0

    def least(self, tolerance: float = TOLERANCE) -> CurvePoint | None:
        """The lowest limit from which on up no measured one costs more than ``tolerance``; None where all do."""
        best = None
        for point in self.limited:
            if point.failed is not None or self.slower(point) > tolerance:
                break
            best = point
        return best

    def costs(self) -> list[str]:
        """A sentence for each limit: what it costs; before them, of a limit under which the base ran."""
        made = (
            []
            if self.base_cores is None
            else [f"held against {with_cores(f'{self.base_cores:g}')}, the definition's limit"]
        )
        for point in self.limited:
            size = f"{point.cores:g}"
            if point.failed is not None:
                made.append(f"{with_cores(size)}: {point.failed}")
            else:
                cost = f"{self.slower(point):+.0%} time, throttled in {point.throttled_share:.0%} of the periods"
                made.append(f"{with_cores(size)}: {cost}")
        return made


def curve_limits(estimate_cores: float, peak_cores: float | None, wanted: Sequence[float] = ()) -> list[float]:
    """CPU limits worth trying, the highest first, each at least 0.1 cores.

    These are the ones asked for; else the estimate, its half and its quarter, and where the peak is far above the
    estimate one between the two.
    """
    if wanted:
        return sorted(set(wanted), reverse=True)
    tried = [estimate_cores, estimate_cores / 2, estimate_cores / 4]
    if peak_cores is not None and peak_cores > 1.5 * estimate_cores:
        tried.append((estimate_cores * peak_cores) ** 0.5)
    return sorted({max(0.1, round(cores, 1)) for cores in tried}, reverse=True)
