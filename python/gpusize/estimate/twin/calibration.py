"""What a fitted replica gets wrong at the loads that were measured, and how far its bounds are corrected for it.

At a load with the measured attainment a the model's value over the bound has the quantile q(a). Were the model right, q
would be 1. Its logarithm x has the standard error s of the measurement; over the levels near the edge the part of the
scatter of x that measurement does not explain is the model's misfit. The correction at the edge is shrunk like any
estimate with a prior (James and Stein 1961; Efron and Morris 1973): with prior standard deviation t,

    c = x t^2 / (t^2 + s^2),   t^2 = max(t0^2, misfit^2, x^2 - s^2)

A model that says what was measured within chance is left as it is, and then carries the precision of all records, not
only of those at the edge; one that does not is bent until it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.asked import Asked
from gpusize.estimate.twin.simulated import Replica, Trial

if TYPE_CHECKING:
    from gpusize.estimate.twin.curve import Curve, Level, Share

__all__ = ["Candidate", "calibrated", "stretch_of"]

CHECKED: Final = 30_000
"""Requests of a simulation that is held against a measured level."""
AWAY: Final = 0.1
"""What a model gets wrong changes by so much per unit of log users."""
LEAST_WRONG: Final = 0.05
STEPS: Final = 14
WIDEST: Final = 1.5
"""Models that are off by more, as a logarithm, are not told apart."""
REQUESTS: Final = 60
"""Levels with fewer requests say too little."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica with what it gets wrong.

    Attributes:
        name: of the model.
        replica: what is simulated, its bounds corrected.
        corrections: logarithms of the factors, one per objective.
        error: standard error of the logarithm of the bound of the objective that decides, corrected.
        freedom: degrees of freedom of that error.
        misfit: scatter of the model's values around the measured ones beyond chance, a logarithm, the worst
            objective's.
        distance: how far they are off at all, likewise, before the correction.
        levels: (users, x, s) of the levels that were held against it, of the objective that decides.
    """

    name: str
    replica: Replica
    corrections: tuple[float, ...]
    error: float
    freedom: float
    misfit: float
    distance: float
    levels: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Off:
    correction: float
    beyond: float
    error: float
    freedom: float
    misfit: float
    levels: tuple[tuple[int, float, float], ...]


def calibrated(
    name: str,
    replica: Replica,
    curves: Sequence[Curve],
    edges: Sequence[float],
    *,
    prior: float,
    reach: float,
    sampled: float,
    company: float = 0.0,
) -> Candidate:
    """A candidate that says at the edge what was measured.

    Args:
        name: of the model.
        replica: fitted, not yet corrected.
        curves: one per objective.
        edges: users up to which each objective is kept.
        prior: t0: how wrong the model is thought to be where nothing speaks against it.
        reach: levels up to so far from the edge, in log users, are held against it.
        sampled: standard error of the bound that comes with the mix of requests; it stays where nothing is corrected.
        company: standard deviation of a level's x because requests keep the companions of its beginning, which another
            run of the same has not; shares are then not held against each other.
    """
    deciding = min(range(len(edges)), key=lambda number: edges[number])
    found = [
        _off(replica, number, curve, edge, prior, reach, company)
        for number, (curve, edge) in enumerate(zip(curves, edges, strict=True))
    ]
    chosen = found[deciding]
    near = [each for each, edge in zip(found, edges, strict=True) if edge <= 1.3 * edges[deciding]]
    return Candidate(
        name,
        replica.scaled([math.exp(each.correction) for each in found]),
        tuple(each.correction for each in found),
        math.hypot(chosen.error, sampled * (1 - chosen.error / (chosen.error + sampled + 1e-12))),
        chosen.freedom,
        max(each.misfit for each in near),
        max(math.hypot(each.misfit, each.beyond) for each in near),
        chosen.levels,
    )


def _off(replica: Replica, number: int, curve: Curve, edge: float, prior: float, reach: float, company: float) -> _Off:
    """The correction of one objective."""
    if curve.objective.share is None:
        return _Off(0.0, 0.0, 0.01, 10.0, 0.0, ())
    near = [
        each
        for each in curve.levels
        if abs(math.log(each.users / max(1.0, edge))) <= reach and each.settled and each.logs.size >= REQUESTS
    ]
    own = [
        (each.users, found) for each in near if (found := _held(replica, number, curve, each.users, curve.own(each)))
    ]
    if not own and not company:
        # The levels miss nothing, or nearly all: the curve between them may say how much at the edge.
        places = sorted({max(1, math.floor(edge)), max(1, math.ceil(edge))})
        own = [(users, found) for users in places if (found := _held(replica, number, curve, users, curve.at(users)))]
    if company:
        near, own = [], [(users, (x, math.hypot(s, company), freedom)) for users, (x, s, freedom) in own]
    if not own:
        return _Off(0.0, _wrong(replica, number, curve, near, 0.0), 0.02, 4.0, 0.0, ())
    weights = [1 / (s**2 + (AWAY * math.log(users / max(1.0, edge))) ** 2) for users, (_, s, _) in own]
    total = sum(weights)
    x = sum(w * off for w, (_, (off, _, _)) in zip(weights, own, strict=True)) / total
    error = math.sqrt(1 / total)
    freedom = sum(w * each[2] for w, (_, each) in zip(weights, own, strict=True)) / total
    levels = tuple((users, each[0], each[1]) for users, each in own)
    scatter = [(off - x) ** 2 - s * s for _, off, s in levels]
    weight = [1 / (s * s + 1e-4) for _, _, s in levels]
    misfit = (
        math.sqrt(max(0.0, sum(w * b for w, b in zip(weight, scatter, strict=True)) / sum(weight))) if levels else 0.0
    )
    known = max(prior**2, misfit**2, x * x - error * error)
    shrunk = known / (known + error * error) if error > 0 else 1.0
    beyond = max(math.sqrt(max(0.0, x * x - 2 * error * error)), _wrong(replica, number, curve, near, shrunk * x))
    return _Off(shrunk * x, beyond, error * math.sqrt(shrunk), freedom, misfit, levels)


def _wrong(replica: Replica, number: int, curve: Curve, levels: Sequence[Level], correction: float) -> float:
    """The largest difference of attainments that is beyond chance, where times cannot be held against each other.

    A share of all requests is as far off as a time by that factor; smaller ones than a twentieth count as none.
    """
    worst = 0.0
    for each in levels:
        share = curve.own(each)
        found = replica.trial(Asked(users=each.users), CHECKED).share(number, math.exp(correction))
        off = abs(found - share.value)
        if off > LEAST_WRONG + 3 * share.error:
            worst = max(worst, off)
    return worst


def _held(replica: Replica, number: int, curve: Curve, users: int, share: Share) -> tuple[float, float, float] | None:
    """(x, s, degrees of freedom) at one load; None where too few or too many miss for a quantile to mean something."""
    target = curve.objective.share or 0.0
    if not 0.02 < share.value < 1 - 0.25 * (1 - target):
        return None
    return (*_quantile(replica, number, users, share.value, share.error), share.freedom)


def _quantile(replica: Replica, number: int, users: int, share: float, error: float) -> tuple[float, float]:
    """Logarithm of the factor on the bounds that gives the measured attainment, and its standard error."""
    trial = replica.trial(Asked(users=users), CHECKED)
    low, high = max(share - error, 1e-4), min(share + error, 1 - 1e-4)
    below, at, above = (stretch_of([trial], number, each) for each in (low, share, high))
    return at, max(1e-4, 0.5 * (above - below))


def stretch_of(trials: Sequence[Trial], number: int, share: float) -> float:
    """Logarithm of the factor on an objective's bound at which the mean attainment of the trials is ``share``."""
    low, high = -WIDEST, WIDEST
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        found = sum(trial.share(number, math.exp(middle)) for trial in trials) / len(trials)
        low, high = (middle, high) if found < share else (low, middle)
    return 0.5 * (low + high)
