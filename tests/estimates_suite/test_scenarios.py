"""Draws: pure functions of the seed, spread as they should be, and with the answer where it was meant to be."""

from __future__ import annotations

import math

import pytest

from benches.estimates.scenario import Scenario
from benches.estimates.scenarios import draw


@pytest.fixture(scope="module")
def drawn() -> list[Scenario]:
    return draw(7, 50)


def test_a_draw_is_a_pure_function(drawn: list[Scenario]) -> None:
    assert draw(7, 3, first=20) == drawn[20:23]
    assert draw(8, 1)[0].digest() != drawn[0].digest()
    assert len({each.digest() for each in drawn}) == len(drawn)


def test_scenarios_are_spread(drawn: list[Scenario]) -> None:
    n = len(drawn)
    foreign = sum(each.foreign for each in drawn)
    assert n / 3 <= foreign <= 2 * n / 3
    assert len({each.kind for each in drawn}) >= 5
    traits = {trait for each in drawn for trait in each.traits}
    assert traits >= {"fixed", "lognormal", "bimodal", "trace", "pauses", "p95 runtime", "p99 runtime", "p95 ttft"}
    assert {each.visible.router for each in drawn} == {"least_loaded", "round_robin", "random"}
    assert {each.visible.think for each in drawn} == {"none", "fixed", "exponential"}
    assert 5 <= sum(each.visible.users is None for each in drawn) <= 25
    small = sum(each.hint <= 20 for each in drawn)
    assert n / 2 <= small <= 0.85 * n
    assert any(each.hint > 100 for each in drawn)


def test_the_budget_is_a_number_of_requests_or_of_rounds(drawn: list[Scenario]) -> None:
    for each in drawn:
        rounds = 40 * each.rounds(each.edge * each.visible.replicas[0])
        assert each.expects != "answer" or each.budget == max(4000, math.ceil(rounds))


def test_users_lie_between_ten_and_ten_thousand(drawn: list[Scenario]) -> None:
    users = [each.visible.users for each in drawn if each.visible.users is not None]
    assert min(users) >= 10
    assert max(users) <= 10_000
