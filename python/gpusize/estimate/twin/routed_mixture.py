"""Replicas behind a router that sends each request where fewest are: each carries floor or ceiling of users / n.

With no pauses between requests the number in flight is constant, and a router that picks the least loaded replica keeps
all replicas within one request of each other. So no simulation is needed: a replica with k in flight is the tested
one with k in flight, and answers come from both kinds in proportion to how many requests each serves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve

__all__ = ["curve_bracket", "curve_capacity", "curve_gap"]

SURE: Final = 2.0
"""Standard errors by which the smallest load must miss."""


def curve_capacity(curve: Curve) -> float | None:
    """Users that a replica carries with the attainment that its objective asks for, as one of several.

    None where no measured load misses it; 0 when the smallest load surely misses it, that load when it might be chance.

    Args:
        curve: of one tested replica.
    """
    share = curve.objective.target
    low, high = curve.range
    if curve.at(high).value >= share:
        return None
    least = curve.at(low)
    if least.value < share:
        return 0.0 if least.value + SURE * least.error < share else float(low)
    low, high = curve_bracket(curve)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if curve.at(middle).value >= share else (low, middle)
    inside, outside = curve.at(low).value, curve.at(high).value
    # Of users between two whole numbers per replica, part of the replicas carry one more.
    part = (inside - share) / (inside - outside) if inside > outside else 0.0
    return _users_of_part(low, part)


def curve_bracket(curve: Curve) -> tuple[int, int]:
    """The smallest measured load that surely misses, and the largest one below it that keeps: the capacity is between.

    Where nothing surely misses, the largest load is the upper end, and where nothing keeps, the smallest is the lower.
    """
    share = curve.objective.target
    low, high = curve.range
    at = {each.users: curve.at(each.users) for each in curve.levels}
    high = next((n for n, found in at.items() if found.value + SURE * found.error < share), high)
    return max((n for n, found in at.items() if n < high and found.value >= share), default=low), high


def curve_gap(curve: Curve, users: float) -> tuple[float, float]:
    """How far below and above so many users the next measured levels are, in log c; 0 at a level."""
    at = [each.users for each in curve.levels]
    below = max((each for each in at if each <= users), default=users)
    above = min((each for each in at if each >= users), default=users)
    return math.log(users / below), math.log(above / users)


def _users_of_part(low: int, part: float) -> float:
    """Users per replica x with which this part of the requests is served by replicas that carry low + 1.

    The part is (x - low)(low + 1) / x, so x = low (low + 1) / (low + 1 - part).
    """
    return low * (low + 1) / (low + 1 - part)
