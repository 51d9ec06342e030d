"""By how much the server's clock is ahead of ours, from times that it truncates to seconds.

An answer whose ``Date`` is D was written in [D, D + 1 s) by the server's clock, and between our sending and our reading
by ours. So each answer bounds the offset, and what all of them leave over is much narrower than a second. Where a
request is sent so that the middle of what is left falls on the server's next second, its answer halves it: after ten
requests what remains is about the time that one takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ClockOffset"]

SECOND_NS: Final = 1_000_000_000


@dataclass
class ClockOffset:
    """The server's clock less ours, in ns, as bounds that narrow.

    Attributes:
        lo, hi: between them; None before the first answer.
        n: how many answers they are made of.
        steps: how often an answer contradicted them: one of the clocks was set, or they drift apart. What was known is
            then given up.
        narrowest: half the time between sending and reading of the quickest answer, below which nothing narrows.
    """

    lo: int | None = None
    hi: int | None = None
    n: int = 0
    steps: int = 0
    narrowest: int = SECOND_NS

    def add(self, sent_ns: int, read_ns: int, server_s: int) -> None:
        """Take an answer into account.

        Args:
            sent_ns: when the request was sent, by our clock.
            read_ns: when the answer was read, by our clock.
            server_s: the whole second that the server said it was in between.
        """
        lo = server_s * SECOND_NS - read_ns
        hi = (server_s + 1) * SECOND_NS - sent_ns
        self.narrowest = min(self.narrowest, (read_ns - sent_ns) // 2)
        if self.lo is None or self.hi is None:
            self.lo, self.hi, self.n = lo, hi, 1
        elif max(lo, self.lo) >= min(hi, self.hi):
            self.lo, self.hi, self.n = lo, hi, 1
            self.steps += 1
        else:
            self.lo, self.hi, self.n = max(lo, self.lo), min(hi, self.hi), self.n + 1

    @property
    def middle(self) -> int | None:
        """The middle of the bounds."""
        return None if self.lo is None or self.hi is None else (self.lo + self.hi) // 2

    def next_ns(self, now_ns: int, takes_ns: int = 0) -> int:
        """When to send next, by our clock, so that the answer halves what is left: at most a second from now.

        Args:
            now_ns: the time now, by our clock.
            takes_ns: how long a request takes to be handled.
        """
        middle = self.middle
        if middle is None:
            return now_ns
        # Handled when the server's clock, were it ahead by the middle, shows a whole second.
        past = (now_ns + takes_ns + middle) % SECOND_NS
        return now_ns + (SECOND_NS - past) % SECOND_NS

    def document(self) -> dict[str, Any] | None:
        """As ``cluster.json`` has it; None before the first answer."""
        if self.lo is None:
            return None
        return {"offset_ns": self.middle, "lo": self.lo, "hi": self.hi, "n": self.n, "steps": self.steps}
