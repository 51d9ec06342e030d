"""Text and numbers fit to be shown: hostile text made harmless, figures with the digits that they deserve.

Everything that a server under test, a dataset or a host name may have put into a string passes ``clean`` before it
reaches a terminal, and jinja2's escaping on top of that before it reaches a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["TimeUnit", "clean", "count", "duration", "finite", "number", "percent", "ratio", "short_count", "time_unit"]

DASH: Final = "–"
"""Shown where there is no value: not measured, or not a number."""

# CSI, OSC/DCS/APC/PM/SOS strings (with or without their end), then two-byte escapes.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Controls, and the marks that reorder or hide the text around them.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+")


def clean(value: object, limit: int = 400) -> str:
    """One line of printable text, at most ``limit`` characters.

    Terminal escapes, control characters and bidirectional marks are removed; runs of blanks become one.
    It does not escape markup: that belongs to the place where the text is put.
    """
    # The bound comes first so that a huge text costs nothing; escapes may hide some of it, hence the slack.
    text = str(value)[: 8 * limit]
    text = _UNSEEN.sub(" ", _ESCAPES.sub("", text))
    text = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def finite(value: object) -> float | None:
    """The value as a float, or None when it is null, not a number or infinite."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return result if math.isfinite(result) else None


def number(value: object, digits: int = 3) -> str:
    """A figure with ``digits`` significant digits, thousands separated, never in exponent form below 10^15.

    Digits before the decimal point are never rounded away: 12345.6 is ``12,346``.
    """
    x = finite(value)
    if x is None:
        return DASH
    if x == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    rounded = round(x, places)
    # 9.996 with three digits rounds up to 10.00; one place fewer then.
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(x))):
        places = max(0, places - 1)
    return f"{rounded:,.{min(places, 12)}f}"


def plain_number(value: object, digits: int = 3) -> str:
    """As ``number``, without zeros after the last digit that says something: ``10``, ``0.5``."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: object) -> str:
    """A whole number with thousands separated."""
    x = finite(value)
    return DASH if x is None else f"{round(x):,}"


def short_count(value: object) -> str:
    """A whole number in at most five characters: ``987``, ``12.3k``, ``4.56M``."""
    x = finite(value)
    if x is None:
        return DASH
    if abs(x) < 10_000:
        return f"{round(x):,}"
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 0.9995 * factor:
            return f"{number(x / factor)}{letter}"
    raise AssertionError("unreachable: the thousands are covered above")


def percent(share: object) -> str:
    """A share in per cent, rounded towards the doubtful side: 100 % only when nothing is missing.

    >>> percent(0.99996), percent(1.0), percent(0.95)
    ('99.9%', '100%', '95.0%')
    """
    x = finite(share)
    if x is None:
        return DASH
    if x >= 1:
        return "100%"
    # The small term keeps 0.95 * 1000 = 949.999... at 95.0.
    return f"{math.floor(x * 1000 + 1e-9) / 10:.1f}%"


def ratio(value: object) -> str:
    """A ratio or a change in per cent: unlike a share, it may be above 100 %.

    >>> ratio(2.792), ratio(0.352), ratio(-1.4)
    ('279%', '35.2%', '-140%')
    """
    x = finite(value)
    if x is None:
        return DASH
    return f"{100 * x:.1f}%" if abs(x) < 0.9995 else f"{100 * x:,.0f}%"


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit for a column or an axis of times: its name and how many of it make a second."""

    name: str
    per_s: float

    def show(self, seconds: object, digits: int = 3) -> str:
        """The figure alone, in this unit; the unit stands in the header."""
        x = finite(seconds)
        return DASH if x is None else number(x * self.per_s, digits)


SECONDS: Final = TimeUnit("s", 1.0)
_UNITS: Final = (SECONDS, TimeUnit("ms", 1e3), TimeUnit("µs", 1e6))


def time_unit(values_s: Iterable[object]) -> TimeUnit:
    """The largest of s, ms and µs in which the median of the values is at least 1 (0.5 for seconds)."""
    known = sorted(x for x in (finite(v) for v in values_s) if x is not None and x > 0)
    if not known:
        return SECONDS
    middle = known[len(known) // 2]
    for unit, least in zip(_UNITS, (0.5, 1.0, 0.0), strict=True):
        if middle * unit.per_s >= least:
            return unit
    return SECONDS


def duration(seconds: object) -> str:
    """A time span for people: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    x = finite(seconds)
    if x is None:
        return DASH
    if abs(x) < 60:
        unit = time_unit([abs(x)])
        return f"{plain_number(x * unit.per_s)} {unit.name}"
    whole = round(x)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
