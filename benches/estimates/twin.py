"""The default, and the twin alone, with a search for the edge: an adaptive sequence of levels, then an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from benches.estimates.probe import Probe
from benches.estimates.question import Visible
from benches.estimates.worlds import Process
from gpusize.estimate import Estimate, Question, estimate
from gpusize.estimate.twin.method import Fitted
from gpusize.estimate.twin.observed import Objective, Observed, observe
from gpusize.estimate.twin.search import Budget, Search
from gpusize.levels import LevelData

__all__ = ["auto", "levels_of", "measured", "question_of", "rehearse", "twin"]

MOST_VISITS = 60
HELD = 0.55
"""Part of the budget for levels that hold the number in flight, where the question's load does not."""
REHEARSALS = 2
FEWEST = 60


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


def rehearse(probe: Probe, visible: Visible, levels: Sequence[LevelData]) -> list[LevelData]:
    """What is left of the budget goes to loads on one replica that vary as the question's do."""
    question = question_of(visible)
    found: list[LevelData] = []
    for left in range(REHEARSALS, 0, -1):
        requests = probe.left // left
        loop = Fitted([*levels, *found], question).rehearsal(question, requests)
        if loop is None or requests < FEWEST:
            break
        replicas = visible.replicas[0]
        if loop.users is not None:
            users = max(1, round(loop.users))
            found.append(probe.measure(users, replicas=replicas, requests=requests))
        else:
            process: Process = "poisson" if loop.process == "poisson" else "constant"
            rate = float(f"{loop.load:.4g}")
            found.append(probe.measure(rate, replicas=replicas, requests=requests, process=process))
    return found


def measured(probe: Probe, visible: Visible, budget: int) -> list[LevelData]:
    """All that the budget brings: the search, and rehearsals where the question's load varies."""
    even = visible.router == "least_loaded" and visible.think == "none" and visible.rate is None
    levels = levels_of(probe, visible, budget if even else round(HELD * budget))
    return levels if even else [*levels, *rehearse(probe, visible, levels)]


def twin(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """Search, rehearse, then the method ``twin``."""
    return estimate(measured(probe, visible, budget), question_of(visible), "twin")[0]


def auto(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """The same, then what answers by default."""
    return estimate(measured(probe, visible, budget), question_of(visible))[0]
