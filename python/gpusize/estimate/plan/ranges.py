"""Lists of loads and of bounds as people write them: ``50,100,200..1000``, ``10..80/s``, ``2s,4s,8s``, ``0.5x..4x``.

    list = item { "," item } [ "," ]
    item = value | value ".." value

``A..B`` stands for A, B and what lies between them in even ratios of about the square root of 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.units import parse_duration_s, parse_rate

__all__ = ["Bound", "evenly", "parse_bounds", "parse_rates", "parse_users"]

MOST: Final = 200
"""Values of one list: each is a question of its own."""
RATIO: Final = math.sqrt(2)
_UNIT: Final = re.compile(r"[a-zA-Zµμ/][a-zA-Zµμ/ ]*$")
_USERS: Final = re.compile(r"[0-9]{1,9}")
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*x")


@dataclass(frozen=True, slots=True)
class Bound:
    """Another bound of an SLO: a time of its own, or a multiple of what it is.

    Attributes:
        seconds: the bound; None for a multiple.
        factor: the multiple; None for a time.
    """

    seconds: float | None = None
    factor: float | None = None


MOST_TIMES: Final = 1e6
"""Of a bound: nobody asks for a million times as long."""


def parse_users(text: str, where: str = "users") -> list[float]:
    """Whole numbers of users, ascending and each once.

    Raises:
        UsageError: an item that is no whole number of 1 or more or a range of them, with its column.
    """

    def one(item: str) -> float:
        if not _USERS.fullmatch(item) or int(item) < 1:
            raise UsageError(f'"{item}" is not a number of users', None, "write 50,100,200..1000")
        return float(item)

    found = _items(text, one, where, "50,100,200..1000")
    return sorted({float(round(value)) for value in found})


def parse_rates(text: str, where: str = "rate") -> list[float]:
    """Rates per second, ascending and each once; a range takes the unit of its end where its start has none.

    Raises:
        UsageError: an item that is no rate or a range of them, with its column.
    """
    return sorted(set(_items(text, parse_rate, where, "10,20,40..160/s")))


def parse_bounds(text: str, where: str = "slo_bounds") -> list[Bound]:
    """Times, or multiples of the SLOs' own bounds, ascending and each once.

    Raises:
        UsageError: an item that is neither, both kinds at once, or a value of 0; with its column.
    """
    multiples = text.rstrip(" ,").endswith("x")

    def factor(item: str) -> float:
        match = _FACTOR.fullmatch(item)
        if match is None or not 0 < float(match[1]) <= MOST_TIMES:
            raise UsageError(f'"{item}" is not a multiple of a bound', None, "write 0.5x,1x,2x")
        return float(match[1])

    def time(item: str) -> float:
        seconds = parse_duration_s(item)
        if not seconds > 0:
            raise UsageError(f'a bound must be positive, not "{item}"', None, "give one above 0")
        return seconds

    if multiples:
        return [Bound(factor=value) for value in sorted(set(_items(text, factor, where, "0.5x,1x,2x")))]
    return [Bound(seconds=value) for value in sorted(set(_items(text, time, where, "2s,4s,8s")))]


def _items(text: str, one: Callable[[str], float], where: str, example: str) -> list[float]:
    """Every value of a list, ranges drawn out."""
    parts = text.split(",")
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    found: list[float] = []
    column = 1
    for part in parts:
        at = f"{where}, column {column + len(part) - len(part.lstrip())}"
        column += len(part) + 1
        if not part.strip():
            raise UsageError("an item is missing" if len(parts) > 1 else "the list is empty", at, f"write {example}")
        try:
            found += _values(part.strip(), one)
        except UsageError as problem:
            raise UsageError(problem.what, at, problem.todo or f"write {example}") from None
        if len(found) > MOST:
            raise UsageError(f"the list has more than {MOST} values", at, "take fewer, or a shorter range")
    return found


def _values(item: str, one: Callable[[str], float]) -> list[float]:
    low_text, dots, high_text = (each.strip() for each in item.partition(".."))
    if not dots:
        return [one(item)]
    unit = _UNIT.search(high_text)
    if unit is not None and not _UNIT.search(low_text):
        low_text += unit[0]
    low, high = one(low_text), one(high_text)
    if high <= low:
        raise UsageError(f'"{item}" is not a rising range', None, "write it from small to large, as 200..1000")
    return evenly(low, high)


def evenly(low: float, high: float, ratio: float = RATIO) -> list[float]:
    """From low to high in steps of equal ratio, the largest that is not much above ``ratio``; both ends exactly."""
    steps = max(1, round(math.log(high / low) / math.log(ratio)))
    inner = [_rounded(low * (high / low) ** (k / steps)) for k in range(1, steps)]
    return [low, *(value for value in inner if low < value < high), high]


def _rounded(value: float) -> float:
    """With two significant digits, which is what a point between two others needs."""
    return float(f"{value:.2g}")
