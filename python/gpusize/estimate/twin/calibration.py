"""What a fitted replica gets wrong at the loads that were measured, and how far its bounds are corrected for it.

At a load with the measured attainment a the model's value over the bound has the quantile q(a). Were the model right, q
would be 1. Where next to nothing or nearly all is missed, a says little; then q is the model's quantile at the share
that is asked for, over the measured one. Its logarithm x has the standard error s of the measurement; over the levels
near the capacity the part of the scatter of x that measurement does not explain is the model's misfit. The correction
at the capacity is shrunk like any estimate with a prior (James and Stein 1961; Efron and Morris 1973): with prior
standard deviation t,

    c = x t^2 / (t^2 + s^2),   t^2 = max(t0^2, misfit^2, x^2 - s^2)

A model that says what was measured within chance is left as it is, and then carries the precision of all records, not
only of those at the capacity; one that does not is bent until it does. A model that was held against nothing is no
match.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Replica, Trial

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.level_shares import Level, Share

__all__ = ["Candidate", "calibrated", "felt", "stretch_of"]

CHECKED: Final = 30_000
"""Requests of a simulation that is held against a measured level."""
AWAY: Final = 0.1
"""What a model gets wrong changes by so much per unit of log users."""
LEAST_ERROR: Final = 0.01
"""A level is never taken to be more precise than this, as a logarithm of the load that keeps the bound."""
LEAST_FELT: Final = 0.02
"""Times that grow more slowly with the load than this do not tell it."""
UNCHECKED: Final = 0.05
"""How far off a model counts that no level was held against: too far to match, near enough to answer."""
STEPS: Final = 18
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
        felt: what an error of one percent of the load is of that objective's bound; see ``felt``.
    """

    name: str
    replica: Replica
    corrections: tuple[float, ...]
    error: float
    freedom: float
    misfit: float
    distance: float
    levels: tuple[tuple[int, float, float], ...] = ()
    felt: float = 1.0


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
    capacities: Sequence[float],
    *,
    prior: float,
    reach: float,
    sampled: float,
    company: float = 0.0,
    loop: ClusterLoad | None = None,
) -> Candidate:
    """A candidate that says at the capacity what was measured.

    Args:
        name: of the model.
        replica: fitted, not yet corrected.
        curves: one per objective.
        capacities: users up to which each objective is kept.
        prior: t0: how wrong the model is thought to be where nothing speaks against it.
        reach: levels up to so far from the capacity, in log users, are held against it.
        sampled: standard error of the bound that comes with the mix of requests; it stays where nothing is corrected.
        company: standard deviation of a level's x because requests keep the companions of its beginning, which another
            run of the same has not; only attainments are then held against each other.
        loop: what users of the levels do, however many; None: they never pause.
    """
    loop = loop or ClusterLoad(users=1)
    deciding = min(range(len(capacities)), key=lambda number: capacities[number])
    found = [
        _off(replica, loop, number, curve, capacity, prior, reach, company)
        for number, (curve, capacity) in enumerate(zip(curves, capacities, strict=True))
    ]
    chosen = found[deciding]
    near = [each for each, capacity in zip(found, capacities, strict=True) if capacity <= 1.3 * capacities[deciding]]
    return Candidate(
        name,
        replica.scaled([math.exp(each.correction) for each in found]),
        tuple(each.correction for each in found),
        math.hypot(chosen.error, sampled * (1 - chosen.error / (chosen.error + sampled + 1e-12))),
        chosen.freedom,
        max(each.misfit for each in near),
        max(math.hypot(each.misfit, each.beyond) for each in near),
        chosen.levels,
        felt(curves[deciding], capacities[deciding]),
    )


def felt(curve: Curve, capacity: float) -> float:
    """What an error of one percent of the load is of the bound, at most one: times may hardly grow with the load.

    Gaps between tokens are such times: one percent more of the bound may be half as much load again.
    """
    return min(1.0, max(LEAST_FELT, curve.elasticity(max(1.0, capacity))))


