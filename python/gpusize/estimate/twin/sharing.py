"""What times say of a server that shares its rate among the requests it works on: how many, and how large they are.

Limited processor sharing (Zhang, Dai and Zwart, Annals of Applied Probability 21, 2011): at most m requests share the
rate, the others wait in the order in which they were sent. Then the moments at which requests begin are in the records,
whatever m is: with D_1 <= D_2 <= ... the ends of all requests, the i-th one sent begins at

    max(sent_i, D_{i - m})

and in a closed loop its time from there on is its size times m / rate(m). At the right m sizes are drawn alike at every
load, and independently. At one that is too large a part of the wait is taken for service: sizes look the more alike the
more requests are in flight, and neighbours, who waited for the same ones, resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["begun_s", "limit_of", "served_s", "sizes_of"]

FEWEST: Final = 20
"""Requests of a level without which it says nothing of how sizes are spread."""
ENOUGH: Final = 200
"""Sizes of visits with a steady part are enough, if there are so many."""
MOST: Final = 4000
"""So many requests of a visit tell its limit well enough."""
STEP: Final = 1.1
"""Limits are tried in steps of a tenth."""
CHANCE: Final = 2.0
"""A limit must make sizes so much more alike; what the best of all that are tried gains by chance is below it."""
SMALLEST: Final = 1e-4
QUANTILES: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Stays:
    """Requests of one visit that ended, in the order in which they were sent; shapes (n,).

    Attributes:
        users: requests in flight.
        sent_s: ascending.
        last_s: ends.
        left_s: the same ends, ascending.
        steady: which ended well within the steady part.
        later: which were sent after its beginning: unlike ``steady``, the last ones are not the short ones.
        queue_s: how long each waited, where the server said so; NaN where it did not.
    """

    users: int
    sent_s: NDArray[np.float64]
    last_s: NDArray[np.float64]
    left_s: NDArray[np.float64]
    steady: NDArray[np.bool_]
    later: NDArray[np.bool_]
    queue_s: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, visit: Observed) -> _Stays:
        import numpy as np

        ended = np.flatnonzero(np.isfinite(visit.last_s) & np.isfinite(visit.sent_s))
        order = ended[np.argsort(visit.sent_s[ended], kind="stable")]
        ok, sent_s, last_s = visit.ok[order], visit.sent_s[order], visit.last_s[order]
        later = ok & (sent_s >= visit.window[0])
        queue_s = None if visit.queue_s is None else visit.queue_s[order]
        return cls(visit.users, sent_s, last_s, np.sort(last_s), ok & visit.steady[order], later, queue_s)

    def served_s(self, limit: int | None) -> NDArray[np.float64]:
        """Time in service of each request where at most ``limit`` are worked on at once."""
        import numpy as np

        begin_s = self.sent_s
        if limit is not None and limit < begin_s.size:
            begin_s = _begun_s(begin_s, self.left_s, limit)
            if self.queue_s is not None and self.users > limit:
                # With fewer in flight what a server calls its queue is the step under way, which no place shortens.
                begin_s = np.where(np.isfinite(self.queue_s), self.sent_s + self.queue_s, begin_s)
        # Where the limit is too small some end before they could have begun.
        found: NDArray[np.float64] = np.maximum(self.last_s - begin_s, 0.0)
        return found


def _begun_s(sent_s: NDArray[np.float64], left_s: NDArray[np.float64], limit: int) -> NDArray[np.float64]:
    """When each has its turn of those that were sent and that left in this order, of which so many have a place."""
    import numpy as np

    begin_s = sent_s.copy()
    begin_s[limit:] = np.maximum(begin_s[limit:], left_s[:-limit])
    return begin_s


def begun_s(sent_s: NDArray[np.float64], last_s: NDArray[np.float64], limit: int | None) -> NDArray[np.float64]:
    """When each request has its turn where at most ``limit`` are worked on at once; in any order, shape (n,)."""
    import numpy as np

    if limit is None or limit >= sent_s.size:
        return sent_s
    order = np.argsort(sent_s, kind="stable")
    found = np.empty_like(sent_s)
    found[order] = _begun_s(sent_s[order], np.sort(last_s), limit)
    return found


def served_s(visit: Observed, limit: int | None) -> NDArray[np.float64]:
    """Seconds in service of a visit's steady requests, shape (n,), with at most ``limit`` worked on at once."""
    stays = _Stays.of(visit)
    return stays.served_s(limit)[stays.steady]


