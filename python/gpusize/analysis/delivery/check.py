"""What a load was held against, one thing at a time."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["DeliveryCheck", "Status"]

Status = Literal["ok", "failed", "not judged"]


class DeliveryCheck(NamedTuple):
    """One thing that was held against what was asked for.

    Attributes:
        name: ``count``, ``lateness``, ``autocorrelation``, ``dispersion``, ``order``, ``little`` or ``think``; with
            several streams followed by the stream's name in brackets.
        value: what was found; lateness in seconds, count as a share of the schedule.
        bound: what it may be; of a band the end that is nearer.
        status: ``ok``, ``failed`` or ``not judged``.
        text: in words; of a failed check the reason, with what to do.
    """

    name: str
    value: float | None
    bound: float | None
    status: Status
    text: str
