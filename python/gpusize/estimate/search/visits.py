"""Levels of a run as the search sees them: what they showed, what they cost, whether the target broke under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.broken import Look, broke, brought, causes, fading, failed_of
from gpusize.analysis.checks import unbelieved
from gpusize.estimate.twin.visit_data import Observed, observe

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.twin.visit_data import Objective

__all__ = [
    "REPEATS",
    "BreakingLoad",
    "Visit",
    "breaking_load",
    "limited_loads",
    "looks_of",
    "of_part",
    "owed",
    "standing",
    "visits_of",
]

FURTHER: Final = 2.0
"""Residences that a look lets pass beyond its warm-up: users who began evenly spread fall into step only by and by,
and the first rounds miss less than the later ones."""
KEPT: Final = 0.6
FEWEST: Final = 20
REPEATS: Final = 2
"""So often a load is measured again when the generator was the limit: on a machine that stays busy more is in vain."""


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One level of a search.

    Attributes:
        users: requests in flight.
        number: of the level visit in its run.
        sent: requests that were due, warm-up included.
        length_s: from the first request to the last answer.
        failed: whether it was stopped for errors, timeouts or overload, or most of its requests failed.
        brought: whether these failures are such as load brings.
        fading: whether it was answered up to a moment, and not after it.
        failures: requests that failed, and that ended.
        observed: what it showed; None where it says nothing, as one that the user ended.
        limited: whether the generator was the limit, by its own figures or because slots stood idle (Little's law): the
            times are not the target's alone.
        why: what the level was for, as ``level.json`` has it; of a repeat, what the repeated one was for.
        part: of the run: 0 until it was resumed, then 1, and so on.
        repeat: whether it was measured because the generator had been the limit of such a level.
    """

    users: int
    number: int
    sent: int
    length_s: float
    failed: bool = False
    brought: bool = False
    fading: bool = False
    failures: tuple[int, int] = (0, 0)
    observed: Observed | None = None
    limited: bool = False
    why: str = ""
    part: int = 0
    repeat: bool = False


def visits_of(levels: Sequence[LevelData], objectives: Sequence[Objective]) -> list[Visit]:
    """The closed loops among the levels, in their order.

    A level that failures voided is evidence that its load is too much, where they came with the load
    (``gpusize.analysis.broken``). One that the user cut off, or that a crash did, is none: it only cost something.
    """
    return [_visit(level, objectives) for level in levels if level.concurrency and not level.imported]


def _visit(level: LevelData, objectives: Sequence[Objective]) -> Visit:
    failed = broke(level.state, level.meta)
    seen = observe(level, objectives) if level.state == "done" and not failed else []
    start, end = level.meta.get("start_ns"), level.meta.get("end_ns")
    length_s = (int(end) - int(start)) / 1e9 if start is not None and end is not None else 0.0
    search = level.meta.get("search") or {}
    return Visit(
        users=level.concurrency or 0,
        number=level.visit,
        sent=int(level.meta.get("due") or (seen[0].due_s.size if seen else 0)),
        length_s=length_s,
        failed=failed,
        brought=failed and brought(level),
        fading=fading(level),
        failures=failed_of(level.meta.get("outcomes") or {}),
        observed=_later(seen[0]) if seen else None,
        limited=bool(seen) and unbelieved(level),
        why=str(search.get("of") or search.get("why") or ""),
        part=int(search.get("part") or 0),
        repeat=search.get("why") == "repeat",
    )


def of_part(visits: Sequence[Visit], part: int | None = None) -> list[Visit]:
    """The visits that a search goes on from in one part of its run; None for the last that has measured something.

    Who resumes a search has most likely given the generator what it lacked: what it was the limit of before is as if
    it had not been measured, at no cost; and has started a target again that had failed.
    """
    now = max((each.part for each in visits if each.observed is not None), default=0) if part is None else part
    looked, looks = looks_of(visits)
    why = {each.number: cause for each, cause in zip(looked, causes(looks), strict=True)}
    void = [each for each in visits if each.limited or why.get(each.number) in ("failed", "unknown")]
    return [each for each in visits if each not in void or each.part >= now]


