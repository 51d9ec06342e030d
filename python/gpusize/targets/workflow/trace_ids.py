"""Trace ids that say which request a call belongs to, in the form of W3C Trace Context.

A trace id is 32 hexadecimal digits: ``6770`` (which no other tool is likely to choose), 8 of the visit, 4 of the
stream, 16 of the sequence number. So whoever sees one, in a header or in a path, needs no table to find the request.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["NO_VISIT", "RequestKey", "key_of", "key_of_traceparent", "trace_id", "traceparent"]

MARK: Final = "6770"
NO_VISIT: Final = 0xFFFF_FFFF
"""The visit of requests outside every level, such as the first one before a run."""
_TRACE: Final = re.compile(rf"{MARK}([0-9a-f]{{8}})([0-9a-f]{{4}})([0-9a-f]{{16}})")
_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


class RequestKey(NamedTuple):
    """What a trace id says."""

    visit: int
    stream: int
    seq: int


def trace_id(visit: int, seq: int, stream: int = 0) -> str:
    """The trace id of a request."""
    return f"{MARK}{visit & 0xFFFF_FFFF:08x}{stream & 0xFFFF:04x}{seq & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def traceparent(visit: int, seq: int, stream: int = 0) -> str:
    """The ``traceparent`` header of a request: version 00, the trace id, a parent id made of its end, sampled."""
    trace = trace_id(visit, seq, stream)
    # A parent id of zeros is not valid; the sequence number begins at 0.
    return f"00-{trace}-{(seq + 1) & 0xFFFF_FFFF_FFFF_FFFF or 1:016x}-01"


def key_of(trace: str) -> RequestKey | None:
    """The request of a trace id; None when it is not one of ours."""
    found = _TRACE.fullmatch(trace)
    return None if found is None else RequestKey(*(int(group, 16) for group in found.groups()))


def key_of_traceparent(header: str) -> RequestKey | None:
    """The request of a ``traceparent`` header; None when it is not one of ours."""
    found = _PARENT.fullmatch(header.strip().lower())
    return None if found is None else key_of(found[1])
