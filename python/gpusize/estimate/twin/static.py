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

from gpusize.estimate.twin.batching import Service
from gpusize.estimate.twin.least_squares import inside, non_negative

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.observed import Observed

__all__ = ["COMPANY_ERROR", "fit_static", "surely_static"]

FEWEST: Final = 20
"""Fewer batches tell no costs."""
TOGETHER: Final = 0.3
"""Ends are one where they are no further apart than this part of a short residence."""
FAILED: Final = 0.01
"""So many requests may have no end: their batches then seem to have a member less."""
IN_ORDER: Final = 0.95
"""So many batches must have no member that was sent after one of a later batch."""
EXPLAINED: Final = 0.15
"""By so much may the batches of the middle one of the levels be longer or shorter in all than the costs say."""
MOST_NOISE: Final = 1.0
"""What varies more is no member's own: the machine's."""
COMPANY_ERROR: Final = 0.1
"""Standard error of the logarithm of times at one load, because who shares a batch with whom lasts in a closed loop."""
CROWD: Final = 4
COMPANY: Final = 1.5
"""Mean size of batches, with ``CROWD`` or more in flight, from which on batches are seen."""
UNEQUAL: Final = 0.5
"""Of batches with several members, those whose answers have different numbers of tokens."""
APART: Final = 0.05
"""Share of its time by which a member would have ended before another one, from which on it is no chance."""
COINCIDE: Final = 1 / 3
"""Ends coincide where they are no further apart than this part of what they would have been."""
SEEN: Final = 0.1
"""Of batches with several members, those whose members would have ended apart."""
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
    known = _seen(visits)
    return None if known is None else _fitted(known, _short_s(visits))


def _fitted(known: Sequence[_Batches], most_s: float) -> Service | None:
    """As ``fit_static``, with at most so long a delay."""
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
    import numpy as np

    known = _seen(visits)
    if known is None:
        return None
    told = any(np.isfinite(each.tokens_out).any() for each in visits)
    several = np.concatenate([each.size > 1 for each in known])
    unequal = np.concatenate([each.shortest < each.tokens for each in known])
    if told and unequal[several].mean() <= UNEQUAL:
        return None
    if not _coincide(known, told=told) or not _begin_together(known, TOGETHER * _short_s(visits)):
        return None
    return _fitted(known, _short_s(visits))


def _coincide(batches: Sequence[_Batches], *, told: bool) -> bool:
    """Whether ends of members coincide that would be apart, had each been served by itself.

    Shares of a batch's time: by tokens the shortest answer would have ended so much earlier; without tokens, who was
    sent so much earlier.
    """
    import numpy as np

    found, several = [], 0
    for each in batches:
        took_s = np.maximum(each.end - each.arrived, 1e-12)
        own = 1 - each.shortest / each.tokens if told else (each.complete - each.arrived) / took_s
        kept = (each.size > 1) & (own > APART)
        several += int((each.size > 1).sum())
        found.append((each.spread / took_s <= COINCIDE * own)[kept])
    shown = np.concatenate(found)
    return shown.size > SEEN * several and bool(shown.mean() > UNEQUAL)


def _begin_together(batches: Sequence[_Batches], together_s: float) -> bool:
    """Whether first tokens of members come together, as far as anybody saw them."""
    import numpy as np

    begun = np.concatenate([each.begun[each.size > 1] for each in batches])
    begun = begun[np.isfinite(begun)]
    return not begun.size or bool(np.median(begun) <= together_s)


def _seen(visits: Sequence[Observed]) -> list[_Batches] | None:
    """The batches of each visit; None where the records show no such."""
    if not any(visit.ok.any() for visit in visits):
        return None
    together_s = TOGETHER * _short_s(visits)
    found = [_Batches.of(each, together_s) for each in visits]
    known = [each for each in found if each is not None]
    if len(known) < len(visits) or sum(each.size.size for each in known) < FEWEST or not _together(visits, known):
        return None
    return known


def _short_s(visits: Sequence[Observed]) -> float:
    """A short residence."""
    import numpy as np

    return min(float(np.quantile((each.last_s - each.sent_s)[each.ok], 0.1)) for each in visits if each.ok.any())


