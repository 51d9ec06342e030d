"""How far a model's runtimes are from the measured ones near the edge, whatever metric the SLOs ask for.

A model without the replica's mechanism may be bent until one quantile at the edge is right. Its other times show it:
where a batch waits and then runs to its end, continuous batching has the bulk of the runtimes elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.calibration import CHECKED, REQUESTS, stretch_of
from gpusize.estimate.twin.load import Asked
from gpusize.estimate.twin.simulate import Batching, Replica
from gpusize.estimate.twin.visit_data import Objective

if TYPE_CHECKING:
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["runtimes_off"]

SHARES: Final = (0.5, 0.9)
REACH: Final = 0.6
"""Levels so far from the edge are looked at, in log users."""


def runtimes_off(replica: Replica, visits: Sequence[Observed], edge: float) -> float:
    """Root of the mean square of log(simulated / measured) beyond chance, of the median or the ninth decile.

    Infinite for a replica that no mechanism is known of, and where no settled level lies near.

    Args:
        replica: fitted; its bounds and their corrections do not matter.
        visits: closed loops without pauses on one replica.
        edge: users.
    """
    if not isinstance(replica, Batching):
        return math.inf
    timed = replace(replica, bounds=(("runtime", 1.0),), joint=False, factors=(1.0,))
    curve = _runtimes(visits)
    off: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    for level in curve.levels:
        if not level.settled or level.logs.size < REQUESTS or abs(math.log(level.users / max(1.0, edge))) > REACH:
            continue
        trial = timed.trial(Asked(users=level.users), CHECKED)
        for share in SHARES:
            found = curve.tail(level, share)
            if found is not None:
                off[share].append((stretch_of([trial], 0, share, found[0]) - found[0], found[1]))
    return max((_beyond(each) for each in off.values() if each), default=math.inf)


def _runtimes(visits: Sequence[Observed]) -> Curve:
    """The levels by their runtimes in seconds, infinite for requests that failed."""
    import numpy as np

    seen = [replace(each, values=np.where(each.ok, each.last_s - each.due_s, np.inf)[None, :]) for each in visits]
    return Curve(Objective((), SHARES[0], 1.0), 0, seen)


def _beyond(pairs: Sequence[tuple[float, float]]) -> float:
    """Weighted by their standard errors, whose squares do not count as differences."""
    weights = [1 / (error**2 + 1e-4) for _, error in pairs]
    square = sum(w * (x * x - error**2) for w, (x, error) in zip(weights, pairs, strict=True)) / sum(weights)
    return math.sqrt(max(0.0, square))
