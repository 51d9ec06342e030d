"""Another host's clock beside ours: offset and drift from pings, with a bound on the error.

A ping that leaves at t1, is answered between t2 and t3 on the other clock, and is back at t4 shows the offset
``((t2 - t1) + (t3 - t4)) / 2``, wrong by half the difference of the two ways, so by half the round trip at most. Of
each stretch of time the ping with the shortest round trip is kept: what waited on its way tells little. A straight line
through these, to which each counts by how little it waited, is offset and drift.

The bound has three parts. Half the shortest round trip: whatever the two ways' constant parts are, their difference is
not more. What the kept pings waited, the fastest among them, by the weight that each has in the line. And, while the
line is too short to show a drift, the most that a clock drifts.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["HostClock", "Ping", "Reading"]

STRETCH_NS: Final = 500_000_000
"""Of each such stretch one ping is kept."""
KEPT: Final = 240
"""Pings kept: two minutes of them."""
USUAL_DRIFT: Final = 100e-6
"""What two undisciplined quartz clocks drift apart; the line is drawn towards less while it is short."""
MOST_DRIFT: Final = 500e-6
"""What Linux bends a clock by at most (adjtimex), and so the most that two that it disciplines differ for long."""
LEAST_JITTER_NS: Final = 2_000.0
"""Two reads of a clock and the way through the kernel vary by so much."""


class Ping(NamedTuple):
    """One round trip: times on our clock when it left and came back, on the other when it came and left again; ns."""

    sent_ns: int
    came_ns: int
    left_ns: int
    back_ns: int

    @property
    def at_ns(self) -> float:
        """The middle of it on our clock."""
        return (self.sent_ns + self.back_ns) / 2

    @property
    def offset_ns(self) -> float:
        """The other clock less ours."""
        return ((self.came_ns - self.sent_ns) + (self.left_ns - self.back_ns)) / 2

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, there and back."""
        return (self.back_ns - self.sent_ns) - (self.left_ns - self.came_ns)


class Reading(NamedTuple):
    """The other clock at one moment of ours.

    Attributes:
        offset_ns: it less ours.
        drift: by which share it runs faster.
        uncertainty_ns: the offset is right to within so much.
        round_trip_ns: of the fastest ping.
        pings: how many it rests on.
    """

    offset_ns: float
    drift: float
    uncertainty_ns: float
    round_trip_ns: int
    pings: int


@dataclass
class HostClock:
    """Offset and drift of one other clock. For any thread."""

    _pings: deque[Ping] = field(default_factory=lambda: deque(maxlen=KEPT), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def add(self, ping: Ping) -> None:
        """Take one more ping; of a stretch of time the best stays."""
        with self._lock:
            last = self._pings[-1] if self._pings else None
            # The first stretch is cut finer: a level may begin before it is over.
            width = STRETCH_NS if len(self._pings) > 8 else STRETCH_NS // 50
            if last is not None and ping.sent_ns // width == last.sent_ns // width:
                if ping.round_trip_ns < last.round_trip_ns:
                    self._pings[-1] = ping
                return
            self._pings.append(ping)

    def __len__(self) -> int:
        return len(self._pings)

    def at(self, ours_ns: float) -> Reading | None:
        """The other clock at a moment of ours, past or to come; None before the first ping."""
        with self._lock:
            pings = list(self._pings)
        if not pings:
            return None
        least = min(ping.round_trip_ns for ping in pings)
        waits = [ping.round_trip_ns - least for ping in pings]
        # Even the fastest may have waited: by about as much as the next fastest ones differ from it.
        floor = max(LEAST_JITTER_NS, float(sorted(waits)[len(waits) // 10]))
        # A ping is as good as it was fast: what one way took longer is at most what it waited, half of it is its error.
        trust = [(2 / (floor + wait)) ** 2 for wait in waits]
        whole = sum(trust)
        first, base = pings[0].at_ns, pings[0].offset_ns
        middle = sum(w * (ping.at_ns - first) for w, ping in zip(trust, pings, strict=True)) / whole + first
        mean = sum(w * (ping.offset_ns - base) for w, ping in zip(trust, pings, strict=True)) / whole
        around = [ping.at_ns - middle for ping in pings]
        pull = 1 / USUAL_DRIFT**2
        spread = sum(w * x * x for w, x in zip(trust, around, strict=True)) + pull
        moments = zip(trust, around, pings, strict=True)
        slope = sum(w * x * (ping.offset_ns - base) for w, x, ping in moments) / spread
        after = ours_ns - middle
        parts = [w / whole + after * w * x / spread for w, x in zip(trust, around, strict=True)]
        waited = sum(abs(part) * (wait + floor) / 2 for part, wait in zip(parts, waits, strict=True))
        # Beyond the pings a line counts some against others. What is constant cancels out, what the fastest itself
        # waited does not; it hardly waited more than half of the others did beyond it.
        own = min(float(least), sorted(waits)[len(waits) // 2])
        fastest = (least + (sum(map(abs, parts)) - 1) * own) / 2
        unseen = MOST_DRIFT * abs(after) * pull / spread
        return Reading(base + mean + slope * after, slope, fastest + waited + unseen, least, len(pings))

    def to_host(self, ours_ns: int) -> int:
        """A moment of ours on the other clock.

        Raises:
            LookupError: there was no ping yet.
        """
        found = self.at(ours_ns)
        if found is None:
            raise LookupError("no ping of this host has come back yet")
        return ours_ns + round(found.offset_ns)
