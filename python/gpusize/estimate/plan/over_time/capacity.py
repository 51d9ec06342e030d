"""How many replicas a rate needs: the largest rate that so many replicas carry within the SLOs, number by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.fewest_replicas import Counter

__all__ = ["Capacities", "capacities"]

EACH: Final = 4
"""Up to so many replicas each number is simulated; beyond, some, about a half more each time."""
STEP: Final = 1.5
CLOSE: Final = 0.005
"""The rate is searched to this share."""
TURNS: Final = 14
NONE: Final = 1e-3
"""A share of the largest rate that a replica was seen to serve, below which it is said to carry nothing."""


@dataclass(frozen=True, eq=False)
class Capacities:
    """What 1, 2, ... replicas carry.

    Attributes:
        counts: numbers of replicas that were simulated, ascending.
        rates: requests per second that they carry, of the same shape.
        carried: requests per second of 1, 2, ... replicas, never falling: those in between by their rate per replica,
            along the logarithm of their number.
    """

    counts: NDArray[np.int64]
    rates: NDArray[np.float64]
    carried: NDArray[np.float64]

    def needed(self, rates: NDArray[np.float64]) -> NDArray[np.int64]:
        """The fewest replicas for each rate; one more than there are known where none of these is enough."""
        import numpy as np

        return np.searchsorted(self.carried, rates, "left") + 1

    def to_json(self) -> list[dict[str, float]]:
        """The numbers that were simulated."""
        return [
            {"replicas": count, "rate_per_s": rate}
            for count, rate in zip(self.counts.tolist(), self.rates.tolist(), strict=True)
        ]

    @property
    def most(self) -> float:
        """The largest rate for which a number is known."""
        return float(self.carried[-1])


def capacities(counter: Counter, most_per_s: float) -> Capacities:
    """The capacities of as many replicas as the largest rate needs.

    Args:
        counter: simulates a rate on a number of replicas.
        most_per_s: the largest rate that is wanted.

    Returns:
        Capacities that end below ``most_per_s`` where no number of replicas carries it.
    """
    import numpy as np

    counts: list[int] = []
    rates: list[float] = []
    count, each = 1, counter.replica.most_per_s
    most = counter.loss.most
    while True:
        rates.append(_carried(counter, count, each))
        counts.append(count)
        if rates[-1] >= most_per_s or rates[-1] <= 0 or count == most:
            break
        each = rates[-1] / count
        # Not far beyond what is needed: a number is dear to simulate there, and of no use.
        enough = max(count + 1, round(1.1 * count * most_per_s / rates[-1]))
        following = count + 1 if count < EACH else round(STEP * count)
        count = min(following, enough, most if most is not None else enough)
    number = np.arange(1, counts[-1] + 1)
    per_replica = np.interp(np.log(number), np.log(counts), np.array(rates) / counts)
    return Capacities(np.array(counts), np.array(rates), np.maximum.accumulate(per_replica * number))


def _carried(counter: Counter, count: int, each: float) -> float:
    """The largest rate that so many replicas carry, near ``each`` per replica; 0 where that is next to nothing."""
    top = counter.replica.most_per_s * count

    def margin(rate: float) -> float:
        return counter.margin(rate, count)

    low, high = 0.0, min(1.08 * each, 1.05 * counter.replica.most_per_s) * count
    at_low, at_high = 1.0, margin(high)
    while at_high >= 0 and high < 4 * top:
        low, at_low, high = high, at_high, 1.15 * high
        at_high = margin(high)
    if at_high >= 0:
        return high
    step = 0.93
    while low == 0.0:
        rate = step * high
        found = margin(rate)
        if found >= 0:
            low, at_low = rate, found
        elif rate < NONE * top:
            return 0.0
        else:
            high, at_high, step = rate, found, step * step
    for _ in range(TURNS):
        if high - low <= CLOSE * low:
            break
        # The margin is steep and bent: between bisection and the chord.
        chord = at_low / (at_low - at_high) if at_low > at_high else 0.5
        middle = low + (high - low) * min(0.85, max(0.15, 0.5 * (chord + 0.5)))
        found = margin(middle)
        low, at_low, high, at_high = (middle, found, high, at_high) if found >= 0 else (low, at_low, middle, found)
    return low + (high - low) * (at_low / (at_low - at_high) if at_low > at_high else 0.0)
