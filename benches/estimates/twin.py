"""The default, and the twin alone, with a search for the edge: an adaptive sequence of levels, then an estimate."""

from __future__ import annotations

from benches.estimates.probe import Probe
from benches.estimates.question import Visible
from gpusize.analysis.level import LevelData
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.search.looks import Budget, Search
from gpusize.estimate.twin.visit_data import Objective, Observed, observe

__all__ = ["auto", "levels_of", "question_of", "twin"]

MOST_VISITS = 60


def question_of(visible: Visible) -> Question:
    """The question as the package asks it."""
    return Question(
        users=visible.users or 0,
        slos=visible.slos,
        gpus_per_replica=visible.gpus_per_replica,
        rate=visible.rate,
        think_s=visible.think_s if visible.think != "none" else 0.0,
        think=visible.think,
        router=visible.router,
        process=visible.process,
        together=visible.goodput,
    )


def levels_of(probe: Probe, visible: Visible, budget: int) -> list[LevelData]:
    """What the search measures with the budget."""
    slos = visible.slos
    objectives = [Objective.joint(slos, slos[0].share)] if visible.goodput else [Objective.of(slo) for slo in slos]
    wide = visible.router != "least_loaded" or visible.think != "none" or visible.rate is not None
    search = Search(objectives, Budget(budget, 0), wide=wide, counts=visible.replicas)
    levels: list[LevelData] = []
    visits: list[Observed] = []
    while len(levels) < MOST_VISITS:
        look = search.next(visits)
        if look is None:
            break
        requests = min(look.requests + look.warmup, probe.left)
        if requests < look.users + 5:
            break
        replicas = look.replicas * visible.replicas[0]
        levels.append(probe.measure(look.users, replicas=replicas, requests=requests, closed=True))
        seen = observe(levels[-1], objectives)
        if not seen:
            break
        visits += seen
    return levels


def twin(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """Search, then the method ``twin``."""
    return estimate(levels_of(probe, visible, budget), question_of(visible), "twin")[0]


def auto(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """Search, then what answers by default."""
    return estimate(levels_of(probe, visible, budget), question_of(visible))[0]
