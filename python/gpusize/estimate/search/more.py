"""What as much again would buy: the interval of a capacity after more looks of the same kind.

Only chance shrinks. Of the halves of an interval (`gpusize.estimate.search.crossing`) that is t v s: s falls with the
requests, as far as it comes from batches and not from moves between loads, and Student's t with the degrees of freedom.
What intervals of searches lack beside it, and what batches that run to their end add, stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.search.crossing import added_half, widened, wider_half
from gpusize.estimate.search.margin import Pooled
from gpusize.estimate.search.visits import standing
from gpusize.estimate.twin.attainment_curve import Curve

if TYPE_CHECKING:
    from gpusize.estimate.search.crossing import Crossing
    from gpusize.estimate.search.visits import Visit
    from gpusize.estimate.twin.visit_data import Objective, Observed

__all__ = ["Again", "after", "again"]


@dataclass(frozen=True, slots=True)
class Again:
    """As much again as a search has sent.

    Attributes:
        requests: how many.
        length_s: seconds that the levels took.
        times: how many times as many requests there are near the capacity then.
        low: lower end of the capacity's interval that is expected.
        high: its upper end.
        precision: half its width as a share of the capacity.
    """

    requests: int
    length_s: float
    times: float
    low: float
    high: float
    precision: float


def again(objectives: Sequence[Objective], visits: Sequence[Visit], found: Crossing) -> Again | None:
    """What as many requests as all visits sent would show, spent on looks; None where an end is open.

    Args:
        objectives: the SLOs.
        visits: all, of which those count that ``gpusize.estimate.search.visits.standing`` leaves.
        found: what they show.
    """
    seen = [each for each in standing(visits) if each.observed is not None and not each.failed]
    sent, looks = (
        sum(each.sent for each in visits),
        sum(each.sent for each in seen if each.why not in ("grow", "check")),
    )
    if not looks:
        return None
    times = 1 + sent / looks
    then = after(objectives, [each.observed for each in seen if each.observed is not None], found, times)
    if then is None or then.high is None:
        return None
    return Again(sent, sum(each.length_s for each in visits), times, then.low, then.high, then.precision)


def after(
    objectives: Sequence[Objective], visits: Sequence[Observed], found: Crossing, times: float
) -> Crossing | None:
    """The capacity with the interval that is expected where there are ``times`` times as many requests near it.

    None where an end of the interval is open: nobody knows then whether more requests would close it.
    """
    if not found.capacity or found.high is None or found.low <= 0:
        return None
    pooled = Pooled(Curve(objectives[found.binding], found.binding, visits))
    users = max(1, round(found.capacity))
    now, then = pooled.at(users), pooled.at(users, times)
    if now.error <= 0:
        return found
    shrunk = t_quantile(then.freedom) * then.error / (t_quantile(now.freedom) * now.error)
    added = added_half(static=found.static)
    low, high = (
        wider_half(shrunk * widened(half, added), added)
        for half in (math.log(found.capacity / found.low), math.log(found.high / found.capacity))
    )
    return replace(found, low=found.capacity * math.exp(-low), high=found.capacity * math.exp(high))
