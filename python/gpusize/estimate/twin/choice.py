"""Which model of a replica may answer: the first that repeats what was measured, else the one that comes nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.calibration import Candidate, calibrated
from gpusize.estimate.twin.fit import batching, flow, measured
from gpusize.estimate.twin.rehearsal import rehearsals

if TYPE_CHECKING:
    from gpusize.estimate.twin.curve import Curve, Share
    from gpusize.estimate.twin.observed import Observed

__all__ = ["choose"]

MISFIT: Final = 0.03
"""A model whose times are further off than this near the edge may not answer while another is nearer."""
STRANGE: Final = 0.04
"""Likewise for the load that it carries where the number in flight changes."""
WANDER: Final = {"batching": 0.01, "flow": 0.06, "measured": 0.0}
"""What a model is thought to get wrong there, as a share of the load."""


def choose(
    visits: Sequence[Observed],
    curves: Sequence[Curve],
    edges: Sequence[float],
    played: Sequence[Observed],
    *,
    even: bool,
    model: str | None,
) -> Candidate | None:
    """A fitted, calibrated and rehearsed model; None where the records are not enough for any.

    Where replicas keep the same number in flight, nothing needs to be simulated, and what was measured has no misfit.

    Args:
        visits: closed loops without pauses on one replica.
        curves: one per objective.
        edges: users up to which each objective is kept.
        played: rehearsals, where the question's load is not even.
        even: whether it is.
        model: one that is to answer, whatever the others say.
    """
    joint = len(curves[0].objective.parts) > 1
    binding = min(range(len(edges)), key=lambda number: edges[number])
    error, freedom = _stretches(curves[binding], edges[binding])
    sampled = _sampled(curves[binding], edges[binding])

    def played_by(candidate: Candidate) -> Candidate:
        return _rehearsed(candidate, curves, played)

    found = []
    if model in (None, "batching") and (replica := batching(visits, curves, joint=joint)) is not None:
        reach = 0.25 if even else 0.6
        first = calibrated("batching", replica, curves, edges, prior=0.004, reach=reach, sampled=sampled)
        found.append(played_by(first) if first.distance <= MISFIT or not even else first)
        known = bool(first.levels) or not even
        if (known and first.distance <= MISFIT and found[0].strange <= STRANGE) or model is not None:
            return found[0]
    if even and model in (None, "measured") and (replica := measured(visits, curves)) is not None:
        return Candidate("measured", replica, (0.0,) * len(curves), error, freedom, 0.0, 0.0)
    if model in (None, "flow"):
        flows = [flow(visits, curves, min(edges), queue=queue) for queue in (False, True)]
        found += [
            played_by(calibrated("flow", each, curves, edges, prior=0.02, reach=0.6, sampled=sampled))
            for each in flows
            if each is not None
        ]
    return min(found, key=_doubt) if found else None


def _doubt(candidate: Candidate) -> float:
    """How far a model is off: where loads vary, rehearsals tell it, and levels that do not the less."""
    return math.hypot(candidate.strange, candidate.distance * (0.5 if candidate.rehearsals else 1.0))


def _rehearsed(candidate: Candidate, curves: Sequence[Curve], played: Sequence[Observed]) -> Candidate:
    factors = [math.exp(each) for each in candidate.corrections]
    found = rehearsals(candidate.replica, factors, played, [curve.objective for curve in curves])
    return replace(candidate, rehearsals=found, wander=WANDER[candidate.name])


def _sampled(curve: Curve, edge: float) -> float:
    """Standard error of the logarithm of the bound that independent requests as many as there were would have."""
    share = curve.objective.share
    if share is None:
        return 0.0
    n = sum(each.logs.size for each in curve.levels)
    users = max(1, round(edge))
    step = 0.05
    slope = (curve.stretched(users, math.exp(step)) - curve.stretched(users, math.exp(-step))) / (2 * step)
    return min(0.2, math.sqrt(share * (1 - share) / max(n, 1)) / max(slope, 1e-2))


def _stretches(curve: Curve, edge: float) -> tuple[float, float]:
    """Standard error of the logarithm of the bound at which the attainment is met, and its degrees of freedom."""
    share = curve.objective.share
    if share is None:
        return 0.01, 10.0
    users = max(1, round(edge))
    found: Share = curve.at(users)
    error = max(found.error, 1e-6)

    def stretch(wanted: float) -> float:
        low, high = -0.7, 0.7
        for _ in range(24):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if curve.stretched(users, math.exp(middle)) < wanted else (low, middle)
        return 0.5 * (low + high)

    above = min(found.value + error, 1.0 - 1e-9)
    below = max(found.value - error, 1e-9)
    return 0.5 * (stretch(above) - stretch(below)), found.freedom