def _off(
    replica: Replica,
    loop: ClusterLoad,
    number: int,
    curve: Curve,
    capacity: float,
    prior: float,
    reach: float,
    company: float,
) -> _Off:
    unit = felt(curve, capacity)
    held = _levels(replica, loop, number, curve, capacity, reach, company, LEAST_ERROR * unit)
    if not held and not company:
        held = _between(replica, loop, number, curve, capacity, LEAST_ERROR * unit)
    if not held:
        return _Off(0.0, UNCHECKED, 0.02, 4.0, 0.0, ())
    away = [(AWAY * unit * math.log(each.users / max(1.0, capacity))) ** 2 for each in held]
    weights = [1 / (each.error**2 + far) for each, far in zip(held, away, strict=True)]
    total = sum(weights)
    x = sum(w * each.off for w, each in zip(weights, held, strict=True)) / total
    error = math.sqrt(1 / total)
    freedom = sum(w * each.freedom for w, each in zip(weights, held, strict=True)) / total
    weights = [1 / (each.error**2 + far + 1e-4) for each, far in zip(held, away, strict=True)]
    scatter = sum(w * ((each.off - x) ** 2 - each.error**2) for w, each in zip(weights, held, strict=True))
    misfit = math.sqrt(max(0.0, scatter / sum(weights)))
    known = max(prior**2, misfit**2, x * x - error * error)
    shrunk = known / (known + error * error) if error > 0 else 1.0
    beyond = math.sqrt(max(0.0, x * x - 2 * error * error))
    levels = tuple((each.users, each.off, each.error) for each in held)
    return _Off(shrunk * x, beyond, error * math.sqrt(shrunk), freedom, misfit, levels)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a model gets wrong at one load, as a logarithm, with the measurement's standard error."""

    users: int
    off: float
    error: float
    freedom: float


def _levels(
    replica: Replica,
    loop: ClusterLoad,
    number: int,
    curve: Curve,
    capacity: float,
    reach: float,
    company: float,
    least: float,
) -> list[_Held]:
    """The measured levels near the capacity: by their attainment, and where that says little by their quantile."""
    found = []
    for level in curve.levels:
        if not level.settled or level.logs.size < REQUESTS or abs(math.log(level.users / max(1.0, capacity))) > reach:
            continue
        trial = replica.run(loop.of(level.users), 1, requests=CHECKED)
        mean = curve.objective.share is None
        held = None if mean else _by_share(trial, number, curve, level.users, curve.own(level))
        if held is None and (mean or not company):
            held = _by_tail(trial, number, curve, level)
        if held is not None:
            found.append(replace(held, error=math.hypot(max(least, held.error), company)))
    return found


def _between(
    replica: Replica, loop: ClusterLoad, number: int, curve: Curve, capacity: float, least: float
) -> list[_Held]:
    """The whole numbers of users around the capacity, by the curve between the levels."""
    found: list[_Held] = []
    if curve.objective.share is None:
        return found
    for users in sorted({max(1, math.floor(capacity)), max(1, math.ceil(capacity))}):
        share = curve.at(users)
        held = _by_share(replica.run(loop.of(users), 1, requests=CHECKED), number, curve, users, share)
        if held is not None:
            found.append(replace(held, error=max(least, held.error)))
    return found


def _by_share(trial: Trial, number: int, curve: Curve, users: int, share: Share) -> _Held | None:
    """By the factor on the bound at which the model has the measured attainment; None where that means little."""
    target = curve.objective.share or 0.0
    if not 0.02 < share.value < 1 - 0.25 * (1 - target):
        return None
    around = max(share.value - share.error, 1e-4), share.value, min(share.value + share.error, 1 - 1e-4)
    below, at, above = (stretch_of([trial], number, each) for each in around)
    return _Held(users, at, 0.5 * (above - below), share.freedom)


def _by_tail(trial: Trial, number: int, curve: Curve, level: Level) -> _Held | None:
    """By the quantiles at the share that is asked for, or by the means; None where a miss is among them."""
    share, bound = curve.objective.target, curve.objective.bound
    found = curve.tail(level, share, least=0.0) if bound > 0 else None
    if found is None:
        return None
    at, error, freedom = found
    measured = at - math.log(bound)
    return _Held(level.users, stretch_of([trial], number, share, measured) - measured, error, freedom)


def stretch_of(trials: Sequence[Trial], number: int, share: float, around: float = 0.0) -> float:
    """Logarithm of the factor on an objective's bound at which the mean attainment of the trials is ``share``.

    It is looked for ``around`` a logarithm, and further than that by no more than ``WIDEST``.
    """
    low, high = around - WIDEST, around + WIDEST
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        found = sum(trial.share(number, math.exp(middle)) for trial in trials) / len(trials)
        low, high = (middle, high) if found < share else (low, middle)
    return 0.5 * (low + high)
