"""Counts of times in the engine's own buckets, so that levels of both kinds can be added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Self

__all__ = ["Times"]

UNIT_BITS: Final = 9
"""Times below 2^9 ns are one bucket: they are noise of the clock."""
SUB_BITS: Final = 8
"""256 buckets at first and 128 per doubling from there, so that none is wider than 1/128 of its time."""
LONGEST_NS: Final = 7_200_000_000_000


class Times:
    """Counts of times in nanoseconds. Not for several threads."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def record(self, time_ns: int) -> None:
        """Count one time; negative ones count as 0, ones beyond 2 h as 2 h."""
        value = min(max(time_ns, 0), LONGEST_NS)
        bits = max(value.bit_length() - SUB_BITS, UNIT_BITS)
        low = value >> bits << bits
        self._counts[low, low + (1 << bits) - 1] += 1

    @classmethod
    def of(cls, buckets: Iterable[Sequence[int]]) -> Self:
        """Counts from what ``buckets`` gave."""
        times = cls()
        times._counts.update({(low, high): count for low, high, count in buckets})
        return times

    def buckets(self) -> list[list[int]]:
        """``[low_ns, high_ns, count]`` of the buckets that are not empty, in order; bounds inclusive."""
        return [[low, high, count] for (low, high), count in sorted(self._counts.items())]

    def quantile_ns(self, share: float) -> int | None:
        """The middle of the bucket below whose end the share lies; None without counts."""
        rank = max(1, math.ceil(share * self._counts.total()))
        reached = 0
        for low, high, count in self.buckets():
            reached += count
            if reached >= rank:
                return (low + high) // 2
        return None
