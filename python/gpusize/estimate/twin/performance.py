"""How a given number of replicas performs under a load: what is left when one fails, and what they serve per second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusize.estimate.twin.fewest_replicas import Counter
from gpusize.estimate.twin.visit_data import tightest

if TYPE_CHECKING:
    from gpusize.estimate.twin.contention import Contention
    from gpusize.estimate.twin.load import ClusterLoad
    from gpusize.estimate.twin.simulate import Replica

__all__ = ["Performance", "performance"]


@dataclass(frozen=True, slots=True)
class Performance:
    """How so many replicas fare under a load.

    Attributes:
        shares: attainment of each objective; 0 where more comes than can ever be served.
        targets: the share that each asks for.
        per_s: requests that they serve per second; None where more comes than can be served.
    """

    shares: tuple[float, ...]
    targets: tuple[float, ...]
    per_s: float | None

    @property
    def worst(self) -> int:
        """Number of the objective that is nearest to being missed, or missed by most."""
        return tightest(self.shares, self.targets)

    @property
    def kept(self) -> bool:
        """Whether every objective is kept."""
        return self.shares[self.worst] >= self.targets[self.worst]


def performance(
    replica: Replica, asked: ClusterLoad, targets: Sequence[float], loss: Contention, replicas: float
) -> Performance:
    """By simulation of the fitted replica; of a part of one in proportion.

    Args:
        replica: what is simulated.
        asked: the load on all of them.
        targets: the share that each objective asks for.
        loss: what replicas cost each other.
        replicas: how many there are, above 0.
    """
    whole = math.ceil(replicas - 1e-9)
    asked = asked.of(asked.load * whole / replicas)
    counter = Counter(replica, asked, targets, loss)
    if counter.overrun(asked.load, whole):
        return Performance((0.0,) * len(targets), tuple(targets), None)
    found = counter.run(asked.load, whole)
    # The simulated time of replicas that slow each other down runs faster by their slowness.
    cycle_s = found.runtime_s * loss.slowness(whole) + asked.think_s
    per_s = (asked.rate or 0.0) if asked.users is None else asked.users / cycle_s
    return Performance(found.shares(1.0), tuple(targets), per_s * replicas / whole)
