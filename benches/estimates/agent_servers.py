"""Replicas that work on calls, each by rules of its own, under tasks of several calls: the truth of ``agents``.

Nothing of gpusize is in here. A router gives each call to the replica that has the fewest, by lot among equals.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Drawn", "Iterating", "Loop", "Places", "Replica", "Sharing", "Task", "run"]


@dataclass(frozen=True)
class Task:
    """What a request does: the work of each call, the time before it, and the time after the last one, s."""

    work: Sequence[float]
    before_s: Sequence[float]
    after_s: float = 0.0


@dataclass
class Drawn:
    """A task under way, with the times of its calls."""

    task: Task
    due_s: float
    user: int
    calls: list[tuple[float, float]] = field(default_factory=list)
    end_s: float = float("nan")


class Replica(Protocol):
    """One replica, in the time of a run."""

    there: int

    def enter(self, now_s: float, work: float, call: object) -> None:
        """A call comes."""

    def next_s(self) -> float:
        """When something happens next; infinite where nothing does."""

    def step(self, now_s: float) -> list[object]:
        """Let it happen; the calls that are done by it."""


class Places:
    """So many places, each for one call at a time; the others wait in order."""

    def __init__(self, places: int) -> None:
        self.places, self.there = places, 0
        self._busy: list[tuple[float, int, object]] = []
        self._waiting: deque[tuple[float, object]] = deque()
        self._order = itertools.count()

    def enter(self, now_s: float, work: float, call: object) -> None:
        """See ``Replica``."""
        self.there += 1
        if len(self._busy) < self.places:
            heapq.heappush(self._busy, (now_s + work, next(self._order), call))
        else:
            self._waiting.append((work, call))

    def next_s(self) -> float:
        """See ``Replica``."""
        return self._busy[0][0] if self._busy else float("inf")

    def step(self, now_s: float) -> list[object]:
        """See ``Replica``."""
        _, _, call = heapq.heappop(self._busy)
        self.there -= 1
        if self._waiting:
            work, following = self._waiting.popleft()
            heapq.heappush(self._busy, (now_s + work, next(self._order), following))
        return [call]


class Sharing:
    """All calls at once, each the slower by a share of itself for every other one."""

    def __init__(self, slower: float) -> None:
        self.slower, self.there = slower, 0
        self._calls: list[tuple[float, int, object]] = []
        """With what one that was there all the time would have got by the end of each."""
        self._order = itertools.count()
        self._got, self._at_s = 0.0, 0.0

    @property
    def _slowness(self) -> float:
        return 1 + self.slower * (self.there - 1)

    def _advance(self, now_s: float) -> None:
        self._got += (now_s - self._at_s) / self._slowness if self.there else 0.0
        self._at_s = now_s

    def enter(self, now_s: float, work: float, call: object) -> None:
        """See ``Replica``."""
        self._advance(now_s)
        heapq.heappush(self._calls, (self._got + work, next(self._order), call))
        self.there += 1

    def next_s(self) -> float:
        """See ``Replica``."""
        if not self._calls:
            return float("inf")
        return self._at_s + max(0.0, self._calls[0][0] - self._got) * self._slowness

    def step(self, now_s: float) -> list[object]:
        """See ``Replica``."""
        self._advance(now_s)
        self.there -= 1
        return [heapq.heappop(self._calls)[2]]


class Iterating:
    """One token for each call in every iteration, of a time that grows with the calls; new ones join between two."""

    def __init__(self, base_s: float, each_s: float, most: int) -> None:
        self.base_s, self.each_s, self.most, self.there = base_s, each_s, most, 0
        self._batch: list[tuple[int, object]] = []
        self._waiting: deque[tuple[int, object]] = deque()
        self._end_s = float("inf")

    def enter(self, now_s: float, work: float, call: object) -> None:
        """See ``Replica``; the work is its tokens."""
        self.there += 1
        self._waiting.append((max(1, round(work)), call))
        if self._end_s == float("inf"):
            self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        while self._waiting and len(self._batch) < self.most:
            self._batch.append(self._waiting.popleft())
        self._end_s = now_s + self.base_s + self.each_s * len(self._batch) if self._batch else float("inf")

    def next_s(self) -> float:
        """See ``Replica``."""
        return self._end_s

    def step(self, now_s: float) -> list[object]:
        """See ``Replica``."""
        done = [call for tokens, call in self._batch if tokens == 1]
        self._batch = [(tokens - 1, call) for tokens, call in self._batch if tokens > 1]
        self.there -= len(done)
        self._begin(now_s)
        return done


@dataclass(frozen=True)
class Loop:
    """Who asks: users of a closed loop, who may pause, or requests at random at a rate."""

    users: int = 0
    rate: float = 0.0
    think: Callable[[random.Random], float] | None = None


def run(
    make: Callable[[], Replica],
    replicas: int,
    draw: Callable[[random.Random], Task],
    loop: Loop,
    tasks: int,
    seed: int,
    *,
    drain: bool = False,
) -> list[Drawn]:
    """So many tasks to their end, in the order in which they were due.

    More are under way until then, as in a loop that goes on; with ``drain`` no more than those are begun.
    """
    course = _Course([make() for _ in range(replicas)], draw, loop, random.Random(seed))
    while course.ended < tasks:
        course.step(begins=not drain or len(course.begun) < tasks)
    return course.begun


class _Course:
    """A run under way."""

    def __init__(
        self, servers: list[Replica], draw: Callable[[random.Random], Task], loop: Loop, rng: random.Random
    ) -> None:
        self.begun: list[Drawn] = []
        self.ended = 0
        self._servers, self._draw, self._loop, self._rng = servers, draw, loop, rng
        self._soonest = [float("inf")] * len(servers)
        self._events: list[tuple[float, int, str, Drawn | int]] = []
        self._order = itertools.count()
        for user in range(loop.users):
            self._at(self._pause() if loop.think else rng.random(), "due", user)
        if loop.rate:
            self._at(rng.expovariate(loop.rate), "due", 0)

    def _at(self, when_s: float, what: str, whom: Drawn | int) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), what, whom))

    def _pause(self) -> float:
        return self._loop.think(self._rng) if self._loop.think else 0.0

    def step(self, *, begins: bool) -> None:
        """Let the next thing happen; what is due without ``begins`` is not."""
        which = min(range(len(self._soonest)), key=self._soonest.__getitem__)
        now_s = self._soonest[which]
        if not self._events or now_s <= self._events[0][0]:
            for call in self._servers[which].step(now_s):
                assert isinstance(call, Drawn)
                call.calls[-1] = (call.calls[-1][0], now_s)
                self._goes_on(now_s, call)
            self._soonest[which] = self._servers[which].next_s()
            return
        now_s, _, what, whom = heapq.heappop(self._events)
        if isinstance(whom, int):
            if begins:
                self._begins(now_s, whom)
        elif what == "call":
            self._calls(now_s, whom)
        else:
            whom.end_s = now_s
            self.ended += 1
            if not self._loop.rate:
                self._at(now_s + self._pause(), "due", whom.user)

    def _begins(self, now_s: float, user: int) -> None:
        self.begun.append(Drawn(self._draw(self._rng), now_s, user))
        self._goes_on(now_s, self.begun[-1])
        if self._loop.rate:
            self._at(now_s + self._rng.expovariate(self._loop.rate), "due", 0)

    def _goes_on(self, now_s: float, drawn: Drawn) -> None:
        place = len(drawn.calls)
        if place < len(drawn.task.work):
            self._at(now_s + drawn.task.before_s[place], "call", drawn)
        else:
            self._at(now_s + drawn.task.after_s, "end", drawn)

    def _calls(self, now_s: float, drawn: Drawn) -> None:
        fewest = min(each.there for each in self._servers)
        chosen = self._rng.choice([k for k, each in enumerate(self._servers) if each.there == fewest])
        drawn.calls.append((now_s, float("nan")))
        self._servers[chosen].enter(now_s, drawn.task.work[len(drawn.calls) - 1], drawn)
        self._soonest[chosen] = self._servers[chosen].next_s()
