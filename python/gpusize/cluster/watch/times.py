"""The times that an API server writes, as nanoseconds with their resolution."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

__all__ = ["SECOND_NS", "event_name_ns", "parse_time"]

SECOND_NS: Final = 1_000_000_000
_EARLIEST_NS: Final = 1_400_000_000 * SECOND_NS
"""May 2014, before Kubernetes: what a name's hexadecimal ending says to be earlier is no time."""


@lru_cache(maxsize=65_536)
def parse_time(text: str) -> tuple[int, int] | None:
    """``2026-11-28T01:02:03.456789Z`` as ns since 1970 and its resolution in ns; None for what is no time.

    The resolution is that of the last digit written: 1 s without a fraction, as the API truncates to seconds.
    """
    whole, dot, rest = text.partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        fraction, zone = rest[:digits], rest[digits:]
        if not 1 <= digits <= 9:
            return None
    else:
        fraction, zone = "", ""
    try:
        moment = datetime.fromisoformat(whole + zone if dot else text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    at_ns = round(moment.timestamp()) * SECOND_NS + int(fraction.ljust(9, "0") or "0")
    return at_ns, 10 ** (9 - len(fraction))


def event_name_ns(name: str) -> int | None:
    """The time in an Event's name, ns since 1970: recorders name it ``OBJECT.HEX`` by the sender's clock.

    None where the name ends in something else.
    """
    _, dot, ending = name.rpartition(".")
    if not dot or len(ending) != 16:
        return None
    try:
        found = int(ending, 16)
    except ValueError:
        return None
    return found if _EARLIEST_NS <= found < 1 << 62 else None
