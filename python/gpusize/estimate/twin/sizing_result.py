"""A count of replicas with its interval, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.calibration import Candidate
    from gpusize.estimate.twin.contention import Contention
    from gpusize.estimate.twin.kept_at_all import Unsure
    from gpusize.estimate.twin.load import ClusterLoad
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Sized", "by_chance", "consistent", "failing", "flat", "missed", "never", "unfit", "within_reach"]

SPREAD: Final = 2.0
"""Requests of an open loop may be that many times their mean in flight."""

TOO_MANY_FAILED: Final = "more requests failed than {slo} allows at every measured load, which more GPUs do not mend"
"""Find out why they fail: no count follows from what was measured."""
REACH: Final = 1.5
"""Replicas that would have more in flight than so many times what one was measured with get no number."""
FAR: Final = 50.0
"""Loads that are so many times smaller than the measured capacity tell nothing of it."""


@dataclass(frozen=True)
class Sized:
    """A count with its interval, all in replicas, and what it rests on; ``reason`` where there is none.

    ``capacity`` is where the measured levels cross, ``between`` the two of them that it lies between.
    """

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
    neighbours: tuple[dict[str, Any], ...] = ()
    between: tuple[int, int] | None = None


def consistent(found: Sized, users: float) -> Sized:
    """An answer whose capacity is what its unrounded count says; none where that is not what was measured.

    Between two measured levels the times may rise in steps, as those of static batches do, so a crossing that is read
    off a smooth line through them contradicts nobody: only the levels do.

    Args:
        found: an answer for users in flight, all replicas with the same number of them, none slower than when alone.
        users: as asked.
    """
    capacity, raw = found.capacity, found.raw
    if capacity is None or raw is None:
        return found
    kept, missed = found.between or (capacity, capacity)
    if users / kept < (found.raw_low or 0.0) or users / missed > (found.raw_high or math.inf):
        levels = f"at {kept:.4g}" if kept == missed else f"between {kept:.4g} and {missed:.4g}"
        reason = (
            f"the {found.model} model says that {users / raw:.4g} in flight are carried, but the measured levels cross "
            f"{levels}, further off than its interval allows"
        )
        return Sized(reason=reason, model=found.model, details={**found.details, "refusal": "measured"})
    if users * FAR <= capacity:
        # So far below the capacity nothing is simulated that tells it.
        return replace(found, raw=users / capacity)
    return replace(found, capacity=users / raw)


def within_reach(found: Sized, most: int) -> Sized:
    """An answer whose replicas have about as many requests in flight as were measured; none where they have far more.

    A closed loop may miss a bound with two users, as their prompts arrive together, that an open one keeps with eighty
    in flight, whose prompts do not. Then nothing that was measured says how long requests take with eighty.

    Args:
        found: an answer for any load.
        most: users that were measured on one replica, at most.
    """
    each = found.details.get("in_flight_each")
    if found.replicas is None or each is None or each <= REACH * most:
        return found
    some = "1 replica" if found.replicas == 1 else f"each of {found.replicas} replicas"
    reason = (
        f"{some} would have {each:.3g} requests in flight, and at most {most} were measured: nothing says how long "
        "requests take then"
    )
    return Sized(reason=reason, model=found.model, details={**found.details, "refusal": "reach"})


def unfit(chosen: Candidate) -> Sized:
    """No model repeats what was measured."""
    reason = (
        f"no model repeats what was measured: the nearest, {chosen.name}, is off by {chosen.distance:.0%} near the "
        "capacity; more levels around it may tell why"
    )
    return Sized(reason=reason, model=chosen.name, details={"distance": chosen.distance, "levels": chosen.levels})


def flat(visits: Sequence[Observed], asked: ClusterLoad) -> Sized:
    """All measured loads keep the SLOs: one replica is enough for a load that was measured, else nobody knows."""
    top = max(visits, key=lambda each: each.users)
    most: float = top.users
    wanted = asked.users if asked.users is not None else SPREAD * (asked.rate or 0.0) * top.residence_s
    if top.think_s > 0:
        if asked.users is None:
            most = top.rate_per_s * top.residence_s
        elif asked.think_s < top.think_s:
            # Who pauses less is a heavier load: nobody knows how many of them would do.
            most = 0.0
    if wanted <= most:
        return Sized(1, wanted / most, 1, 1, None, 1.0, None, 0, "", None, {"edge": None})
    reason = f"no measured load misses an SLO, up to {top.users} in flight"
    return Sized(reason=reason, details={"refusal": "flat", "most_in_flight": top.users})


def missed(curve: Curve) -> Sized:
    """The smallest load misses an SLO already."""
    least = curve.range[0]
    slo = curve.objective.text
    if least == 1:
        reason = f"a single request in flight already misses {slo}; no number of GPUs meets it"
        return Sized(reason=reason, details={"refusal": "single"})
    return Sized(reason=f"{least} in flight, the smallest load, miss {slo}; smaller ones are worth measuring")


def by_chance(curve: Curve, few: Unsure) -> Sized:
    """Light loads do not show that they keep an SLO."""
    slo = curve.objective.text
    what = curve.objective.judged
    some = f"1 {what[:-1]}" if few.requests == 1 else f"{few.requests:,} {what}"
    reason = (
        f"{some} with up to {few.users} in flight do not show that {slo} is kept at any load: it may be missed "
        "whatever the load, and then no number of GPUs is enough. Measure 1 in flight for longer"
    )
    return Sized(reason=reason, details={"refusal": "chance"})


def failing(curves: Sequence[Curve]) -> str | None:
    """Why no number follows from loads of which each misses an SLO by its failures alone; None where one does not."""
    for curve in curves:
        if curve.fails:
            slo = curve.objective.text
            return TOO_MANY_FAILED.format(slo=slo)
    return None


def never(chosen: Candidate, loss: Contention) -> Sized:
    """No count was found: replicas slow each other down, or the reason is unknown."""
    details = {"sigma": loss.sigma, "kappa": loss.kappa, "slowness": loss.counts}
    if loss.sigma <= 0 and loss.kappa <= 0:
        reason = (
            f"the {chosen.name} model found no number of replicas that meets the SLOs, though nothing measured says "
            "that they slow each other down; more levels below the capacity may tell why"
        )
        return Sized(reason=reason, model=chosen.name, details=details)
    peak = "" if loss.most is None else f", and beyond {loss.most} another one makes all slower"
    reason = f"no number of replicas meets the SLOs: they slow each other down{peak}"
    return Sized(reason=reason, model=chosen.name, details={"refusal": "never", **details})
