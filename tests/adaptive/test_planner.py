"""The search on clusters in virtual time: what it looks at, where it stops, and whether it is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.planner import Chosen, Over, Planner
from gpusize.estimate.search.result import found_of
from gpusize.estimate.search.visits import of_part, owed, visits_of
from gpusize.estimate.twin.visit_data import Objective
from gpusize.records.schema import outcome_dtype
from gpusize.report.summary.search_text import ended_text, found_text
from tests.estimate import virtual

SLO = Slo.parse("p95 runtime <= 9s")
Measure = Callable[[int, Chosen], LevelData]


def cluster(number: int, chosen: Chosen, **more: Any) -> LevelData:
    """The visit that was chosen, with draws of its own."""
    level = virtual.level(chosen.look.users, requests=chosen.requests, seed=100 + number, **more)
    return replace(level, visit=number, meta={**level.meta, "search": chosen.facts()})


def broken(level: LevelData) -> LevelData:
    """As a level that was stopped for errors leaves it."""
    return replace(level, state="interrupted", meta={**level.meta, "state": "interrupted", "stop_reason": "errors"})


def busy(level: LevelData) -> LevelData:
    """The level with the generator as its limit."""
    length_ns = level.meta["end_ns"] - level.meta["start_ns"]
    return replace(level, meta={**level.meta, "workers": 1, "cpu_ns": int(0.95 * length_ns)})


def search(terms: Adaptive, measure: Measure = cluster, slo: Slo = SLO) -> tuple[list[Chosen], list[LevelData], Over]:
    """All levels of a search, and why it ended."""
    planner = Planner([Objective.of(slo)], terms)
    chosen: list[Chosen] = []
    levels: list[LevelData] = []
    while not isinstance(following := planner.next(visits_of(levels, planner.objectives)), Over):
        assert len(levels) < 60, "it never ends"
        chosen.append(following)
        levels.append(measure(len(levels), following))
    return chosen, levels, following


def truth(low: int, high: int) -> int:
    """The most users that keep the SLO in long runs, between one that does and one that does not."""
    while high - low > 1:
        middle = (low + high) // 2
        kept = virtual.level(middle, requests=400 * middle, seed=1).attainment(SLO)[0] >= 0.95
        low, high = (middle, high) if kept else (low, middle)
    return low


def test_it_grows_looks_around_the_capacity_and_stops_at_the_precision() -> None:
    chosen, levels, over = search(Adaptive(precision=0.05))
    assert over == Over("precision")
    why = [each.why for each in chosen]
    looks = [each for each in why if each != "grow"]
    assert why == ["grow"] * (len(why) - len(looks)) + looks
    assert looks[:4] == ["edge", "below", "above", "edge"]
    growth = [each.look.users for each in chosen if each.why == "grow"]
    assert growth[0] == 1
    assert all(b > a for a, b in itertools.pairwise(growth))
    found = found_of(levels, [SLO], Adaptive(precision=0.05))
    assert found is not None
    assert found.capacity is not None
    assert found.precision is not None
    assert found.precision <= 0.05
    most = truth(1, 80)
    assert found.low <= most + 1
    assert found.high is not None
    assert found.high >= most
    assert found.capacity == pytest.approx(most, rel=0.1)
    assert (found.reason, found.slo, found.wall, found.remarks) == ("precision", str(SLO), None, ())
    assert found.requests == sum(each.requests for each in chosen)


def test_what_comes_next_follows_from_the_levels_alone() -> None:
    chosen, levels, _ = search(Adaptive(precision=0.05))
    planner = Planner([Objective.of(SLO)], Adaptive(precision=0.05))
    for k, each in enumerate(chosen):
        assert planner.next(visits_of(levels[:k], planner.objectives)) == each


def test_a_budget_of_requests_is_kept() -> None:
    chosen, levels, over = search(Adaptive(precision=0.001, budget=900))
    assert over == Over("budget")
    assert sum(each.requests for each in chosen) <= 900
    found = found_of(levels, [SLO], Adaptive(precision=0.001, budget=900))
    assert found is not None
    assert found.reason == "budget"
    assert found.capacity is not None


def test_a_budget_of_time_is_kept() -> None:
    """Levels have a bound in time as well; the last one may pass it by what one round takes."""
    _, levels, over = search(Adaptive(precision=0.001, budget="4m"))
    assert over == Over("budget")
    took = sum(each.length_s for each in visits_of(levels, [Objective.of(SLO)]))
    assert 190 < took < 290


def test_a_budget_of_money_is_spent_as_the_time_that_it_pays_for() -> None:
    timed, _, _ = search(Adaptive(precision=0.001, budget="4m"))
    paid, _, over = search(Adaptive(precision=0.001, budget="2usd", gpu_hour_price="10 USD", gpus=3))
    assert (paid, over) == (timed, Over("budget"))


def test_no_load_misses_up_to_the_limit() -> None:
    chosen, levels, over = search(Adaptive(most_users=8))
    assert over == Over("limit")
    assert max(each.look.users for each in chosen) == 8
    found = found_of(levels, [SLO], Adaptive(most_users=8))
    assert found is not None
    assert (found.capacity, found.reason) == (None, "limit")
    assert found.low == 8


def test_a_limit_at_which_nothing_settles_is_not_looked_at_for_ever() -> None:
    def brief(number: int, chosen: Chosen) -> LevelData:
        return replace(cluster(number, chosen), intervals=[])

    chosen, _, over = search(Adaptive(most_users=8), brief)
    assert over == Over("limit")
    assert [each.look.users for each in chosen].count(8) == 5


def test_a_search_for_what_no_request_has_ends_with_its_first_level() -> None:
    def busy_and_whole(number: int, chosen: Chosen) -> LevelData:
        return busy(cluster(number, chosen, whole=True))

    slo = Slo.parse("p95 ttft <= 1s")
    for measure in (lambda number, chosen: cluster(number, chosen, whole=True), busy_and_whole):
        chosen, levels, over = search(Adaptive(), measure, slo)
        assert (len(chosen), over) == (1, Over("silent"))
        found = found_of(levels, [slo], Adaptive())
        assert found is not None
        assert (found.capacity, found.low, found.high, found.slo) == (None, 0.0, None, str(slo))
        assert found_text(found) == "no load is known to be within p95 ttft <= 1s; no request has data for it"
        assert ended_text(found).startswith("no request has data for p95 ttft <= 1s")


def test_requests_that_all_fail_before_any_call_are_misses_and_no_silence() -> None:
    """Of a workflow whose model is down: none of its calls was ever marked."""

    def failing(number: int, chosen: Chosen) -> LevelData:
        made = cluster(number, chosen)
        assert made.records is not None
        failed = made.records.with_columns(pl.lit("http_error").cast(outcome_dtype()).alias("outcome"))
        return replace(made, records=failed)

    chosen, _, over = search(Adaptive(), failing, Slo.parse("p95 llm_latency <= 1s"))
    assert ([each.look.users for each in chosen], over) == ([1, 1], Over("single"))


def test_a_single_user_who_misses_is_tried_once_more() -> None:
    never = Slo.parse("p95 runtime <= 1ms")
    chosen, levels, over = search(Adaptive(), slo=never)
    assert over == Over("single")
    assert [(each.look.users, each.why) for each in chosen] == [(1, "grow"), (1, "again")]
    found = found_of(levels, [never], Adaptive())
    assert found is not None
    assert (found.capacity, found.reason) == (0.0, "single")


def test_a_target_that_breaks_is_evidence_from_above() -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        level = cluster(number, chosen)
        return broken(level) if chosen.look.users > 20 else level

    chosen, levels, over = search(Adaptive(), measure)
    assert over == Over("precision")
    users = [each.look.users for each in chosen]
    assert users.count(20) >= 2
    assert users.count(21) >= 2
    found = found_of(levels, [SLO], Adaptive())
    assert found is not None
    assert (found.capacity, found.high, found.wall) == (20.0, 21.0, 21)


def test_a_target_that_breaks_at_once_carries_nobody() -> None:
    _, levels, over = search(Adaptive(), lambda number, chosen: broken(cluster(number, chosen)))
    assert over == Over("single")
    assert [level.concurrency for level in levels] == [1, 1]


def test_one_failure_is_no_wall() -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        level = cluster(number, chosen)
        return broken(level) if number == 0 else level

    _, levels, over = search(Adaptive(precision=0.05), measure)
    assert over == Over("precision")
    assert max(level.concurrency or 0 for level in levels) > 20


@pytest.mark.parametrize("slow", range(1, 5))
def test_a_slow_moment_on_the_way_up_does_not_end_the_search(slow: int) -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        return cluster(number, chosen, slowness=3.0 if number == slow else 1.0)

    _, levels, over = search(Adaptive(precision=0.1), measure)
    found = found_of(levels, [SLO], Adaptive(precision=0.1))
    assert found is not None
    assert over == Over("precision")
    assert found.capacity == pytest.approx(24, rel=0.15)


def test_what_the_user_cut_off_only_costs() -> None:
    _, levels, _ = search(Adaptive(precision=0.05))
    planner = Planner([Objective.of(SLO)], Adaptive(precision=0.05))
    cut = replace(levels[3], state="cancelled", meta={**levels[3].meta, "state": "cancelled", "due": 7})
    visits = visits_of([*levels[:3], cut], planner.objectives)
    assert (visits[3].sent, visits[3].failed, visits[3].observed) == (7, False, None)
    again = planner.next(visits)
    assert isinstance(again, Chosen)
    assert again.look.users == levels[3].concurrency


def test_a_level_in_which_the_generator_was_the_limit_is_measured_again() -> None:
    """And counts for nothing from then on: what follows is what would have followed without it."""
    chosen, levels, _ = search(Adaptive(precision=0.05))
    planner = Planner([Objective.of(SLO)], Adaptive(precision=0.05))
    for number in (2, next(k for k, each in enumerate(chosen) if each.why == "edge")):
        late = [*levels[:number], busy(levels[number])]
        repeat = planner.next(visits_of(late, planner.objectives))
        assert isinstance(repeat, Chosen)
        assert (repeat.look.users, repeat.requests) == (chosen[number].look.users, chosen[number].requests)
        assert (repeat.why, repeat.of) == ("repeat", chosen[number].why)
        again = replace(levels[number], meta={**levels[number].meta, "search": repeat.facts()})
        after = planner.next(visits_of([*late, again], planner.objectives))
        assert isinstance(after, Chosen)
        assert (after.look.users, after.why) == (chosen[number + 1].look.users, chosen[number + 1].why)


def test_a_load_that_the_generator_cannot_send_is_tried_three_times() -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        level = cluster(number, chosen)
        return busy(level) if chosen.look.users == 5 else level

    chosen, levels, over = search(Adaptive(precision=0.05), measure)
    assert over == Over("precision")
    assert [each.why for each in chosen if each.look.users == 5] == ["grow", "repeat", "repeat"]
    found = found_of(levels, [SLO], Adaptive(precision=0.05))
    assert found is not None
    assert (found.limited, found.loads) == ((5,), len({each.look.users for each in chosen}))
    assert found.capacity == pytest.approx(24, rel=0.15)


def test_a_busy_machine_costs_no_more_than_the_budget() -> None:
    chosen, levels, over = search(Adaptive(budget=2000), lambda number, chosen: busy(cluster(number, chosen)))
    assert over == Over("budget")
    assert sum(each.requests for each in chosen) <= 2000
    users = [each.look.users for each in chosen]
    assert [each.why for each in chosen[:3]] == ["grow", "repeat", "repeat"]
    for load in set(users):
        assert sum(each.why == "repeat" for each in chosen if each.look.users == load) <= 2
    found = found_of(levels, [SLO], Adaptive(budget=2000))
    assert found is not None
    assert found.limited == tuple(sorted(set(users)))
    assert found.capacity is not None


def test_what_a_resumed_search_measures_again_is_no_look() -> None:
    """Growth that is made up for after looks stands where it would have stood."""
    chosen, levels, _ = search(Adaptive(precision=0.05))
    number = next(k for k, each in enumerate(chosen) if each.look.users > 4)
    planner = Planner([Objective.of(SLO)], Adaptive(precision=0.05))
    first = next(k for k, each in enumerate(chosen) if each.why == "edge") + 2
    late = [*levels[:number], busy(levels[number]), *levels[number + 1 : first]]
    visits = visits_of(late, planner.objectives)
    [lacking] = owed(visits, 1)
    assert lacking.users == chosen[number].look.users
    repeat = planner.repeat(lacking, of_part(visits, 1))
    assert repeat is not None
    made = replace(levels[number], meta={**levels[number].meta, "search": {**repeat.facts(), "part": 1}})
    visits = visits_of([*late, made], planner.objectives)
    assert owed(visits, 1) == []
    after = planner.next(of_part(visits, 1))
    assert isinstance(after, Chosen)
    assert (after.look.users, after.why) == (chosen[first].look.users, chosen[first].why)


def test_looks_that_contradict_each_other_are_told() -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        return cluster(number, chosen, slowness=1.25 if number > 10 else 1.0)

    _, levels, _ = search(Adaptive(precision=0.01), measure)
    found = found_of(levels, [SLO], Adaptive(precision=0.01))
    assert found is not None
    assert len(found.remarks) == 1
    assert "contradict each other beyond chance" in found.remarks[0]


def test_batches_that_run_to_their_end_widen_the_interval_and_are_told() -> None:
    def batches(number: int, chosen: Chosen) -> LevelData:
        return cluster(number, chosen, static_batching={"base_s": 0.05, "delay_s": 0.0}, max_batch=12)

    terms = Adaptive(precision=0.05, budget=12_000)
    slo = Slo.parse("p95 runtime <= 15s")
    _, levels, over = search(terms, batches, slo)
    found = found_of(levels, [slo], terms)
    assert found is not None
    assert over == Over("budget")
    assert found.precision is not None
    assert found.precision > 0.19
    assert any("which users share a batch" in remark for remark in found.remarks)
    _, levels, _ = search(terms)
    found = found_of(levels, [SLO], terms)
    assert found is not None
    assert not any("which users share a batch" in remark for remark in found.remarks)


def test_a_mean_and_several_slos_have_intervals_too() -> None:
    for texts in (["mean runtime <= 5s"], ["p95 runtime <= 9s", "p90 ttft <= 0.5s"]):
        slos = [Slo.parse(text) for text in texts]
        levels: list[LevelData] = []
        planner = Planner([Objective.of(slo) for slo in slos], Adaptive(precision=0.1))
        while isinstance(following := planner.next(visits_of(levels, planner.objectives)), Chosen):
            levels.append(cluster(len(levels), following))
        found = found_of(levels, slos, Adaptive(precision=0.1))
        assert found is not None
        assert found.capacity is not None
        assert found.high is not None
        assert found.low < found.capacity < found.high
        assert found.slo in [str(slo) for slo in slos]


def test_quantiles_of_student() -> None:
    known: Sequence[tuple[float, float]] = ((3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (1e6, 1.960))
    for freedom, quantile in known:
        assert t_quantile(freedom) == pytest.approx(quantile, rel=0.01)
