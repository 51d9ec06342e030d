"""Pauses between an answer and the next request of the same user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import as_number, as_seconds
from gpusize.base.units import format_duration, seconds_to_ns

__all__ = ["Think"]

_KINDS: Final = ("fixed", "exponential", "uniform", "lognormal", "recorded")


@dataclass(frozen=True)
class Think:
    """A think time; ``Think.parse`` in `gpusize.workload.load` reads the text form.

    Args:
        kind: ``fixed``, ``exponential``, ``uniform``, ``lognormal`` or ``recorded``: each row's own ``delay_s``.
        first: seconds: the time itself, the mean, the low end, or the median.
        second: the high end in seconds, or the standard deviation of the logarithm.

    Raises:
        UsageError: invalid values.
    """

    kind: str = "fixed"
    first: float = 0.0
    second: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UsageError(f'"{self.kind}" is not a think time', "think", f"use one of {', '.join(_KINDS)}")
        object.__setattr__(self, "first", as_seconds(self.first, "think", positive=False))
        if (self.second is not None) != (self.kind in ("uniform", "lognormal")):
            raise UsageError(
                f"a {self.kind} think time does not take these values", "think", "see docs/reference/load.md"
            )
        if self.second is not None:
            second = as_number(self.second, "think")
            object.__setattr__(self, "second", second)
            if self.kind == "uniform" and second < self.first:
                raise UsageError("the high end lies below the low end", "think", "write it as uniform(1s,3s)")
            if not 0 <= second <= (10 if self.kind == "lognormal" else 1e9):
                raise UsageError(
                    f"the spread must be positive, not {second:g}", "think", "write it as lognormal(2s,0.5)"
                )

    @property
    def fixed_s(self) -> float | None:
        """Seconds, when it is always the same; else None."""
        return self.first if self.kind == "fixed" else None

    @property
    def mean_s(self) -> float | None:
        """Its mean in seconds; None when the rows say it."""
        if self.kind == "recorded":
            return None
        second = self.second or 0.0
        if self.kind == "uniform":
            return (self.first + second) / 2
        return self.first * math.exp(second**2 / 2) if self.kind == "lognormal" else self.first

    @property
    def deviation_s(self) -> float:
        """Its standard deviation in seconds; 0 when it is fixed or the rows say it."""
        second = self.second or 0.0
        if self.kind == "uniform":
            return (second - self.first) / math.sqrt(12)
        if self.kind == "lognormal":
            return self.first * math.exp(second**2 / 2) * math.sqrt(math.expm1(second**2))
        return self.first if self.kind == "exponential" else 0.0

    def wire(self) -> dict[str, Any] | str:
        """The engine's Think (docs/reference/engine.md)."""
        if self.kind == "recorded":
            return "recorded"
        first_ns = seconds_to_ns(self.first)
        if self.kind == "uniform":
            return {"uniform": [first_ns, seconds_to_ns(self.second or 0.0)]}
        return {self.kind: [first_ns, self.second] if self.kind == "lognormal" else first_ns}

    def __str__(self) -> str:
        first = format_duration(self.first)
        if self.kind == "exponential":
            return f"exp({first})"
        if self.kind == "uniform":
            return f"uniform({first},{format_duration(self.second or 0.0)})"
        if self.kind == "lognormal":
            return f"lognormal({first},{self.second:.12g})"
        return first if self.kind == "fixed" else self.kind
