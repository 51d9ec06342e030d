"""How many of the users who pause between their requests are in flight at once.

With c in flight the tested GPUs answer X(c) requests per second, so each user is in flight for c / X(c) and pauses for
Z: a share p = c / (c + X(c) Z) of the time (the interactive response time law; Denning and Buzen, ACM Computing Surveys
10, 1978). Of N users whose pauses are drawn each for itself, the number in flight is binomial: N p, and a standard
deviation of sqrt(N p (1 - p)). Pauses that are all equal may fall into step, and then all users are in flight at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import think_s
from gpusize.analysis.throughput import rates_of

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Question

__all__ = ["NO_PAUSE", "PAUSING", "UsersInFlight"]

PAUSING: Final = (
    "users pause as the question says, each for itself: as many are in flight as pauses leave in the mean, and one "
    "standard deviation more"
)
NO_PAUSE: Final = (
    "users pause as the test's did: where they pause longer, fewer GPUs are enough, unless equal pauses fall into step"
)
SURE: Final = 3.0
"""Standard deviations above the mean beyond which the number in flight next to never goes."""


@dataclass(frozen=True, slots=True)
class UsersInFlight:
    """Users of a question, by what the tested GPUs carry.

    Attributes:
        users: all of them.
        think_s: mean pause of each; 0 where all count as in flight.
        rates: (requests in flight, requests per second) of measured levels, ascending.
    """

    users: float
    think_s: float = 0.0
    rates: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, levels: Sequence[LevelData], question: Question) -> UsersInFlight:
        """All users, unless their pauses are random, the levels had none, and the levels' rates are known."""
        if question.think != "exponential" or any((think_s(lv.setting) or (1.0, 0.0))[0] > 0 for lv in levels):
            return cls(question.users)
        measured = {lv.concurrency: rates_of(lv).achieved for lv in levels if lv.concurrency and lv.state == "done"}
        rates = tuple(sorted((float(c), rate) for c, rate in measured.items() if rate))
        return cls(question.users, question.think_s, rates) if rates else cls(question.users)

    def mean(self, capacity: float) -> float:
        """In flight in the mean where the tested GPUs have ``capacity`` of them."""
        return self.users * self._share(capacity)

    def most(self, capacity: float) -> float:
        """The same and one standard deviation more; never more than all."""
        return self._above(capacity, 1.0)

    def surely(self, capacity: float) -> float:
        """The same and three of them more."""
        return self._above(capacity, SURE)

    def _above(self, capacity: float, deviations: float) -> float:
        share = self._share(capacity)
        return min(self.users, self.users * share + deviations * math.sqrt(self.users * share * (1 - share)))

    def _share(self, capacity: float) -> float:
        if not self.rates:
            return 1.0
        import numpy as np

        loads, rates = zip(*self.rates, strict=True)
        return capacity / (capacity + float(np.interp(capacity, loads, rates)) * self.think_s)