def looks_of(visits: Sequence[Visit]) -> tuple[list[Visit], list[Look]]:
    """The visits that held or broke in the order of time, and each as a look."""
    looked = sorted((each for each in visits if each.failed or each.observed), key=lambda each: each.number)
    return looked, [Look(float(each.users), each.failed, each.brought, each.fading, *each.failures) for each in looked]


def owed(visits: Sequence[Visit], part: int) -> list[Visit]:
    """The last visits of the loads that a resumed search measures again before it goes on; ascending."""
    last = {each.users: each for each in visits if each.observed is not None}
    tried = {each.users for each in visits if each.part >= part}
    return [last[users] for users in limited_loads(visits) if users not in tried]


def standing(visits: Sequence[Visit]) -> list[Visit]:
    """The visits that are evidence: one in which the generator was the limit gives way to a later one of its load.

    That is every later one in which it was not; one in which it was again only takes the place of ``REPEATS`` others.
    So each load has some evidence, and a look that was measured three times counts once.
    """
    found = []
    for number, each in enumerate(visits):
        later = [other for other in visits[number + 1 :] if other.users == each.users and other.observed is not None]
        before = sum(other.users == each.users and other.limited for other in visits[:number])
        if not each.limited or not later or (before >= REPEATS and all(other.limited for other in later)):
            found.append(each)
    return _in_order(found)


def _in_order(visits: Sequence[Visit]) -> list[Visit]:
    """The visits with those of the growth first, also where a resumed search has measured them again after looks."""
    first = next((number for number, each in enumerate(visits) if each.why != "grow"), len(visits))
    late = [each for each in visits[first:] if each.repeat and each.why == "grow"]
    if not late:
        return list(visits)
    growth = sorted((*visits[:first], *late), key=lambda each: each.users)
    return [*growth, *(each for each in visits[first:] if each not in late)]


def limited_loads(visits: Sequence[Visit]) -> tuple[int, ...]:
    """Users of the loads that no level has shown without the generator being the limit; ascending."""
    seen = [each for each in visits if each.observed is not None]
    return tuple(sorted({each.users for each in seen} - {each.users for each in seen if not each.limited}))


def _later(visit: Observed) -> Observed:
    """The visit without the beginning of its steady part, of which at least ``KEPT`` stays."""
    start, end = visit.window
    residence_s = visit.residence_s
    if not visit.settled or not residence_s > 0:
        return visit
    begin = start + min(FURTHER * residence_s, (1 - KEPT) * (end - start))
    cut = _from(visit, begin)
    if cut.steady.sum() < FEWEST:
        return visit
    return cut if cut.by_call is None else replace(cut, by_call=_from(cut.by_call, begin))


def _from(visit: Observed, begin_s: float) -> Observed:
    """The visit whose steady part begins then."""
    return replace(visit, window=(begin_s, visit.window[1]), steady=visit.steady & (visit.last_s >= begin_s))


@dataclass(frozen=True, slots=True)
class BreakingLoad:
    """The fewest users under whom the target breaks.

    Attributes:
        users: they.
        failures: levels of so many users that were stopped.
        kept: the most users below them under whom it did not break; 0 for none.
        visits: levels of so many users as ``kept``.
        last: users of the last level.
    """

    users: int
    failures: int
    kept: int
    visits: int
    last: int


def breaking_load(visits: Sequence[Visit]) -> BreakingLoad | None:
    """The wall, None where nothing broke under its load.

    A single failure of a load that held at another time, or below a load that held, is not taken for one: it has to
    come again. Nor are failures of a target that had itself failed (``gpusize.analysis.broken``).
    """
    looked, looks = looks_of(visits)
    held = [each.users for each in looked if not each.failed]
    # What ends a level by chance ends as large a one again: a search does not get past it.
    walls = ("load", "alike")
    broken = [each.users for each, cause in zip(looked, causes(looks), strict=True) if cause in walls]
    if not broken:
        return None
    users = min(broken)
    kept = max((each for each in held if each < users), default=0)
    return BreakingLoad(users, broken.count(users), kept, held.count(kept), visits[-1].users)
