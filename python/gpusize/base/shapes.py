"""What a JSON value may be, as data: each check either passes or names the place inside the value and what is wrong.

    fields({"users": whole(1)}, {"label": optional(text())})

The checks are for files that anybody may have edited or damaged; places read as ``targets[0].gpus``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusize.base.text import shown

__all__ = ["Check", "Wrong", "anything", "fields", "flag", "items", "mapping", "number", "one_of", "optional"]
__all__ += ["text", "whole"]

MOST_WHOLE: Final = 2**63 - 1
"""Whole numbers are 64 bits wide wherever they go."""

MOST_DEPTH: Final = 64
"""Levels of nesting in a value that nothing else is known of."""

Check = Callable[[Any, str], None]
"""Takes a value and its place."""


class Wrong(Exception):
    """A value that does not pass.

    Args:
        place: where it stands, as ``targets[0].gpus``; empty for the whole.
        what: what it is, and what it has to be.
    """

    def __init__(self, place: str, what: str) -> None:
        super().__init__(place, what)
        self.place = place
        self.what = what

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.place else self.what


def _wrong(place: str, value: Any, expected: str) -> Wrong:
    return Wrong(place, f"{shown(value)} is not {expected}")


def whole(low: int = 0, high: int = MOST_WHOLE) -> Check:
    """A whole number between two bounds, both included."""

    def check(value: Any, place: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            top = "" if high == MOST_WHOLE else f" to {high}"
            raise _wrong(place, value, f"a whole number from {low}{top}" if top else f"a whole number from {low} on")

    return check


def number(low: float = -math.inf) -> Check:
    """A finite number, not below ``low``."""

    def check(value: Any, place: str) -> None:
        bound = "" if low == -math.inf else f" from {low:g} on"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(place, value, f"a number{bound}")
        if isinstance(value, int) and abs(value) > MOST_WHOLE:
            raise Wrong(place, "this number has more than 64 bits")
        if not math.isfinite(value) or value < low:
            raise _wrong(place, value, f"a number{bound}")

    return check


def text() -> Check:
    """A text that can be written as UTF-8."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str):
            raise _wrong(place, value, "a text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Wrong(place, "this text holds half a character (a lone surrogate)") from None

    return check


def one_of(*known: str) -> Check:
    """One of a few texts."""

    def check(value: Any, place: str) -> None:
        if not (isinstance(value, str) and value in known):
            raise _wrong(place, value, f"one of {', '.join(known)}")

    return check


def flag(value: Any, place: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(place, value, "true or false")


def anything(value: Any, place: str, depth: int = 0) -> None:
    """Any JSON whose numbers are finite and have 64 bits at most, and whose nesting is bounded."""
    if depth > MOST_DEPTH:
        raise Wrong(place, "nested too deeply")
    if isinstance(value, dict):
        for key, each in value.items():
            text()(key, place)
            anything(each, f"{place}.{key}"[-200:], depth + 1)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            anything(each, f"{place}[{index}]"[-200:], depth + 1)
    elif isinstance(value, str):
        text()(value, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number()(value, place)


def optional(check: Check) -> Check:
    """The same, or null."""

    def checked(value: Any, place: str) -> None:
        if value is not None:
            check(value, place)

    return checked


def items(check: Check) -> Check:
    """A list of them."""

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise _wrong(place, value, "a list")
        for index, each in enumerate(value):
            check(each, f"{place}[{index}]")

    return checked


def mapping(check: Check) -> Check:
    """An object whose members all pass."""

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(place, value, "an object")
        for key, each in value.items():
            text()(key, place)
            check(each, _below(place, key))

    return checked


def fields(required: Mapping[str, Check], known: Mapping[str, Check]) -> Check:
    """An object with these members; what it has besides is any JSON.

    Args:
        required: members that it must have.
        known: members that it may have.
    """

    def checked(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(place, value, "an object")
        for name in required:
            if name not in value:
                raise Wrong(_below(place, name), "this field is missing")
        for key, each in value.items():
            text()(key, place)
            (required.get(key) or known.get(key) or anything)(each, _below(place, key))

    return checked


def _below(place: str, key: str) -> str:
    return f"{place}.{shown(key)}" if place else shown(key)
