"""Levels of a run as the search sees them: what they showed, what they cost, whether the target broke under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.observed import Observed, observe

if TYPE_CHECKING:
    from gpusize.estimate.twin.observed import Objective
    from gpusize.levels import LevelData

__all__ = ["Visit", "visits_of"]

FURTHER: Final = 2.0
"""Residences that a look lets pass beyond its warm-up: users who began evenly spread fall into step only by and by,
and the first rounds miss less than the later ones."""
KEPT: Final = 0.6
FEWEST: Final = 20
BROKE: Final = ("errors", "saturation")
"""Stop reasons of a level that the target could not take, whoever ended it."""


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One level of a search.

    Attributes:
        users: requests in flight.
        number: of the level visit in its run.
        sent: requests that were due, warm-up included.
        length_s: from the first request to the last answer.
        failed: whether it was stopped for errors, timeouts or overload: as many users miss every SLO.
        observed: what it showed; None where it says nothing, as one that the user ended.
    """

    users: int
    number: int
    sent: int
    length_s: float
    failed: bool = False
    observed: Observed | None = None


def visits_of(levels: Sequence[LevelData], objectives: Sequence[Objective]) -> list[Visit]:
    """The closed loops among the levels, in their order.

    A level that a failure voided is evidence that its load is too much. One that the user cut off, or that a crash
    did, is none: it only cost something.
    """
    return [_visit(level, objectives) for level in levels if level.concurrency and not level.imported]


def _visit(level: LevelData, objectives: Sequence[Objective]) -> Visit:
    failed = level.state == "interrupted" or (level.state == "done" and level.meta.get("stop_reason") in BROKE)
    seen = observe(level, objectives) if level.state == "done" and not failed else []
    start, end = level.meta.get("start_ns"), level.meta.get("end_ns")
    length_s = (int(end) - int(start)) / 1e9 if start is not None and end is not None else 0.0
    return Visit(
        users=level.concurrency or 0,
        number=level.visit,
        sent=int(level.meta.get("due") or (seen[0].due_s.size if seen else 0)),
        length_s=length_s,
        failed=failed,
        observed=_later(seen[0]) if seen else None,
    )


def _later(visit: Observed) -> Observed:
    """The visit without the beginning of its steady part, of which at least ``KEPT`` stays."""
    start, end = visit.window
    residence_s = visit.residence_s
    if not visit.settled or not residence_s > 0:
        return visit
    begin = start + min(FURTHER * residence_s, (1 - KEPT) * (end - start))
    steady = visit.steady & (visit.last_s >= begin)
    return replace(visit, window=(begin, end), steady=steady) if steady.sum() >= FEWEST else visit
