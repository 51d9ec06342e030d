"""Whether requests at light loads are seen to keep an objective.

No number of replicas serves a request better than one that nobody shares. Where requests miss a bound by themselves, as
by their lengths, in whatever load they are, a curve through few of them crosses the share that is asked for somewhere,
and says a count. Twelve requests that all keep the bound of a p95 say that 78 % or more do. So of the loads up to the
capacity one at least has to show more than that, or all together:

- By counting: the lower end of Wilson's interval for the share within (Wilson 1927) reaches the share asked for.
- By how far the bound is from the times: taken for lognormal, their quantile lies below it by a standard error of that
  distance (as a tolerance limit of a normal; Hahn and Meeker, Statistical Intervals, 1991, section 4.4). And more of
  them keep it than of those at heavier loads, by more than chance (Fisher's exact test): else nothing says that the
  load matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.exact_test import chance_of_as_many
from gpusize.estimate.isotonic import wilson

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.level_shares import Level

__all__ = ["Unsure", "unsure"]

SURE: Final = 1.0
"""Standard errors."""
CHANCE: Final = 0.1
FEWEST: Final = 5
"""Requests without which their spread says nothing."""


class Unsure(NamedTuple):
    """So many requests, with up to so many users, that do not show it."""

    requests: int
    users: int


def unsure(curve: Curve, capacity: float) -> Unsure | None:
    """What does not show that an objective is kept at light loads.

    Args:
        curve: of an objective that a heavier load misses.
        capacity: users up to which it is kept, by the curve.

    Returns:
        None where they show it. Nor is it asked of a mean, or of all requests: of these no sample shows it.
    """
    share = curve.objective.share
    light = [level for level in curve.levels if level.users <= capacity]
    if share is None or not 0 < share < 1 or not light:
        return None
    n, within = _counted(curve, light)
    if wilson(within / n, n, SURE)[0] >= share:
        return None
    beyond = [level for level in curve.levels if level.users > capacity]
    # As sure of the luckiest of several as of a single one (Bonferroni).
    sure = NormalDist().inv_cdf(1 - (1 - NormalDist().cdf(SURE)) / len(light))
    if any(_shows(curve, level, beyond, share, sure) for level in light):
        return None
    return Unsure(n, light[-1].users)


def _counted(curve: Curve, levels: Sequence[Level]) -> tuple[int, int]:
    """Requests, and those within the bound."""
    sizes = [int(level.logs.size) for level in levels]
    return sum(sizes), sum(round(curve.own(level).value * n) for level, n in zip(levels, sizes, strict=True))


def _shows(curve: Curve, level: Level, beyond: Sequence[Level], share: float, sure: float) -> bool:
    import numpy as np

    n, within = _counted(curve, [level])
    if wilson(within / n, n, sure)[0] >= share:
        return True
    if n < FEWEST or within < share * n or curve.objective.bound <= 0 or not np.isfinite(level.logs).all():
        return False
    spread = float(level.logs.std(ddof=1))
    if spread > 0:
        away = (math.log(curve.objective.bound) - float(level.logs.mean())) / spread
        if away - NormalDist().inv_cdf(share) < sure * math.sqrt(1 / n + away**2 / (2 * (n - 1))):
            return False
    more, others = _counted(curve, beyond)
    return not more or chance_of_as_many(within, n, within + others, n + more) <= CHANCE
