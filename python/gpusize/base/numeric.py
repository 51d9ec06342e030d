"""What numbers may be: one table for all options, and for the fields of a dataset's rows.

The bounds keep out what nobody means and what a 64 bit integer, a time in nanoseconds or a file cannot hold. What is
narrower for a reason of its own (a precision of 0.1 to 50 %) is refused where that reason is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import UsageError

__all__ = ["FIELDS", "LIMITS", "Limit", "check_limits", "figure", "within"]

_YEARS_S: Final = 10 * 366 * 86400
_EXACT: Final = 2**53
"""Whole numbers up to here are told apart by JSON readers, which have doubles."""

_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Limit:
    """The least and the most that a number may be, both included, and its unit in words."""

    least: float
    most: float
    unit: str = ""

    @property
    def positive(self) -> bool:
        """Whether anything above 0 may be: the least is there to keep out what cannot be told from it."""
        return self.least == _TINY

    def complaint(self, value: float) -> tuple[str, str] | None:
        """What is wrong with ``value``, to follow its name, and what to give instead; None where it may be."""
        if self.least <= value <= self.most:
            return None
        most = "ten years" if self.most == _YEARS_S else f"{_whole(self.most)}{self.unit}"
        least = f"{self.least:g}{self.unit if most == 'ten years' else ''}"
        given = f"not {figure(value)}{self.unit}"
        if self.positive and value <= 0:
            return f"must be positive, {given}", f"give at most {most}"
        if not (value < self.least or value > self.most):  # not a number is neither
            return f"must be a number, {given}", f"give {least} to {most}"
        bound = f"at least {self.least:g}{self.unit}" if value < self.least else f"at most {most}"
        return f"must be {bound}, {given}", f"give {least} to {most}"


def _whole(bound: Any) -> str:
    """A bound to its last digit, where it is a whole number."""
    return str(bound) if isinstance(bound, int) else f"{bound:.12g}"


_SECONDS: Final = " s"
_TINY: Final = 1e-6
"""The least of what has to be positive."""

LIMITS: Final[Mapping[str, Limit]] = {
    # The target.
    "streams": Limit(1, 65_536),
    "gpus": Limit(1, 1_000_000),
    "max_tokens": Limit(1, 2**31 - 1),
    "temperature": Limit(0, 1000),
    "timeout": Limit(_TINY, 1e9, _SECONDS),
    "connect_timeout": Limit(_TINY, 1e9, _SECONDS),
    "resolve_every": Limit(0, 1e9, _SECONDS),
    "batch": Limit(1, 1_000_000),
    # The load.
    "passes": Limit(0, _EXACT),
    "count": Limit(1, _EXACT),
    "duration": Limit(_TINY, _YEARS_S, _SECONDS),
    "warmup": Limit(0, _YEARS_S, _SECONDS),
    "wait_between": Limit(0, _YEARS_S, _SECONDS),
    "drain": Limit(0, _YEARS_S, _SECONDS),
    "max_error_rate": Limit(0, 1),
    "burstiness": Limit(1e-3, 1e6),
    "arrivals_from": Limit(0, _YEARS_S, _SECONDS),
    "arrivals_until": Limit(_TINY, _YEARS_S, _SECONDS),
    "speed": Limit(_TINY, 1e9, " times"),
    "rate_scale": Limit(_TINY, 1e6, " times"),
    "seed": Limit(0, 2**63 - 1),
    "connections": Limit(1, 2**31),
    "max_connections": Limit(1, 2**31),
    "queue": Limit(0, 2**31),
    "workers": Limit(1, 1024),
    "start_delay": Limit(0, _YEARS_S, _SECONDS),
    # What is asked, and what watches.
    "users": Limit(_TINY, 1e9),
    "most_users": Limit(1, 1_000_000),
    "metrics_port": Limit(0, 65_535),
    "push_every": Limit(1, _YEARS_S, _SECONDS),
    "hosts": Limit(1, 1000),
    "hosts_wait": Limit(1, _YEARS_S, _SECONDS),
    "sample_interval": Limit(1e-3, 3600, _SECONDS),
}
"""Options of a run that are one number; times in seconds."""

FIELDS: Final[Mapping[str, int]] = {"input_tokens": _EXACT, "output_tokens": _EXACT, "turn": _EXACT}
"""Fields of a dataset's rows that say how many or which, and the most that they may say."""


def check_limits(options: Mapping[str, Any]) -> None:
    """Refuse options beyond their limits; those that are not numbers are left to who reads them.

    Raises:
        UsageError: with the option's name, and what it may be.
    """
    for name in LIMITS:
        value = options.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            within(name, value)


def within(name: str, value: float, where: str | None = None) -> None:
    """Refuse a number beyond the limits of the option that it is of.

    Args:
        name: of the option, as `LIMITS` has it.
        value: a number.
        where: what the error names instead of the option.

    Raises:
        UsageError: it is beyond them.
    """
    found = LIMITS[name].complaint(value)
    if found is not None:
        wrong, todo = found
        # An option's own name stands before the message already.
        own = where is None or where.lstrip("-").replace("-", "_") == name
        raise UsageError(wrong if own else f"{name} {wrong}", where or name, todo)


def figure(value: Any) -> str:
    """A number for a message, however many digits it has."""
    if isinstance(value, int):
        digits = math.floor(value.bit_length() * math.log10(2)) + 1
        return str(value) if digits <= _MOST_DIGITS else f"a number of some {digits} digits"
    return f"{value:g}"
