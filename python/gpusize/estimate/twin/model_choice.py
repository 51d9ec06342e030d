"""Which model of a replica may answer: the first that repeats what was measured, else the one that comes nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import Fits
from gpusize.estimate.twin.calibration import Candidate, calibrated, felt
from gpusize.estimate.twin.candidates import flow, measured, static
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.mechanics import likest
from gpusize.estimate.twin.resemblance import runtimes_off
from gpusize.estimate.twin.static_batch_model import COMPANY_ERROR
from gpusize.estimate.twin.task_model import tasks

if TYPE_CHECKING:
    from gpusize.estimate.twin.level_shares import Share
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["choose"]

MISFIT: Final = 0.03
"""A model whose times are further off than this near the capacity may not answer while another is nearer."""
EVEN_MISFIT: Final = 0.08
"""Likewise where the measured curve is the other, whose noise is as much."""
BENT: Final = 0.1
"""One that repeats all other times may answer up to so much: it is corrected, and a curve cannot be off at its own."""
UNLIKE: Final = 0.05
"""There runtimes, too, must be nearer than this to the measured ones: a curve without a mechanism can have no wrong
one."""
PLAIN: Final = 0.5
"""Where times grow with the load by less than such a share of it, these limits are as much smaller: the curve is off at
a load by nothing, and a little of such a time is a lot of the load."""
MOST_STATIC: Final = 0.5
MOST_TASKS: Final = 0.3
"""Likewise of one whose calls are simulated, which is the only one that knows of them: a router sees calls."""
READ: Final = 0.13
"""How far off flow counts beside its distance where it reads a time from the measured curve.

A curve is not off at its own points, but users who never pause fall into step, and one request's time then tells little
of those who come when they like.
"""


def choose(
    visits: Sequence[Observed],
    curves: Sequence[Curve],
    capacities: Sequence[float],
    *,
    even: bool,
    model: str | None,
) -> Candidate | None:
    """A fitted and calibrated model; None where the records are not enough for any.

    Where replicas keep the same number in flight, nothing needs to be simulated, and what was measured has no misfit.

    Args:
        visits: closed loops without pauses on one replica.
        curves: one per objective.
        capacities: users up to which each objective is kept.
        even: whether the question's load keeps replicas within one request of each other.
        model: one that is to answer, whatever the others say.
    """
    joint = len(curves[0].objective.parts) > 1
    binding = min(range(len(capacities)), key=lambda number: capacities[number])
    error, freedom = _stretches(curves[binding], capacities[binding])
    sampled = _sampled(curves[binding], capacities[binding])

    if model in (None, "tasks") and (inner := tasks(visits, curves)) is not None:
        loop = ClusterLoad.of_visit(visits[0])
        calls = calibrated("tasks", inner, curves, capacities, prior=0.02, reach=0.6, sampled=sampled, loop=loop)
        if visits[0].think_s > 0 or model is not None or calls.distance <= MOST_TASKS:
            return calls
    if visits[0].think_s > 0 or any(each.objective.of_calls for each in curves):
        # No other knows of pauses, nor of what is inside a request.
        return None
    found: list[Candidate] = []
    together: Candidate | None = None
    if model in (None, "static") and (whole := static(visits, curves, joint=joint)) is not None:
        together = calibrated(
            "static", whole, curves, capacities, prior=0.004, reach=0.6, sampled=sampled, company=COMPANY_ERROR
        )
        found.append(together)
    if model in (None, "batching"):
        reach = 0.25 if even else 0.6
        likely = likest(visits, curves, capacities[binding], joint=joint, shared=Fits(visits))
        if likely is not None:
            best = calibrated("batching", likely.replica, curves, capacities, prior=0.004, reach=reach, sampled=sampled)
            curved = even and together is None
            near = likely.nearly and best.distance <= BENT * (_told_by(best) if curved else 1.0)
            if model is not None or near or _repeats(best, visits, capacities[binding], even=curved):
                return best
            found.append(best)
    if together is not None and (together.distance <= MOST_STATIC or model is not None):
        # Ends in one moment and in order, with costs that explain them, are seen and not inferred.
        return together
    if even and model in (None, "measured") and (replica := measured(visits, curves)) is not None:
        unit = felt(curves[binding], capacities[binding])
        return Candidate("measured", replica, (0.0,) * len(curves), error, freedom, 0.0, 0.0, felt=unit)
    if model in (None, "flow"):
        replica = flow(visits, curves)
        if replica is not None:
            found.append(calibrated("flow", replica, curves, capacities, prior=0.02, reach=0.6, sampled=sampled))
    return min(found, key=_away) if found else None


def _away(candidate: Candidate) -> float:
    """How far off a model counts when it is held against the others."""
    reads = isinstance(candidate.replica, Flow) and not candidate.replica.whole
    return math.hypot(candidate.distance, READ if reads else 0.0)


def _repeats(candidate: Candidate, visits: Sequence[Observed], capacity: float, *, even: bool) -> bool:
    """Whether a model says what was measured, nearly enough to answer; ``even`` if the measured curve is the other."""
    if not even:
        return candidate.distance <= MISFIT
    limit = EVEN_MISFIT * _told_by(candidate)
    return candidate.distance <= limit and runtimes_off(candidate.replica, visits, capacity) <= UNLIKE


def _told_by(candidate: Candidate) -> float:
    """By how much a time tells the load, at most one."""
    return min(1.0, candidate.felt / PLAIN)


def _sampled(curve: Curve, capacity: float) -> float:
    """Standard error of the logarithm of the bound that independent requests as many as there were would have."""
    import numpy as np

    share = curve.objective.share
    n = sum(each.logs.size for each in curve.levels)
    if share is None:
        near = min(curve.levels, key=lambda each: abs(math.log(each.users / max(1.0, capacity))))
        values = np.exp(near.logs)
        spread = float(values.std()) / near.mean if math.isfinite(near.mean) and near.mean > 0 else 0.0
        return min(0.2, spread / math.sqrt(max(n, 1)))
    return min(0.2, _half(curve, max(1, round(capacity)), share, math.sqrt(share * (1 - share) / max(n, 1))))


def _stretches(curve: Curve, capacity: float) -> tuple[float, float]:
    """Standard error of the logarithm of the bound at which the attainment is met, and its degrees of freedom."""
    share, users = curve.objective.share, max(1, round(capacity))
    if share is None:
        mean = curve.mean_over_bound(users)
        return max(1e-6, mean.error / mean.value), mean.freedom
    found: Share = curve.at(users)
    return _half(curve, users, found.value, max(found.error, 1e-6)), found.freedom


def _half(curve: Curve, users: int, share: float, error: float) -> float:
    """What an error of the attainment is worth in the logarithm of the bound, with so many users.

    Between the bounds at which it is so much less and so much more: where times are nearly equal, these are close
    together, and its slope at one bound may be anything.
    """

    def stretch(wanted: float) -> float:
        low, high = -0.7, 0.7
        for _ in range(24):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if curve.stretched(users, math.exp(middle)) < wanted else (low, middle)
        return 0.5 * (low + high)

    return 0.5 * (stretch(min(share + error, 1.0 - 1e-9)) - stretch(max(share - error, 1e-9)))
