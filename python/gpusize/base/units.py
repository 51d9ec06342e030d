"""Durations, rates and lists of levels as people write them: one parser for command line, files and Python."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.numeric import figure

__all__ = [
    "as_duration_s",
    "format_duration",
    "parse_concurrencies",
    "parse_duration_s",
    "parse_rate",
    "parse_rates",
    "parse_sample",
    "seconds_to_ns",
    "with_cores",
]

_SECONDS: Final = {
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
}
_SPELLINGS: Final = {"min": "m", "µs": "us", "μs": "us"}  # micro sign and Greek mu: both are typed
_PER_SECOND: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_TERM: Final = re.compile(rf"({_NUMBER})\s*([a-zA-Zµμ]+)\s*")
_BARE: Final = re.compile(_NUMBER)
_RATE: Final = re.compile(rf"({_NUMBER})\s*(?:/\s*([a-z]+))?")
_MAX_LEVELS: Final = 10_000
_MOST_DIGITS: Final = 30
_MAX_S: Final = Decimal(100 * 366 * 86400)
"""A hundred years: longer times overflow 64 bit nanoseconds soon after, and nobody means them."""


def parse_duration_s(text: str) -> float:
    """Seconds that ``text`` stands for.

    Terms of number and unit from large to small, each unit once: ``90s``, ``1h30m``, ``1.5m``, ``500ms``. Units are
    d, h, m (or min), s, ms, us, ns. A number alone means seconds.

    Raises:
        UsageError: not a duration, or longer than a hundred years.
    """
    stripped = text.strip()
    total = Decimal(stripped) if _BARE.fullmatch(stripped) else _sum_of_terms(stripped, text)
    if total > _MAX_S:
        raise UsageError(
            f'the duration "{text}" is longer than a hundred years', None, "give one such as 10s, 2m or 1h30m"
        )
    return float(total)


def _sum_of_terms(stripped: str, text: str) -> Decimal:
    order = list(_SECONDS)
    total, position, last = Decimal(0), 0, -1
    while position < len(stripped):
        match = _TERM.match(stripped, position)
        unit = _SPELLINGS.get(match[2], match[2]) if match else ""
        if match is None or unit not in _SECONDS or order.index(unit) <= last:
            raise _not_a_duration(text)
        last = order.index(unit)
        total += Decimal(match[1]) * _SECONDS[unit]
        position = match.end()
    if last < 0:
        raise _not_a_duration(text)
    return total


def _not_a_duration(text: str, where: str | None = None) -> UsageError:
    return UsageError(f'"{text}" is not a duration', where, "write it with units, such as 500ms, 10s, 2m or 1h30m")


def as_duration_s(value: object, where: str | None = None) -> float:
    """Seconds, from a text as `parse_duration_s` reads it or from a number of seconds.

    Args:
        value: the text or the number.
        where: the option that it is of, for the error.

    Raises:
        UsageError: neither a duration nor a finite number of 0 or more.
    """
    if isinstance(value, str):
        try:
            return parse_duration_s(value)
        except UsageError as problem:
            raise UsageError(problem.what, where, problem.todo) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not_a_duration(str(value), where)
    if not 0 <= value <= _MAX_S:
        bound = "at most a hundred years" if value > 0 else "0 s or more"
        raise UsageError(f"a duration must be {bound}, not {figure(value)} s", where, "write it as 500ms, 10s or 1h30m")
    return float(value)


def format_duration(seconds: float) -> str:
    """The shortest usual spelling of a duration; `parse_duration_s` reads exactly the same number back.

    Raises:
        UsageError: negative, infinite or not a number.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{seconds} s is not a duration", None, "give a finite number of 0 or more")
    left = Decimal(repr(float(seconds)))
    if left == 0:
        return "0s"
    if left < 1:
        unit = next(u for u in ("ms", "us", "ns") if left >= _SECONDS[u] or u == "ns")
        return f"{_plain(left / _SECONDS[unit])}{unit}"
    terms = []
    for unit in ("h", "m"):
        whole = left // _SECONDS[unit]
        if whole:
            terms.append(f"{_plain(whole)}{unit}")
            left -= whole * _SECONDS[unit]
    if left:
        terms.append(f"{_plain(left)}s")
    return "".join(terms)


