"""How well a simulated replica repeats the records beside the SLO's own quantile: runtimes, first tokens, gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.calibration import CHECKED, REQUESTS, stretch_of
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Batching, Replica, TimeBound
from gpusize.estimate.twin.visit_data import Objective

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.level_shares import Level
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Records", "runtimes_off"]

SHARES: Final = (0.5, 0.9)
REACH: Final = 0.6
"""Levels so far from the capacity are looked at, in log users."""
LEAST: Final = 0.01
"""No difference of logarithms is taken for more certain."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a level showed of one metric: logarithms of quantiles, and their standard errors."""

    metric: str
    users: int
    quantiles: tuple[tuple[float, float, float], ...]
    """(share, at, error) each."""


class Records:
    """Medians and ninth deciles of the levels near a load, of one metric or several.

    Args:
        visits: closed loops without pauses on one replica.
        capacity: users, near which levels are looked at.
        metrics: of ``runtime``, ``ttft`` and ``itl_mean``; those that no request has are left out.
    """

    def __init__(self, visits: Sequence[Observed], capacity: float, metrics: Sequence[str]) -> None:
        self._seen = [found for each in metrics for found in _seen(visits, capacity, each)]
        self.metrics = tuple(dict.fromkeys(each.metric for each in self._seen))

    @property
    def quantiles(self) -> int:
        """How many there are."""
        return sum(len(each.quantiles) for each in self._seen)

    def differences(self, replica: Batching, requests: int) -> list[tuple[str, float, float, float]]:
        """(metric, share, log(simulated / measured), standard error of the measured) of every quantile."""
        timed = replace(
            replica,
            bounds=tuple(TimeBound(each, 1.0) for each in self.metrics),
            joint=False,
            factors=(1.0,) * len(self.metrics),
        )
        loads = {each.users for each in self._seen}
        trials = {users: timed.run(ClusterLoad(users=users), 1, requests=requests) for users in loads}
        found = []
        for each in self._seen:
            number = self.metrics.index(each.metric)
            for share, at, error in each.quantiles:
                off = stretch_of([trials[each.users]], number, share, at) - at
                found.append((each.metric, share, off, error))
        return found

    def unlike(self, replica: Batching, requests: int) -> float:
        """Sum of the squares of all differences, each over its error: what chance alone makes about their number."""
        each = self.differences(replica, requests)
        return sum(off * off / (error * error + LEAST**2) for _, _, off, error in each)


def runtimes_off(replica: Replica, visits: Sequence[Observed], capacity: float) -> float:
    """Root of the mean square of log(simulated / measured) beyond chance, of runtimes' median or ninth decile.

    Infinite for a replica that no mechanism is known of, and where no settled level lies near.

    Args:
        replica: fitted; its bounds and their corrections do not matter.
        visits: closed loops without pauses on one replica.
        capacity: users.
    """
    if not isinstance(replica, Batching):
        return math.inf
    off: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    for _, share, away, error in Records(visits, capacity, ("runtime",)).differences(replica, CHECKED):
        off[share].append((away, error))
    return max((_beyond(each) for each in off.values() if each), default=math.inf)


def _seen(visits: Sequence[Observed], capacity: float, metric: str) -> list[_Seen]:
    curve = _curve(visits, metric)
    found = []
    for level in curve.levels:
        if not level.settled or level.logs.size < REQUESTS or _away(level, capacity) > REACH:
            continue
        tails = [(share, curve.tail(level, share)) for share in SHARES]
        quantiles = tuple((share, tail[0], tail[1]) for share, tail in tails if tail is not None)
        found.append(_Seen(metric, level.users, quantiles))
    return found


def _away(level: Level, capacity: float) -> float:
    return abs(math.log(level.users / max(1.0, capacity)))


def _curve(visits: Sequence[Observed], metric: str) -> Curve:
    """The levels by one metric in seconds, infinite for requests that failed."""
    seen = [replace(each, values=_values(each, metric)[None, :]) for each in visits]
    return Curve(Objective((), SHARES[0], 1.0), 0, seen)


def _values(visit: Observed, metric: str) -> NDArray[np.float64]:
    import numpy as np

    if metric == "runtime":
        return np.where(visit.ok, visit.last_s - visit.due_s, np.inf)
    if metric == "ttft":
        return np.where(visit.ok, visit.first_s - visit.due_s, np.inf)
    gaps = visit.tokens_out - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(gaps >= 1, (visit.last_s - visit.first_s) / gaps, np.nan)
    return np.where(visit.ok, each, np.inf)


def _beyond(pairs: Sequence[tuple[float, float]]) -> float:
    """Weighted by their standard errors, whose squares do not count as differences."""
    weights = [1 / (error**2 + 1e-4) for _, error in pairs]
    square = sum(w * (x * x - error**2) for w, (x, error) in zip(weights, pairs, strict=True)) / sum(weights)
    return math.sqrt(max(0.0, square))
