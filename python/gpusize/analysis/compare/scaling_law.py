"""The law by which the most requests/s grow with GPUs or instances, as a comparison holds it.

``estimate.growth`` makes it; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Carried", "Interval", "ScalingLaw"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; ``high`` is infinite where the end is open."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Carried:
    """The most that one count answers.

    Attributes:
        count: GPUs, or instances.
        rate: requests/s, with the interval.
        speed_up: over the smallest count, with the interval of a ratio of both.
        efficiency: speed-up over what would be in proportion.
        runs: runs behind it; 0 for what the law says of a count.
    """

    count: int
    rate: Interval
    speed_up: Interval
    efficiency: Interval
    runs: int = 0


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """How the most requests/s grow with the count, and why that is not known where it is not.

    Attributes:
        loop: ``closed`` or ``open``: which levels it is of. Both are not mixed.
        measured: by count, ascending, the most requests/s.
        name: ``linear``, ``amdahl`` or ``usl``, the simplest that the points do not contradict; empty where there is
            none.
        one: requests/s of one by the law.
        sigma: share of the work that all have to wait for; its interval is that of the USL, as are the others.
        kappa: what each pays to keep up with each other.
        peak: the count of most requests/s; None where the curve rises for ever.
        curve: what the law says, from the smallest count to twice the largest.
        remark: what weakens it; empty where nothing does.
        why_not: why there is no law; empty where there is one.
        missing: by side, why nothing says how much it can answer.
    """

    loop: str = ""
    measured: Sequence[Carried] = ()
    name: str = ""
    one: Interval | None = None
    sigma: Interval | None = None
    kappa: Interval | None = None
    peak: float | None = None
    curve: Sequence[Carried] = ()
    remark: str = ""
    why_not: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
