"""What is recommended, and what it rests on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpusize.observe.usage.usage import usage_of

if TYPE_CHECKING:
    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.usage_types import Usage

__all__ = ["MB", "MIB", "Execution", "Interval", "Policy", "Recommendation", "round_up"]

MB: Final = 1_000_000
"""A megabyte, as Clara and CPOST mean it."""
MIB: Final = 1 << 20
"""A mebibyte, as Kubernetes' Mi and Docker's m mean it."""


def round_up(value: float, step: float) -> float:
    """The smallest multiple of ``step`` that is not below ``value``; exact where both are whole.

    >>> round_up(148.05, 256), round_up(256, 256)
    (256, 256)
    """
    from math import ceil

    if isinstance(value, int) and isinstance(step, int):
        return -(-value // step) * step
    # 0.3 / 0.1 is 2.9999999999999996 and 0.7 / 0.1 is 6.999999999999999: the ceiling must not turn on the last bit.
    return ceil(round(value / step, 9)) * step


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of what is to be sized.

    Attributes:
        readings: what was read.
        usage: the sums of it.
        failed: why it counts as failed (an exit code, a timeout, out of memory); None for one that went well.
        gpus: what it used of each GPU.
        ran_s: how long it ran, where somebody knows better than the readings: those of a container begin when it was
            asked for.
        cut_short: whether it ended because somebody asked it to, by Ctrl-C or a signal, and not by itself.
    """

    readings: Readings
    usage: Usage
    failed: str | None = None
    gpus: Sequence[GpuUse] = ()
    ran_s: float | None = None
    cut_short: bool = False

    @classmethod
    def of(
        cls, readings: Readings, failed: str | None = None, gpus: Sequence[GpuUse] = (), ran_s: float | None = None
    ) -> Execution:
        """With the usage worked out from the readings."""
        return cls(readings, usage_of(readings), failed, gpus, ran_s)

    @property
    def took_s(self) -> float:
        """How long it ran."""
        return self.usage.duration_s if self.ran_s is None else self.ran_s


@dataclass(frozen=True, slots=True)
class Interval:
    """The range of a figure over several executions.

    Attributes:
        low: the smallest.
        high: the largest.
        runs: how many there were.
        above: how likely the next execution is not above ``high``: ``n / (n + 1)`` whatever the distribution is, as the
            largest of n + 1 alike draws is equally likely each of them.
    """

    low: float
    high: float
    runs: int

    @property
    def above(self) -> float:
        """The share n / (n + 1)."""
        return self.runs / (self.runs + 1)

    @property
    def spread(self) -> float:
        """Range over the largest; 0 where that is 0."""
        return (self.high - self.low) / self.high if self.high else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to request.

    Attributes:
        policy: the rule that made it.
        cpu_cores: CPU request; None where there is none to give.
        cpu_limit_cores: CPU limit; None for no limit.
        mem_bytes: memory, request and limit alike.
        gpu_count: whole GPUs.
        gpu_mem_bytes: memory that each of these must have.
        refused: why nothing is recommended.
        reasons: how the figures came about, a sentence each.
        doubts: what weakens them.
        confidence: ``low``, ``medium`` or ``high``.
        cut_short: whether it rests on an execution that did not end by itself.
        cpu_measured: whether less CPU was tried; if not, the CPU request is an estimate.
        cpu_interval: range of the cores that each execution alone would have given.
        mem_interval: the same of memory, in bytes.
        bounds: further figures of the policy, such as VPA's lower and upper bound, by name.
    """

    policy: str
    cpu_cores: float | None = None
    cpu_limit_cores: float | None = None
    mem_bytes: int | None = None
    gpu_count: int = 0
    gpu_mem_bytes: int | None = None
    refused: str | None = None
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    confidence: str = "low"
    cut_short: bool = False
    cpu_measured: bool = False
    cpu_interval: Interval | None = None
    mem_interval: Interval | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)

    @property
    def mem_mb(self) -> float | None:
        """Memory in decimal megabytes."""
        return None if self.mem_bytes is None else self.mem_bytes / MB

    @property
    def mem_mib(self) -> float | None:
        """Memory in mebibytes."""
        return None if self.mem_bytes is None else self.mem_bytes / MIB

    def to_dict(self) -> dict[str, Any]:
        """As a document, with memory in bytes, MB and MiB."""
        return {**dataclasses.asdict(self), "mem_mb": self.mem_mb, "mem_mib": self.mem_mib}


class Policy(Protocol):
    """A rule that makes a recommendation from executions, all of which went well; at least one."""

    name: str

    def cpu(self, executions: Sequence[Execution]) -> tuple[float | None, tuple[str, ...]]:
        """CPU request in cores, and how it came about; None where CPU time was not reported."""

    def memory(self, executions: Sequence[Execution]) -> tuple[int | None, tuple[str, ...]]:
        """Memory in bytes, and how it came about; None where it was not told."""

    def more(self, executions: Sequence[Execution]) -> dict[str, Any]:
        """Further members of the recommendation."""
