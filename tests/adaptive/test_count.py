"""A search for users ends once their count is one number, at the end of a stage, and as it would after a crash."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.level import LevelData
from gpusize.estimate.methods import estimate
from gpusize.estimate.question import Question
from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.count import Count, counts
from gpusize.estimate.search.crossing import Crossing
from gpusize.estimate.search.planner import STAGES, Chosen, Over, Planner
from gpusize.estimate.search.result import found_of
from gpusize.estimate.search.visits import visits_of
from gpusize.estimate.twin.visit_data import Objective
from tests.adaptive.test_planner import SLO, cluster, search, truth

TERMS = Adaptive(precision=0.001, budget=8000)


def asked(users: float, levels: list[LevelData]) -> Planner:
    return Planner([Objective.of(SLO)], TERMS, Count(Question(users, [SLO]), levels))


def searched(users: float) -> tuple[list[Chosen], list[LevelData], Over]:
    chosen: list[Chosen] = []
    levels: list[LevelData] = []
    planner = asked(users, levels)
    while not isinstance(following := planner.next(visits_of(levels, planner.objectives)), Over):
        chosen.append(following)
        levels.append(cluster(len(levels), following))
    return chosen, levels, following


@pytest.fixture(scope="module")
def whole() -> tuple[list[Chosen], list[LevelData]]:
    """The search for the capacity alone, and the most users that long runs keep."""
    chosen, levels, over = search(TERMS)
    assert over == Over("budget")
    return chosen, levels


@pytest.fixture(scope="module")
def capacity() -> int:
    return truth(1, 80)


def test_it_ends_at_a_stage_where_the_count_is_one_number(
    whole: tuple[list[Chosen], list[LevelData]], capacity: int
) -> None:
    users = round(1.5 * capacity)
    chosen, levels, over = searched(users)
    assert over == Over("count")
    # It is the beginning of the search that did not ask, cut at the end of a stage.
    assert chosen == whole[0][: len(chosen)]
    looks = sum(each.why != "grow" for each in chosen)
    assert looks in [each for each, _ in STAGES[:-1]]
    found = found_of(levels, [SLO], TERMS, users=users)
    assert found is not None
    assert (found.reason, found.users) == ("count", users)
    [answer] = estimate(levels, Question(users, [SLO]))
    assert (answer.gpus_low, answer.gpus, answer.gpus_high) == (2, 2, 2)
    assert math.ceil(users / capacity) == 2
    # Nor does the answer change with all that the search would have sent.
    [later] = estimate(whole[1], Question(users, [SLO]))
    assert later.gpus == 2


def test_what_was_decided_is_decided_again_after_a_crash(capacity: int) -> None:
    users = round(1.5 * capacity)
    chosen, levels, over = searched(users)
    for k, each in enumerate(chosen):
        # A process that starts anew knows the levels and nothing else.
        planner = asked(users, levels[:k])
        assert planner.next(visits_of(levels[:k], planner.objectives)) == each
    planner = asked(users, levels)
    assert planner.next(visits_of(levels, planner.objectives)) == over


def test_users_at_the_edge_of_a_count_leave_the_search_as_it_was(
    whole: tuple[list[Chosen], list[LevelData]], capacity: int
) -> None:
    chosen, levels, over = searched(4 * capacity)
    assert (chosen, over) == (whole[0], Over("budget"))
    found = found_of(levels, [SLO], TERMS, users=4 * capacity)
    assert found is not None
    assert found.reason == "budget"


@pytest.mark.parametrize("without", ["gpus", "answer"])
def test_where_no_count_can_be_had_none_ends_it(
    whole: tuple[list[Chosen], list[LevelData]], capacity: int, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without GPUs there is no count; and the capacity's interval alone does not decide either."""
    _, levels = whole
    question = Question(round(1.5 * capacity), [SLO])
    count = Count(question, levels)
    one = Crossing(float(capacity), 0.99 * capacity, 1.01 * capacity)
    assert count.is_one(one, levels[-1].visit)
    assert not count.is_one(Crossing(float(capacity), 0.7 * capacity, 1.3 * capacity), levels[-1].visit)
    if without == "gpus":
        from dataclasses import replace

        count = Count(question, [replace(level, gpus=0) for level in levels])
    else:
        monkeypatch.setattr("gpusize.estimate.methods.estimate", _two)
        count = Count(question, levels)
    assert not count.is_one(one, levels[-1].visit)


def _two(levels: list[LevelData], question: Question, *more: Any) -> list[Any]:
    from gpusize.estimate.question import Estimate

    return [Estimate("twin", 1, question.users, gpus=2, gpus_low=2, gpus_high=3)]


def test_counts_are_those_of_the_capacities_in_the_interval() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        low, gpus, per = float(rng.uniform(0.5, 40)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
        high = low * float(rng.uniform(1, 1.4))
        users = int(rng.integers(1, 200))
        inside = [1 + int(gpus * users / each / per) for each in rng.uniform(low, high, 400)]
        left = counts(Crossing((low + high) / 2, low, high), Question(users, [SLO], per), gpus)
        assert left.step == per
        assert {per * each for each in inside} <= set(left)
        assert left[0] * high >= users * gpus * (1 - 1e-6)
        assert (left[-1] - per) * low < users * gpus * (1 + 1e-6)
    for open_end in (Crossing(None, 5.0, None), Crossing(9.0, 5.0, None), Crossing(9.0, 0.0, 12.0)):
        assert len(counts(open_end, Question(10, [SLO]), 1)) == 0
