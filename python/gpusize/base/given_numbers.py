"""Numbers as users give them from Python: an invalid one is refused where it is given."""

from __future__ import annotations

import ipaddress
import math
import operator
from collections.abc import Sequence
from typing import Any, Final

from gpusize.base.errors import UsageError

__all__ = [
    "MAX_CONCURRENCY",
    "MAX_RATE",
    "as_addresses",
    "as_number",
    "as_rate",
    "as_seconds",
    "as_sequence",
    "as_whole",
]

MAX_CONCURRENCY: Final = 1_000_000
MAX_RATE: Final = 1e8
_MAX_S: Final = 10 * 366 * 86400


def as_sequence(values: Any, name: str) -> Sequence[Any]:
    """The values as a tuple.

    Raises:
        UsageError: a text, or no sequence.
    """
    if isinstance(values, str | bytes):
        raise UsageError(f"{name} are given as text", name, f"give numbers; gpusize.base.units.parse_{name} reads text")
    try:
        return tuple(values)
    except TypeError:
        raise UsageError(f"{name} is of type {type(values).__name__}", name, "give a list") from None


def as_addresses(values: Sequence[str]) -> tuple[str, ...]:
    """Local IP addresses.

    Raises:
        UsageError: something that is none.
    """
    found = tuple(as_sequence(values, "source_addresses"))
    for value in found:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            todo = "give addresses of this machine, such as 127.0.0.2"
            raise UsageError(f'"{value}" is not an IP address', "source_addresses", todo) from None
    return found


def as_whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``.

    Raises:
        UsageError: anything else.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{value!r} is not a whole number", name, "give a whole number") from None
    if isinstance(value, bool) or not low <= number <= high:
        bound = f"at most {high}" if not isinstance(value, bool) and number > high else f"{low} or more"
        raise UsageError(f"{name} must be {bound}, not {value}", name, f"give {low} to {high}")
    return number


def as_number(value: Any, name: str) -> float:
    """A finite number.

    Raises:
        UsageError: anything else.
    """
    if isinstance(value, bool | str) or not hasattr(value, "__float__") or not math.isfinite(value):
        raise UsageError(f"{value!r} is not a number", name, "give a finite number")
    return float(value)


def as_seconds(value: Any, name: str, *, positive: bool) -> float:
    """Seconds, up to ten years.

    Raises:
        UsageError: anything else, and 0 where it has to be positive.
    """
    number = as_number(value, name)
    if number < 0 or (positive and number == 0) or number > _MAX_S:
        bound = "at most ten years" if number > _MAX_S else "positive" if positive else "0 s or more"
        raise UsageError(f"{name} must be {bound}, not {number:g} s", name, "give seconds, up to ten years")
    return number


def as_rate(value: Any, name: str, *, positive: bool = True) -> float:
    """A rate per second, up to `MAX_RATE`.

    Raises:
        UsageError: anything else, and 0 where it has to be positive.
    """
    rate = as_number(value, name.removesuffix("s"))
    if rate < 0 or (positive and rate == 0) or rate > MAX_RATE:
        bound = f"at most {MAX_RATE:g}/s" if rate > MAX_RATE else "positive" if positive else "0/s or more"
        raise UsageError(f"a rate must be {bound}, not {rate:g}/s", name, f"give at most {MAX_RATE:g}/s")
    return rate
