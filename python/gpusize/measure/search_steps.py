"""The steps of a search, for the sweep: each follows from the levels that are committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpusize.analysis.read_levels import read_levels
from gpusize.estimate.question import Question
from gpusize.estimate.search.count import Count
from gpusize.estimate.search.planner import Chosen, Over, Planner
from gpusize.estimate.search.terms import searched
from gpusize.estimate.search.visits import Visit, of_part, owed, visits_of
from gpusize.estimate.twin.visit_data import Objective
from gpusize.measure.sweep import Step
from gpusize.workload.load.levels import searched_level

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpusize.analysis.level import LevelData
    from gpusize.estimate.search.terms import Adaptive
    from gpusize.measure.spec import RunSpec

__all__ = ["Searching"]


class Searching:
    """Asks the planner for the next level of a run, until the search is over.

    What was committed decides, so a run that died goes on from there as it would have gone on; but for levels in which
    the generator was the limit, which a resumed run measures again.

    Args:
        spec: the run.
        terms: what the search is asked for.
        path: its folder.
    """

    def __init__(self, spec: RunSpec, terms: Adaptive, path: Path) -> None:
        # A system that allows fewer open files than the search may use connections bounds it sooner.
        bounded = replace(terms, most_users=spec.most_connections)
        self._count = None if spec.users is None else Count(Question(spec.users, spec.slos))
        self._planner = Planner([Objective.of(slo) for slo in searched(spec.slos, spec.natures)], bounded, self._count)
        self._load = spec.load
        self._path = path
        self._known: dict[int, Visit] = {}
        self._part = 0
        if spec.resume is not None:
            self._part = 1 + max((_part(level) for level in read_levels(path)), default=-1)

    def __call__(self) -> Step | None:
        """The next step; None when the search is over."""
        levels = read_levels(self._path)
        for level in levels:
            if level.visit not in self._known:
                for visit in visits_of([level], self._planner.objectives):
                    self._known[level.visit] = visit
        if self._count is not None:
            self._count.levels = [level for level in levels if level.meta.get("search")]
        visits = [self._known[level.visit] for level in levels if level.visit in self._known]
        chosen = self._next(visits)
        if isinstance(chosen, Over):
            return None
        warmup_s = self._load.warmup_s
        if chosen.most_s is not None and warmup_s is not None and chosen.most_s <= warmup_s:
            return None
        index = 1 + max((int(level.meta.get("step", -1)) for level in levels), default=-1)
        made = searched_level(self._load, index, chosen.look.users, chosen.requests, chosen.most_s)
        facts = chosen.facts() | ({"part": self._part} if self._part else {})
        return Step(index, made.setting, made.plan, made.arrays(), facts)

    def _next(self, visits: Sequence[Visit]) -> Chosen | Over:
        counted = of_part(visits, self._part)
        repeats = (self._planner.repeat(each, counted) for each in owed(visits, self._part))
        return next((each for each in repeats if each is not None), None) or self._planner.next(counted)


def _part(level: LevelData) -> int:
    """Which part of its run a level is of: how often the run had been resumed."""
    return int((level.meta.get("search") or {}).get("part") or 0)
