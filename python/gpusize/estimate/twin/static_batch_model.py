"""Static batches, fitted to what one replica showed: batches that are put together and run to their end.

So serve dynamic batchers in front of a model, and generation without continuous batching: who arrives meanwhile waits
for the next batch, and all answers of a batch end together. A batch of k members with P prompt tokens in all, the
longest answer of which has n tokens, takes

    T = b + p P + n (t0 + t1 k)

and its first tokens come after b + p P + t0 + t1 k. Its members are seen in the records: they end in the same moment.
It begins when the one before has ended and, unless it is full, its first member has waited for the delay d. The costs
follow by non-negative least squares over all batches of all levels, d by trying.

Requests that are alike and were sent together end together on any server. So ends alone show nothing: members must also
get their first tokens together, and would have ended apart by themselves (``surely_static``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batching_model import Service
from gpusize.estimate.twin.least_squares import inside, non_negative
from gpusize.estimate.twin.static_batches import FEWEST, Batches, beyond_chance, seen, short_s

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["COMPANY_ERROR", "fit_static", "surely_static"]

EXPLAINED: Final = 0.15
"""By so much may the batches of the middle one of the levels be longer or shorter in all than the costs say."""
MOST_NOISE: Final = 1.0
"""What varies more is no member's own: the machine's."""
COMPANY_ERROR: Final = 0.1
"""Standard error of the logarithm of times at one load, because who shares a batch with whom lasts in a closed loop."""
OFTEN: Final = 3
DELAYS: Final = 16
FINER: Final = 3
"""Turns of trying delays, each four times finer."""
BETTER: Final = 0.98
"""A delay must leave this much less of the sum of squares, or less."""


def fit_static(visits: Sequence[Observed]) -> Service | None:
    """Costs, limit and delay; None where no such batches are seen.

    Args:
        visits: closed loops of one replica.
    """
    known = seen(visits)
    return None if known is None else _fitted(known, short_s(visits))


def _fitted(known: Sequence[Batches], most_s: float) -> Service | None:
    limit = _limit(known)
    chosen = _best(known, limit, most_s)
    took_s, said_s = _in_all(known, limit, chosen)
    if chosen.off > EXPLAINED or said_s <= 0 or took_s <= 0:
        return None
    # Hiccups have no part in the costs of one batch, but in the time of all.
    base_s, prompt_s, step_s, member_s = (float(each) for each in chosen.costs * (took_s / said_s))
    if step_s + member_s <= 0:
        return None
    noise = _noise(known, limit, chosen)
    return Service(step_s, member_s, prompt_s, limit, None, noise, (base_s, chosen.delay_s))


def surely_static(visits: Sequence[Observed]) -> Service | None:
    """As ``fit_static``; None also where something else explains the records.

    Requests alike that run side by side end together on any server. Members must have their first tokens together, and
    end together though by themselves they would not: where tokens are known, their numbers differ; where they are not,
    members were sent at different moments.
    """
    known = seen(visits)
    if known is None or not beyond_chance(visits, known):
        return None
    return _fitted(known, short_s(visits))


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """Costs (b, p, t0, t1) with a delay.

    Attributes:
        costs: shape (4,), s.
        delay_s: the delay.
        loss: sum of squares of relative residuals.
        off: relative difference between the time of all batches of a level and what the costs say, the middle one's.
    """

    costs: NDArray[np.float64]
    delay_s: float
    loss: float
    off: float


def _best(batches: Sequence[Batches], limit: int | None, most_s: float) -> _Fit:
    """The costs with the delay that leaves least, of at most so long a one; none where it makes no difference."""
    import numpy as np

    without = _fit(batches, limit, 0.0)
    found, step_s, middle_s = without, most_s / DELAYS, 0.5 * most_s
    places = np.linspace(0.0, most_s, DELAYS + 1)
    for _ in range(FINER):
        tried = [_fit(batches, limit, float(delay_s)) for delay_s in places if delay_s > 0]
        found = min([found, *tried], key=lambda each: each.loss)
        middle_s = found.delay_s
        places = np.linspace(max(0.0, middle_s - step_s), middle_s + step_s, 9)
        step_s /= 4
    return found if found.loss < BETTER * without.loss else without


def _limit(batches: Sequence[Batches]) -> int | None:
    """The most members, where so many were together again and again while others waited."""
    import numpy as np

    most = max(float(each.size.max()) for each in batches)
    waited = sum(int(np.sum((each.size == most) & each.left)) for each in batches)
    return int(most) if waited >= OFTEN else None


def _fit(batches: Sequence[Batches], limit: int | None, delay_s: float) -> _Fit:
    import numpy as np

    rows, times, levels = [], [], []
    for each in batches:
        one = np.ones_like(each.size)
        begun = np.stack([one, each.prompts, one, each.size], axis=1)
        whole, took_s = each.whole(limit, delay_s)
        rows.append(np.concatenate([whole, begun[1:]]))
        times.append(np.concatenate([took_s, (each.first - each.began(limit, delay_s))[1:]]))
        levels.append((whole, took_s))
    design, took = np.concatenate(rows), np.concatenate(times)
    known = np.isfinite(took) & (took > 0)
    # A long batch is off by more than a short one.
    scale = 1.0 / np.sqrt(np.maximum(took, 1e-9))
    weighed, timed = design * scale[:, None], took * scale
    costs = non_negative(weighed[known], timed[known])
    kept = known.copy()
    kept[known] = inside((timed - weighed @ costs)[known])
    costs = non_negative(weighed[kept], timed[kept])
    off = (timed - weighed @ costs)[known]
    means = [abs(float(t.sum()) / max(float((w @ costs).sum()), 1e-12) - 1) for w, t in levels if t.size >= FEWEST]
    return _Fit(costs, delay_s, float(off @ off), float(np.median(means)) if means else 0.0)


def _in_all(batches: Sequence[Batches], limit: int | None, fit: _Fit) -> tuple[float, float]:
    levels = [each.whole(limit, fit.delay_s) for each in batches]
    return sum(float(took_s.sum()) for _, took_s in levels), sum(float((w @ fit.costs).sum()) for w, _ in levels)


def _noise(batches: Sequence[Batches], limit: int | None, fit: _Fit) -> float:
    """Spread of the logarithm of requests' own costs.

    The factor of each, with mean 1, is on its prompt and on its part of the steps.
    """
    import numpy as np

    _, prompt_s, _, member_s = fit.costs
    off, parts = [], []
    for each in batches:
        whole, took_s = each.whole(limit, fit.delay_s)
        steps = member_s * each.tokens[1:]
        off.append(took_s - whole @ fit.costs)
        own = prompt_s**2 * each.squares + 2 * prompt_s * member_s * each.tokens * each.prompts
        parts.append(own[1:] + steps**2 * each.size[1:])
    residual, part = np.concatenate(off), np.concatenate(parts)
    kept = np.isfinite(residual) & (part > 0)
    if kept.sum() < FEWEST:
        return 0.0
    ratio = (residual / np.sqrt(np.where(part > 0, part, 1.0)))[kept]
    variance = float(np.mean(ratio[inside(ratio)] ** 2))
    return min(MOST_NOISE, math.sqrt(math.log1p(variance)))
