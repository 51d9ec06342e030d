"""The total rate of a replica by the number of requests that it works on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.least_squares import non_negative
from gpusize.estimate.twin.sharing import served_s

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["REACH", "rates_of", "smoothed"]

FEWEST: Final = 20
"""Requests of a visit without a steady part without which it tells no rate."""
REACH: Final = 3.0
"""Rates are carried on to this multiple of the largest level."""


def rates_of(visits: Sequence[Observed], limit: int | None = None) -> NDArray[np.float64]:
    """Requests per second that a replica serves with 1, 2, ... at work, shape (k,); empty where nothing was served.

    By Little's law (1961) k over the mean time in service T(k). T is the weighted least-squares fit to the measured
    means among sums of 1, k and max(k, k_j) with weights of at least 0, k_j the measured loads: convex, with rates that
    rise ever more slowly. That holds for servers that spend a time on each step and each request, for those that are
    full from some number on, and for mixtures; and one level of a few requests does not bend it. Beyond the last level
    T stays on the curve.

    Args:
        visits: closed loops without pauses on one replica.
        limit: most requests at work at once; there the rates end, and all larger loads tell the last one.
    """
    import numpy as np

    k, took_s, n = _means(visits, limit)
    return smoothed(k, took_s, n, limit) if k.size else np.array([])


def smoothed(
    k: NDArray[np.float64], took_s: NDArray[np.float64], n: NDArray[np.float64], limit: int | None
) -> NDArray[np.float64]:
    """The rates of times that were measured with some numbers at work, of so many requests each; see ``rates_of``."""
    import numpy as np

    # A mean time is off in proportion to itself, and to the root of the requests in it.
    weight = np.sqrt(n) / took_s
    bends = k[1:-1]
    found = non_negative(_convex(k, bends) * weight[:, None], took_s * weight)
    last = limit if limit is not None else max(2, math.ceil(REACH * k[-1]))
    reach = np.arange(1, last + 1, dtype=float)
    return np.asarray(reach / (_convex(reach, bends) @ found))


def _convex(k: NDArray[np.float64], bends: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.column_stack([k, np.ones_like(k), *(np.maximum(k, bend) for bend in bends)])


def _means(
    visits: Sequence[Observed], limit: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Requests at work, ascending, the mean time in service with so many, and from how many requests; shapes (j,)."""
    import numpy as np

    known = [(visit.users, *found) for visit in visits if (found := _mean(visit, limit)) is not None]
    if not known:
        # Nothing but visits of a few requests: their beginnings count, too.
        whole = [(visit.users, served_s(visit, limit)) for visit in visits]
        known = [(users, float(took.mean()), took.size) for users, took in whole if took.size and took.mean() > 0]
    at = [users if limit is None else min(users, limit) for users, _, _ in known]
    loads = sorted(set(at))
    counts, sums = np.zeros(len(loads)), np.zeros(len(loads))
    for load, (_, mean_s, count) in zip(at, known, strict=True):
        counts[loads.index(load)] += count
        sums[loads.index(load)] += count * mean_s
    return np.array(loads, dtype=float), sums / np.maximum(counts, 1.0), counts


def _mean(visit: Observed, limit: int | None) -> tuple[float, int] | None:
    """Mean time in service and the requests that it is from; None where a visit does not tell it.

    A visit without a steady part has times that begin while it fills, and perhaps end while it empties. But between the
    moments when all have been sent once and when the last one is sent, as many are in flight as should be, and what
    ends then tells the rate.
    """
    import numpy as np

    if visit.settled:
        took = served_s(visit, limit)
        return (float(took.mean()), took.size) if took.size and took.mean() > 0 else None
    sent_s = np.sort(visit.sent_s[np.isfinite(visit.sent_s)])
    if sent_s.size <= visit.users:
        return None
    full_s, close_s = float(sent_s[visit.users - 1]), float(sent_s[-1])
    count = int((visit.ok & (visit.last_s >= full_s) & (visit.last_s < close_s)).sum())
    if count < FEWEST or close_s <= full_s:
        return None
    at_work = visit.users if limit is None else min(visit.users, limit)
    return at_work * (close_s - full_s) / count, count
