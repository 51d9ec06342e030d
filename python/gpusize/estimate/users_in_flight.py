"""How many of the users who pause between their requests are in flight at once.

With c in flight the tested GPUs answer X(c) requests per second, so each user is in flight for c / X(c) and pauses for
Z: a share p = c / (c + X(c) Z) of the time (the interactive response time law; Denning and Buzen, ACM Computing Surveys
10, 1978). Levels may have had users who pause, too, for Y: then C of them have c = C - X(C) Y in flight, and c + X(C) Z
of those who pause for Z are as much. Of N users whose pauses are drawn each for itself, the number in flight is
binomial: N p, and a standard deviation of sqrt(N p (1 - p)). Pauses that are all equal may fall into step, and then all
users are in flight at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import think_s
from gpusize.analysis.throughput import rates_of
from gpusize.estimate.one_pause import pause_text

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Question

__all__ = ["LESS", "NO_PAUSE", "PAUSING", "UsersInFlight"]

PAUSING: Final = (
    "users pause as the question says, each for itself: as many are in flight as pauses leave in the mean, and one "
    "standard deviation more"
)
NO_PAUSE: Final = (
    "users pause as the test's did: where they pause longer, fewer GPUs are enough, unless equal pauses fall into step"
)
LESS: Final = (
    "users pause less than the test's did: each counts for as many of those as there were in flight for one of them"
)
SURE: Final = 3.0
"""Standard deviations above the mean beyond which the number in flight next to never goes."""


@dataclass(frozen=True, slots=True)
class UsersInFlight:
    """Users of a question in users of the levels, by what the tested GPUs carry.

    Attributes:
        users: all of them.
        think_s: mean pause of each; 0 where all count as in flight.
        rates: (users of a level, requests per second), ascending; empty where users are those of the levels.
        measured_s: mean pause of the levels' users.
        equal: whether theirs are all as long.
    """

    users: float
    think_s: float = 0.0
    rates: tuple[tuple[float, float], ...] = ()
    measured_s: float = 0.0
    equal: bool = False

    @classmethod
    def of(cls, levels: Sequence[LevelData], question: Question) -> UsersInFlight:
        """By their pauses, where the levels' are one and their rates are known; else, as if they were the levels'.

        Pauses of one length may fall into step: then all count as in flight, but where the levels had the same.
        """
        pauses = {think_s(lv.setting) for lv in levels}
        measured = pauses.pop() if len(pauses) == 1 else None
        asked_s = question.think_s if question.think == "exponential" else 0.0
        if measured is not None and measured == (question.think_s, asked_s):
            asked_s = question.think_s
        if measured is None or measured[0] == asked_s == 0:
            return cls(question.users)
        known = {lv.concurrency: rates_of(lv).achieved for lv in levels if lv.concurrency and lv.state == "done"}
        rates = tuple(sorted((float(c), rate) for c, rate in known.items() if rate))
        return cls(question.users, asked_s, rates, measured[0], measured[1] == 0) if rates else cls(question.users)

    @property
    def measured_text(self) -> str:
        """The pause of the levels' users as ``--think`` takes it."""
        return pause_text(self.measured_s, equal=self.equal)

    @property
    def assumed(self) -> str | None:
        """What is taken for granted of the pauses; None where users are those of the levels."""
        if not self.rates or self.think_s == self.measured_s:
            return None
        return PAUSING if self.think_s > self.measured_s else LESS

    def in_flight(self, capacity: float) -> float:
        """Requests in flight of so many of the levels' users."""
        return self._capacity(capacity)[0]

    def mean(self, capacity: float) -> float:
        """In the mean, where the tested GPUs have ``capacity`` of the levels' users."""
        return self.users * self._share(capacity)

    def most(self, capacity: float) -> float:
        """The same and one standard deviation more; never more than all in flight."""
        return self._above(capacity, 1.0)

    def surely(self, capacity: float) -> float:
        """The same and three of them more."""
        return self._above(capacity, SURE)

    def at_most(self, capacity: float) -> float:
        """All of them at once, as far as they can be."""
        return self.users * max(1.0, self._share(capacity))

    def _above(self, capacity: float, deviations: float) -> float:
        share = self._share(capacity)
        if share >= 1.0:
            return self.users * share
        return min(self.users, self.users * share + deviations * math.sqrt(self.users * share * (1 - share)))

    def _share(self, capacity: float) -> float:
        """Users of the levels for one of the question's: so many of each have the same in flight."""
        in_flight, per_s = self._capacity(capacity)
        return 1.0 if self.think_s == self.measured_s else capacity / (in_flight + per_s * self.think_s)

    def _capacity(self, users: float) -> tuple[float, float]:
        """In flight of so many of the levels' users, and their requests per second; 0 where nothing is asked of it."""
        if not self.rates:
            return users, 0.0
        import numpy as np

        loads, rates = zip(*self.rates, strict=True)
        per_s = float(np.interp(users, loads, rates))
        return max(users - per_s * self.measured_s, min(1.0, users)), per_s
