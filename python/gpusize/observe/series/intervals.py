"""Intervals of time in whole milliseconds, open on the left: ``(from, to]``, as chunks of a range are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Interval", "cut", "joined", "without"]

Interval = tuple[int, int]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in the fewest intervals, ascending."""
    found: list[Interval] = []
    for low, high in sorted(each for each in intervals if each[1] > each[0]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def without(wanted: Iterable[Interval], have: Iterable[Interval]) -> list[Interval]:
    """What is wanted and not there."""
    there = joined(have)
    found = []
    for low, high in joined(wanted):
        at = low
        for begin, end in there:
            if end <= at or begin >= high:
                continue
            if begin > at:
                found.append((at, begin))
            at = end
        if at < high:
            found.append((at, high))
    return found


def cut(interval: Interval, length: int) -> Iterator[Interval]:
    """Pieces of at most this length, the first ones first."""
    low, high = interval
    while low < high:
        yield low, min(low + length, high)
        low += length
