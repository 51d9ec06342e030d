"""Servers as first users have them, each with the load that it carries in a closed form; none has a batch or a token.

A server is asked in a closed loop: `begin` says what becomes of a request that is sent now, with so many in hand. Every
capacity below is the most requests in flight that keep an SLO on the runtime, which follows from the server's own
formula and the bound, without any simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

__all__ = ["ENDS", "Answer", "Constant", "Dying", "Limited", "Linear", "RateLimited", "Server", "Single"]

FAST_S: Final = 0.001
"""An error that costs the server nothing."""
JITTER: Final = 0.005
"""Times differ by so much either way, as any real ones do."""


class Answer(NamedTuple):
    """What becomes of a request: how long it takes, and whether it ends ok or with which outcome and status."""

    took_s: float
    outcome: str = "ok"
    status: int | None = 200


class Server(Protocol):
    """One GPU's worth of a service."""

    @property
    def idle_s(self) -> float:
        """Time of a request that is alone."""
        ...

    def capacity(self, bound_s: float) -> float:
        """Most requests in flight that keep p95 of the runtime within a bound; 0 for none, infinite without an end."""
        ...

    def begin(self, now_s: float, in_hand: int, chance: float) -> Answer:
        """What becomes of a request that comes now; ``in_hand`` others are worked on, ``chance`` is from 0 to 1."""
        ...


def _about(time_s: float, chance: float) -> float:
    return time_s * (1 + JITTER * (2 * chance - 1))


@dataclass
class Constant:
    """Every request takes the same time, however many there are: a function that sleeps."""

    time_s: float

    @property
    def idle_s(self) -> float:
        return self.time_s

    def capacity(self, bound_s: float) -> float:
        return math.inf if bound_s > self.time_s else 0.0

    def begin(self, _now_s: float, _in_hand: int, chance: float) -> Answer:
        return Answer(_about(self.time_s, chance))


@dataclass
class Linear:
    """A request takes longer by the same for each other one: ``sleep(base + step * in flight)``."""

    base_s: float
    step_s: float

    @property
    def idle_s(self) -> float:
        return self.base_s + self.step_s

    def capacity(self, bound_s: float) -> float:
        return float(max(0, math.floor((bound_s - self.base_s) / self.step_s)))

    def begin(self, _now_s: float, in_hand: int, chance: float) -> Answer:
        return Answer(_about(self.base_s + self.step_s * (in_hand + 1), chance))


@dataclass
class Single:
    """One thread, one request after the other in their order: with k in flight a request takes k times as long."""

    time_s: float
    free_s: float = 0.0

    @property
    def idle_s(self) -> float:
        return self.time_s

    def capacity(self, bound_s: float) -> float:
        return float(math.floor(bound_s / self.time_s))

    def begin(self, now_s: float, _in_hand: int, chance: float) -> Answer:
        self.free_s = max(now_s, self.free_s) + _about(self.time_s, chance)
        return Answer(self.free_s - now_s)


@dataclass
class Limited:
    """At most so many in hand; who comes then gets an error at once: a limiter with 429, or a server that breaks."""

    time_s: float
    most: int
    status: int = 429

    @property
    def idle_s(self) -> float:
        return self.time_s

    def capacity(self, bound_s: float) -> float:
        return float(self.most) if bound_s > self.time_s else 0.0

    def begin(self, _now_s: float, in_hand: int, chance: float) -> Answer:
        if in_hand >= self.most:
            return Answer(FAST_S, "http_error", self.status)
        return Answer(_about(self.time_s, chance))


@dataclass
class RateLimited:
    """So many requests per second, two at once; more get 429. By Little's law that is rate times time in flight."""

    time_s: float
    rate: float
    bucket: float = 2.0
    at_s: float = 0.0

    @property
    def idle_s(self) -> float:
        return self.time_s

    def capacity(self, bound_s: float) -> float:
        return float(math.floor(self.rate * self.time_s)) if bound_s > self.time_s else 0.0

    def begin(self, now_s: float, _in_hand: int, chance: float) -> Answer:
        self.bucket = min(2.0, self.bucket + self.rate * (now_s - self.at_s))
        self.at_s = now_s
        if self.bucket < 1:
            return Answer(FAST_S, "http_error", 429)
        self.bucket -= 1
        return Answer(_about(self.time_s, chance))


ENDS: Final = {
    "500": Answer(FAST_S, "http_error", 500),
    "refused": Answer(FAST_S, "connect_error", None),
    "silent": Answer(10.0, "timeout", None),
}
"""How a dead server shows: an error page, nobody at the port, or a process that hangs until the client gives up."""


@dataclass
class Dying:
    """A server that answers so many requests and then none any more, in one of ``ENDS``."""

    server: Server
    requests: int
    end: str = "500"
    seen: int = field(default=0)

    @property
    def idle_s(self) -> float:
        return self.server.idle_s

    def capacity(self, bound_s: float) -> float:
        return self.server.capacity(bound_s)

    def begin(self, now_s: float, in_hand: int, chance: float) -> Answer:
        self.seen += 1
        if self.seen <= self.requests:
            return self.server.begin(now_s, in_hand, chance)
        return ENDS[self.end]