def sizes_of(visits: Sequence[Observed], limit: int | None) -> NDArray[np.float64] | None:
    """Sizes of requests with mean 1, shape (n,): times in service over the mean of their visit; None without any."""
    import numpy as np

    parts = _sizes([visit for visit in visits if visit.settled], limit)
    if sum(part.size for part in parts) < ENOUGH:
        parts = _sizes(visits, limit)
    if not parts:
        return None
    found = np.maximum(np.concatenate(parts), SMALLEST)
    sizes: NDArray[np.float64] = found / found.mean()
    return sizes


def _sizes(visits: Sequence[Observed], limit: int | None) -> list[NDArray[np.float64]]:
    stays = [_Stays.of(visit) for visit in visits]
    # By when they were sent, not by when they ended: the first that end after a beginning are the short ones.
    every = [each.served_s(limit)[each.later] for each in stays]
    return [each / each.mean() for each in every if each.size and each.mean() > 0]


def limit_of(visits: Sequence[Observed], told: int | None = None) -> int | None:
    """Most requests that are worked on at once; None where times show no queue.

    The limit at which sizes are the most alike at all loads, and the least alike between neighbours.

    Args:
        visits: closed loops without pauses on one replica.
        told: what else there is to say so; it stays unless another limit is better beyond chance.
    """
    import numpy as np

    stays = [_Stays.of(visit) for visit in visits if visit.settled]
    stays = [each for each in stays if int(each.steady.sum()) >= FEWEST]
    if len({each.users for each in stays}) < 2:
        return told
    top = max(each.users for each in stays)
    tried = {max(1, round(STEP**power)) for power in range(math.ceil(math.log(max(top, 2), STEP)))}
    found = {limit: _unlike(stays, limit) for limit in (told, *sorted(tried))}
    spread = max(min(found.values())[1], float(np.finfo(float).tiny))
    scores = {limit: apart / spread + linked for limit, (apart, _, linked) in found.items()}
    best = min(scores, key=scores.__getitem__)
    return best if scores[told] - scores[best] > CHANCE else told


def _unlike(stays: Sequence[_Stays], limit: int | None) -> tuple[float, float, float]:
    """How far sizes of single loads are from those of all, the variance of these, and how neighbours resemble.

    The first is the sum of squares of distances between distributions (Wasserstein's first, by quantiles), each times
    the number of requests; the last the sum of squares of rank correlations (Spearman), likewise. Where sizes are drawn
    alike and independently, the first is about a half of the variance for each load, and the last one for each visit.
    """
    import numpy as np

    levels: dict[int, list[NDArray[np.float64]]] = {}
    linked = 0.0
    for each in stays:
        took = each.served_s(limit)
        steady, later = took[each.steady][:MOST], took[each.later][:MOST]
        levels.setdefault(each.users, []).append(steady / max(float(steady.mean()), 1e-300))
        if later.size >= FEWEST and float(later.std()) > 1e-6 * float(later.mean()):
            _, which, alike = np.unique(later, return_inverse=True, return_counts=True)
            rank = (np.cumsum(alike) - 0.5 * alike)[which]
            linked += later.size * float(np.corrcoef(rank[:-1], rank[1:])[0, 1]) ** 2
    shapes = [np.concatenate(parts) for parts in levels.values()]
    every = np.concatenate(shapes)
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    middle = np.quantile(every, places)
    apart = sum(each.size * float(np.abs(np.quantile(each, places) - middle).mean()) ** 2 for each in shapes)
    return apart, float(every.var()), linked
