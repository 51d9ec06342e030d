"""Batches that run to their end, as records show them: whose ends are one, and whether chance would make them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["FEWEST", "Batches", "beyond_chance", "seen", "short_s"]

FEWEST: Final = 20
"""Fewer batches tell no costs."""
TOGETHER: Final = 0.3
"""Ends are one where they are no further apart than this part of a short residence."""
FAILED: Final = 0.01
"""So many requests may have no end: their batches then seem to have a member less."""
IN_ORDER: Final = 0.95
"""So many batches must have no member that was sent after one of a later batch."""
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


def seen(visits: Sequence[Observed]) -> list[Batches] | None:
    """The batches of each visit; None where the records show no such."""
    if not any(visit.ok.any() for visit in visits):
        return None
    together_s = TOGETHER * short_s(visits)
    found = [Batches.of(each, together_s) for each in visits]
    known = [each for each in found if each is not None]
    if len(known) < len(visits) or sum(each.size.size for each in known) < FEWEST or not _together(visits, known):
        return None
    return known


def short_s(visits: Sequence[Observed]) -> float:
    """A short residence."""
    import numpy as np

    return min(float(np.quantile((each.last_s - each.sent_s)[each.ok], 0.1)) for each in visits if each.ok.any())


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
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
    def of(cls, visit: Observed, together_s: float) -> Batches | None:
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
        prompts = np.nan_to_num(visit.computed[order], nan=0.0)
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


def _together(visits: Sequence[Observed], batches: Sequence[Batches]) -> bool:
    """Whether several end together where several were in flight: one after another is known to other models too."""
    several = [float(b.size.mean()) for v, b in zip(visits, batches, strict=True) if v.users >= CROWD]
    return max(several, default=0.0) >= COMPANY


def beyond_chance(visits: Sequence[Observed], batches: Sequence[Batches]) -> bool:
    """Whether nothing else makes the ends of these batches one: see ``static.surely_static``."""
    import numpy as np

    told = any(np.isfinite(each.tokens_out).any() for each in visits)
    several = np.concatenate([each.size > 1 for each in batches])
    unequal = np.concatenate([each.shortest < each.tokens for each in batches])
    if told and unequal[several].mean() <= UNEQUAL:
        return False
    return _coincide(batches, told=told) and _begin_together(batches, TOGETHER * short_s(visits))


def _coincide(batches: Sequence[Batches], *, told: bool) -> bool:
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


def _begin_together(batches: Sequence[Batches], together_s: float) -> bool:
    """Whether first tokens of members come together, as far as anybody saw them."""
    import numpy as np

    begun = np.concatenate([each.begun[each.size > 1] for each in batches])
    begun = begun[np.isfinite(begun)]
    return not begun.size or bool(np.median(begun) <= together_s)