@dataclass(frozen=True, slots=True, eq=False)
class _Batches:
    """Batches of one visit in order, arrays of shape (b,); times in seconds.

    Attributes:
        size: members.
        tokens: of the longest answer, 1 where nobody said.
        shortest: tokens of the shortest one, likewise.
        prompts: tokens of all prompts, 0 where nobody said.
        squares: sum over members of the square of their prompts' tokens.
        arrived: the first member's.
        complete: the last member's.
        before: end of the batch before.
        first: first tokens, NaN where nobody said.
        end: of all members.
        spread: between the first end and the last one.
        begun: between the first tokens of the first and of the last one, NaN where nobody said.
        left: members of later batches that were there as it ended at the latest.
    """

    size: NDArray[np.float64]
    tokens: NDArray[np.float64]
    shortest: NDArray[np.float64]
    prompts: NDArray[np.float64]
    squares: NDArray[np.float64]
    arrived: NDArray[np.float64]
    complete: NDArray[np.float64]
    before: NDArray[np.float64]
    first: NDArray[np.float64]
    end: NDArray[np.float64]
    spread: NDArray[np.float64]
    begun: NDArray[np.float64]
    left: NDArray[np.bool_]

    @classmethod
    def of(cls, visit: Observed, together_s: float) -> _Batches | None:
        """The batches of a visit whose requests ended ok, nearly all, and in order; None for another one."""
        import numpy as np

        kept = visit.ok & np.isfinite(visit.last_s) & np.isfinite(visit.sent_s)
        if kept.sum() < 3 or kept.mean() < 1 - FAILED:
            return None
        order = np.lexsort((visit.sent_s, visit.last_s))
        order = order[kept[order]]
        sent, last = visit.sent_s[order], visit.last_s[order]
        begins = np.flatnonzero(np.concatenate([[True], np.diff(last) > together_s]))
        arrived = np.minimum.reduceat(sent, begins)
        complete = np.maximum.reduceat(sent, begins)
        # Nobody may be served before one who was there earlier.
        ordered = complete[:-1] <= np.minimum.accumulate(arrived[::-1])[::-1][1:] + together_s
        if ordered.size and ordered.mean() < IN_ORDER:
            return None
        end = np.maximum.reduceat(last, begins)
        size = np.diff(np.append(begins, last.size)).astype(float)
        tokens = np.nan_to_num(visit.tokens_out[order], nan=1.0)
        prompts = np.nan_to_num(visit.tokens_in[order], nan=0.0)
        before = np.concatenate([[-np.inf], end[:-1]])
        began = np.maximum(before, complete)
        waiting = np.searchsorted(np.sort(sent), began - together_s) - np.cumsum(size)
        # Who joined after the last one that was written down is not known.
        whole = began <= sent.max()
        firsts = visit.first_s[order]
        columns = (
            size,
            np.maximum(1.0, np.maximum.reduceat(tokens, begins)),
            np.maximum(1.0, np.minimum.reduceat(tokens, begins)),
            np.add.reduceat(prompts, begins),
            np.add.reduceat(prompts**2, begins),
            arrived,
            complete,
            before,
            # Without a number of tokens a first one tells nothing of the others.
            np.maximum.reduceat(np.where(np.isfinite(visit.tokens_out), visit.first_s, np.nan)[order], begins),
            end,
            end - np.minimum.reduceat(last, begins),
            np.maximum.reduceat(firsts, begins) - np.minimum.reduceat(firsts, begins),
            waiting > 0,
        )
        return cls(*(each[whole] for each in columns)) if whole.sum() > 1 else None

    def began(self, limit: int | None, delay_s: float) -> NDArray[np.float64]:
        """When each began, shape (b,)."""
        import numpy as np

        ready = np.maximum(self.before, self.complete)
        full = self.size >= (limit or np.inf)
        return np.where(full, ready, np.maximum(ready, self.arrived + delay_s))

    def whole(self, limit: int | None, delay_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each costs in units of (b, p, t0, t1), shape (b - 1, 4), and how long it took.

        The first batch of a visit has no beginning of its own that is known.
        """
        import numpy as np

        units = np.stack([np.ones_like(self.size), self.prompts, self.tokens, self.tokens * self.size], axis=1)
        return units[1:], (self.end - self.began(limit, delay_s))[1:]


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


def _best(batches: Sequence[_Batches], limit: int | None, most_s: float) -> _Fit:
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


def _together(visits: Sequence[Observed], batches: Sequence[_Batches]) -> bool:
    """Whether several end together where several were in flight: one after another is known to other models too."""
    several = [float(b.size.mean()) for v, b in zip(visits, batches, strict=True) if v.users >= CROWD]
    return max(several, default=0.0) >= COMPANY


def _limit(batches: Sequence[_Batches]) -> int | None:
    """The most members, where so many were together again and again while others waited."""
    import numpy as np

    most = max(float(each.size.max()) for each in batches)
    waited = sum(int(np.sum((each.size == most) & each.left)) for each in batches)
    return int(most) if waited >= OFTEN else None


def _fit(batches: Sequence[_Batches], limit: int | None, delay_s: float) -> _Fit:
    """Costs with so long a delay."""
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


def _in_all(batches: Sequence[_Batches], limit: int | None, fit: _Fit) -> tuple[float, float]:
    """The time of all batches, and what the costs say of it."""
    levels = [each.whole(limit, fit.delay_s) for each in batches]
    return sum(float(took_s.sum()) for _, took_s in levels), sum(float((w @ fit.costs).sum()) for w, _ in levels)


def _noise(batches: Sequence[_Batches], limit: int | None, fit: _Fit) -> float:
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
