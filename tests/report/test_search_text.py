"""A search in words: what is said of its levels and of what it found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.more import Again
from gpusize.estimate.search.result import Found
from gpusize.report.summary.search_text import chosen_text, search_rows

FOUND = Found(
    capacity=24.0,
    low=22.0,
    high=26.0,
    reason="budget",
    slo="p95 runtime <= 1s",
    wall=None,
    levels=12,
    requests=1500,
    most_users=60,
    terms=Adaptive(),
    loads=9,
)


@pytest.mark.parametrize(
    "search, said",
    [
        (None, ""),
        ({"why": "grow", "low": 0, "high": None}, "growing"),
        ({"why": "edge", "low": 12.5, "high": 13.2}, "at the capacity, capacity between 12 and 14"),
        ({"why": "repeat", "of": "edge", "low": 3.0, "high": None}, "as the generator was the limit, capacity above 3"),
    ],
)
def test_why_a_level_was_chosen(search: dict[str, object] | None, said: str) -> None:
    assert chosen_text(search).endswith(said)


def test_a_budget_that_is_not_spent_says_why_the_search_ended() -> None:
    timed = replace(FOUND, terms=Adaptive(budget="4m"))
    assert dict(search_rows(replace(timed, length_s=236.0)))["ended"].startswith("the budget is spent, short of")
    early = dict(search_rows(replace(timed, length_s=152.0)))["ended"]
    assert early.startswith("2m32s of the budget of 4m were used: its measurements were planned")
    open_end = dict(search_rows(replace(timed, length_s=152.0, capacity=None)))["ended"]
    assert "no load up to then showed one" in open_end
    few = dict(search_rows(replace(FOUND, terms=Adaptive(budget=4000))))["ended"]
    assert few.startswith("1,500 of the budget of 4000 were used")


def test_a_search_that_knows_the_count_says_so() -> None:
    said = dict(search_rows(replace(FOUND, reason="count", users=70.0)))["ended"]
    assert (
        said
        == "the number of GPUs for 70 users is known; the capacity is known to within 8.3 %; without --users it goes on"
    )


def test_what_as_much_again_would_buy_is_said() -> None:
    again = Again(1500, 236.0, 2.0, 22.8, 25.2, 0.05)
    said = dict(search_rows(replace(FOUND, again=again)))["more"]
    assert said == "as much again (1,500 requests, about 3m56s) would show it to within about 5 %: 22.8 to 25.2 users"
    hardly = replace(again, precision=0.08, low=22.1, high=25.9)
    said = dict(search_rows(replace(FOUND, again=hardly)))["more"]
    assert said == "as much again (1,500 requests, about 3m56s) would hardly narrow it"


def test_what_it_cost_is_said_where_a_price_is_known() -> None:
    terms = Adaptive(budget="5usd", gpu_hour_price="10", gpus=8)
    said = dict(search_rows(replace(FOUND, terms=terms, length_s=90.0, again=Again(1500, 90.0, 2.0, 22.8, 25.2, 0.05))))
    assert said["cost"].endswith("up to 60 users, 2.00 usd")
    assert said["ended"].startswith("2.00 usd of the budget of 5 usd were used")
    assert "(1,500 requests, about 1m30s, 2.00 usd)" in said["more"]
    timed = replace(FOUND, terms=replace(terms, budget="4m"), length_s=90.0)
    assert dict(search_rows(timed))["cost"].endswith("up to 60 users, 2.00")


def test_a_search_without_a_capacity_says_only_what_is_true() -> None:
    """Of a target that failed, loads before may have missed an SLO surely."""
    none = replace(FOUND, capacity=None, low=8.3, high=None, slo=None)
    said = [dict(search_rows(each))["capacity"] for each in (none, replace(none, reason="failed"))]
    assert said[0] == "at least 8.3 users within the SLOs; no measured load surely misses one"
    assert said[1] == ("at least 8.3 users within the SLOs; whether it carries more is not known, as the target failed")
    unseen = dict(search_rows(replace(none, low=0.0, loads=0)))["capacity"]
    assert unseen == "no load is known to be within the SLOs; no load was measured to its end"


def test_nothing_is_said_to_be_left_out_where_nothing_is() -> None:
    assert [label for label, _ in search_rows(FOUND)] == ["capacity", "ended", "cost"]


def test_loads_that_the_generator_was_the_limit_of_are_told_with_what_to_do() -> None:
    said = dict(search_rows(replace(FOUND, limited=(5, 30)), "runs/x"))["left out"]
    assert said.startswith("2 of 9 loads (5, 30 users): the load generator was the limit whenever they were measured")
    assert "an estimate leaves them out" in said
    for todo in ("end other processes", "--pin", "--workers", "gpusize run --resume runs/x"):
        assert todo in said
    assert dict(search_rows(replace(FOUND, limited=(1,))))["left out"].startswith("1 of 9 loads (1 user): ")
    many = dict(search_rows(replace(FOUND, limited=tuple(range(1, 40)), loads=39)))["left out"]
    assert "11, 12, … users" in many
    assert "13" not in many