def with_cores(figure: str) -> str:
    """A printed number of cores with its unit: ``1 core``, ``0.5 cores``."""
    return f"{figure} {'core' if figure == '1' else 'cores'}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def seconds_to_ns(seconds: float) -> int:
    """Nanoseconds, rounded to the nearest; decimal, so that 0.1 s is exactly 100,000,000 ns."""
    return int((Decimal(repr(float(seconds))) * 10**9).to_integral_value())


def parse_rate(text: str, where: str | None = None) -> float:
    """Events per second that ``text`` stands for: ``20``, ``20/s``, ``300/m``, ``90/h``; errors name ``where``.

    Raises:
        UsageError: not a rate, or not above 0.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or (match[2] or "s") not in _PER_SECOND:
        raise UsageError(
            f'"{text}" is not a rate', where, "write it as 20/s, 300/m or 90/h; a number alone is per second"
        )
    rate = float(match[1]) / _PER_SECOND[match[2] or "s"]
    if not 0 < rate < math.inf:
        raise UsageError(f'the rate "{text}" sends nothing', where, "give a rate above 0")
    return rate


def parse_sample(value: object) -> int:
    """The number n of which one is kept: of ``1/100``, or of a share such as ``0.01``.

    Raises:
        UsageError: not a share of this form.
    """
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"1\s*/\s*([0-9]{1,9})", text)
    if match is not None and int(match[1]) > 0:
        return int(match[1])
    # As the decimal that was written: 0.01 is exactly one of a hundred.
    share = Decimal(text) if _BARE.fullmatch(text) and len(text) <= _MOST_DIGITS else Decimal(0)
    each = int((1 / share).to_integral_value()) if 0 < share <= 1 else int(share)
    if 0 < share <= 1 and share * each == 1:
        return each
    kept = str(each) if each > 1 else "100"
    raise UsageError(f'"{value}" is not a share of records', None, f"write it as 1/{kept}: one of {kept} is kept")


def parse_concurrencies(text: str) -> list[int]:
    """Concurrencies from ``1,2,4,8``; an item may be a range ``start:stop`` or ``start:stop:step``, its stop included.

    Raises:
        UsageError: an item that is not a whole number of 1 or more or such a range, with its column; or none at all.
    """
    result: list[int] = []
    for column, item in _items(text, "concurrencies", "1,2,4,8 or 1:20:1"):
        bounds = item.split(":")
        if len(bounds) > 3 or not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", bound) for bound in bounds):
            raise _bad_item(item, column, "is not a whole number or a range", "write 1,2,4,8 or 1:20:1")
        given = [int(bound) for bound in bounds]
        start, stop, step = given[0], given[1] if len(given) > 1 else given[0], given[2] if len(given) > 2 else 1
        if 0 in {start, stop, step}:
            raise _bad_item(item, column, "holds a 0, which sends nothing", "begin at 1")
        if stop < start:
            raise _bad_item(item, column, "is a range that ends before it begins", "write start:stop:step")
        if len(result) + (stop - start) // step + 1 > _MAX_LEVELS:
            raise _bad_item(item, column, f"makes more than {_MAX_LEVELS} levels", "take a larger step")
        result += range(start, stop + 1, step)
    return result


def parse_rates(text: str) -> list[float]:
    """Rates per second from ``5,10,20/s``; each item as `parse_rate` reads it.

    Raises:
        UsageError: an item that is not a rate above 0, with its column; or none at all.
    """
    result = []
    for column, item in _items(text, "rates", "5,10,20/s"):
        try:
            result.append(parse_rate(item))
        except UsageError as problem:
            raise UsageError(problem.what, f"rates, column {column}", problem.todo) from None
    return result


def _items(text: str, name: str, example: str) -> Iterator[tuple[int, str]]:
    """Items between commas with their columns; one comma at the end is allowed."""
    items = text.split(",")
    if len(items) > 1 and not items[-1].strip():
        items.pop()
    column = 1
    for item in items:
        if not item.strip():
            what = "an item is missing" if len(items) > 1 else f"no {name} are given"
            raise UsageError(what, f"{name}, column {column}", f"write {example}")
        yield column + len(item) - len(item.lstrip()), item.strip()
        column += len(item) + 1


def _bad_item(item: str, column: int, what: str, todo: str) -> UsageError:
    return UsageError(f'"{item}" {what}', f"concurrencies, column {column}", todo)
