"""From visits of one replica to a count with its interval: fit, choose a model, simulate, search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpusize.estimate.twin.count import Count, Counter, mean_field
from gpusize.estimate.twin.curve import Curve, Share
from gpusize.estimate.twin.fit import Candidate, batching, calibrated, flow
from gpusize.estimate.twin.mixture import Mixture
from gpusize.estimate.twin.observed import Objective, Observed
from gpusize.estimate.twin.simulated import Asked

__all__ = ["Sized", "size"]

MISFIT: Final = 0.08
"""A model whose times are further off than this near the edge may not answer while another is nearer."""
CAUTION: Final = 0.35
"""Standard errors by which the count leans to the safe side: of two counts that are as likely, the larger costs less."""


@dataclass(frozen=True)
class Sized:
    """A count with its interval, all in replicas, and what it rests on; ``reason`` where there is none."""

    replicas: int | None = None
    raw: float | None = None
    low: int | None = None
    high: int | None = None
    raw_low: float | None = None
    raw_high: float | None = None
    capacity: float | None = None
    binding: int = 0
    model: str = ""
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


def size(
    visits: Sequence[Observed], objectives: Sequence[Objective], asked: Asked, *, model: str | None = None
) -> Sized:
    """Answer from closed-loop visits of one replica."""
    curves = [Curve(each, number, visits) for number, each in enumerate(objectives)]
    edges = [_edge(curve) for curve in curves]
    known = [each for each in edges if each is not None]
    if not known:
        return Sized(reason="no SLO is missed at any load that was measured")
    edge = min(known)
    if edge < 1:
        return Sized(reason="a single request in flight misses an SLO already")
    binding = edges.index(edge)
    slack = [_stretches(curve, min(each or edge, 1.3 * edge)) for curve, each in zip(curves, edges, strict=True)]
    error, freedom = max(slack)[0], slack[binding][1]
    places = [max(1.0, each if each is not None else edge) for each in edges]
    joint = len(objectives[0].parts) > 1
    candidates = []
    tried = {
        "batching": lambda: batching(visits, curves, joint=joint, edge=edge),
        "flow": lambda: flow(visits, curves, edge),
    }
    for name, make in tried.items():
        if model in (None, name) and (replica := make()) is not None:
            candidates.append(calibrated(name, replica, curves, places))
            if candidates[-1].misfit < MISFIT:
                break
    if not candidates:
        return Sized(reason="the records do not tell enough to fit a model")
    chosen = min(candidates, key=lambda each: each.misfit) if candidates[0].misfit >= MISFIT else candidates[0]
    return _counted(chosen, asked, objectives, edge, error, freedom, binding)


def _counted(
    chosen: Candidate,
    asked: Asked,
    objectives: Sequence[Objective],
    edge: float,
    error: float,
    freedom: float,
    binding: int,
) -> Sized:
    shares = [1.0 if each.share is None else each.share for each in objectives]
    counter = Counter(chosen.replica, asked, shares, chosen.calibration)
    guess = mean_field(asked, edge, chosen.replica.residence_s(edge))
    wide = math.hypot(error, 0.25 * chosen.misfit, 0.004)
    lean = CAUTION * math.hypot(error, 0.004)
    reach = _t95(freedom) * wide
    best = counter.fewest(math.exp(-lean), guess)
    if best is None:
        return Sized(reason="no number of replicas keeps the SLOs", model=chosen.name)
    middle = counter.fewest(1.0, best) or best
    raw = counter.raw(middle, 1.0)
    low = counter.fewest(math.exp(reach), best) or best
    high = counter.fewest(math.exp(-reach), best)
    raw_low = counter.raw(low, math.exp(reach))
    raw_high = None if high is None else counter.raw(high, math.exp(-reach))
    return Sized(
        best,
        raw,
        low,
        high,
        raw_low,
        raw_high,
        edge,
        counter.binding(best, 1.0),
        chosen.name,
        None,
        {
            "edge": edge,
            "error": error,
            "misfit": chosen.misfit,
            "calibration": chosen.calibration,
            "first_binding": binding,
            "runs": len(counter._runs),
        },
    )


def _edge(curve: Curve) -> float | None:
    return Mixture([curve]).capacity(1, curve, 1.0 if curve.objective.share is None else curve.objective.share)


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


def _t95(freedom: float) -> float:
    """Two-sided 95 % quantile of Student's t (Cornish-Fisher expansion; Abramowitz and Stegun 26.7.5)."""
    z = 1.959963984540054
    v = max(1.0, freedom)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return min(12.7, z + g1 / v + g2 / v**2 + g3 / v**3)
