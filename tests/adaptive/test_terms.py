"""What a search is asked for, and when it is one."""

from __future__ import annotations

from typing import Any

import pytest

from gpusize.analysis.slo import as_slos
from gpusize.base.errors import UsageError
from gpusize.estimate.search import Adaptive
from gpusize.options.load import load_from_options
from gpusize.options.search import over_levels, refuse_levels, terms_of, wants_search


@pytest.mark.parametrize("precision, share", [("3%", 0.03), ("0.05", 0.05), (0.1, 0.1), ("2.5 %", 0.025)])
def test_precisions(precision: Any, share: float) -> None:
    assert Adaptive(precision=precision).share == pytest.approx(share)


@pytest.mark.parametrize(
    "budget, requests, time_s",
    [(None, None, None), (4000, 4000, None), ("4_000", 4000, None), ("10m", None, 600.0), ("90s", None, 90.0)],
)
def test_budgets(budget: Any, requests: int | None, time_s: float | None) -> None:
    terms = Adaptive(budget=budget)
    assert (terms.requests, terms.time_s) == (requests, time_s)
    assert Adaptive.of(terms.options()) == terms


@pytest.mark.parametrize(
    "budget, price, gpus, time_s",
    [
        ("5usd", "2.5 USD", 4, 1800.0),
        ("$5", "2.5usd", 4, 1800.0),
        ("0.5 EUR", "€2", 1, 900.0),
        ("5 chf", "2.5", 8, 900.0),
        ("1_000 usd", "10 usd", 100, 3600.0),
    ],
)
def test_a_budget_in_money_is_one_in_time(budget: str, price: str, gpus: int, time_s: float) -> None:
    terms = Adaptive(budget=budget, gpu_hour_price=price, gpus=gpus)
    assert terms.requests is None
    assert terms.time_s == pytest.approx(time_s)
    # What the time costs is what was to be spent.
    assert terms.cost_s is not None
    assert terms.money is not None
    assert terms.cost_s * time_s == pytest.approx(terms.money.amount)
    assert terms.cost_text(time_s) == f"{terms.money.amount:,.2f} {terms.money.currency}"
    assert Adaptive.of(terms.options(), gpus) == terms
    assert Adaptive.of(terms.facts(), terms.facts()["gpus"]) == terms


@pytest.mark.parametrize("budget", ["10m", "1h30m", "90s", "4000", None])
def test_times_and_requests_are_no_money(budget: str | None) -> None:
    terms = Adaptive(budget=budget, gpu_hour_price="2.5 EUR", gpus=2)
    assert terms.money is None
    assert (terms.requests, terms.time_s) == (Adaptive(budget=budget).requests, Adaptive(budget=budget).time_s)
    assert terms.cost_text(3600) == "5.00 EUR"
    assert terms.cost_text(0.036) == "0.000050 EUR"
    assert Adaptive(budget=budget).cost_text(3600) == ""


@pytest.mark.parametrize(
    "given, said, where",
    [
        ({"budget": "5usd"}, "needs the price of a GPU for an hour", "budget"),
        ({"budget": "5usd", "gpu_hour_price": "2 EUR"}, "a budget in usd and a price in EUR are given", "budget"),
        ({"budget": "5", "gpu_hour_price": "2 EUR"}, "too few", "budget"),
        ({"budget": "5usd", "gpu_hour_price": "cheap"}, '"cheap" is not a price', "gpu_hour_price"),
        ({"budget": "5x"}, '"5x" is not a budget', "budget"),
        ({"budget": "0usd", "gpu_hour_price": "2usd"}, '"0usd" is not a budget', "budget"),
        ({"budget": "0.01usd", "gpu_hour_price": "40usd", "gpus": 8}, "too small", "budget"),
    ],
)
def test_money_that_nobody_can_spend(given: dict[str, Any], said: str, where: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Adaptive(**given)
    assert caught.value.where == where


def test_money_needs_the_number_of_gpus() -> None:
    options = {"slo": ["p95 runtime <= 1s"], "budget": "5usd", "gpu_hour_price": "2.5"}
    load, slos = load_from_options(options), as_slos(options["slo"])
    found = terms_of(options, load, slos, 2)
    assert found is not None
    assert found.time_s == pytest.approx(3600)
    with pytest.raises(UsageError, match="not known without the number of GPUs") as caught:
        terms_of(options, load, slos, None)
    assert caught.value.where == "gpus"


@pytest.mark.parametrize(
    "given",
    [
        {"precision": "0"},
        {"precision": "60%"},
        {"precision": "fine"},
        {"precision": float("nan")},
        {"budget": "10"},
        {"budget": "1.5"},
        {"budget": "10 apples"},
        {"budget": "1ms"},
        {"most_users": 0},
        {"most_users": True},
    ],
)
def test_terms_that_cannot_be_meant(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Adaptive(**given)
    assert caught.value.where == next(iter(given))


def terms(options: dict[str, Any]) -> Adaptive | None:
    refuse_levels(options)
    return terms_of(options, load_from_options(options), as_slos(options.get("slo")))


@pytest.mark.parametrize(
    "options, searches",
    [
        ({"slo": ["p95 runtime <= 1s"]}, True),
        ({"slo": "p95 runtime <= 1s"}, True),
        ({}, False),
        ({"slo": ["p95 runtime <= 1s"], "concurrencies": "1,2"}, False),
        ({"slo": ["p95 runtime <= 1s"], "rates": "1,2", "duration": "5s"}, False),
        ({"slo": ["p95 runtime <= 1s"], "passes": 2}, False),
        ({"slo": ["p95 runtime <= 1s"], "duration": "5s"}, False),
        ({"slo": ["p95 runtime <= 1s"], "concurrencies": "1,2,4,8,16,32"}, False),
        ({"slo": ["p95 runtime <= 1s"], "seed": 3, "think": "1s"}, True),
        ({"slo": ["p95 runtime <= 1s"], "sample_records": "1/10"}, False),
        ({"slo": ["p95 runtime <= 1s"], "adaptive": False}, False),
        ({"slo": ["p95 llm_latency <= 1s"]}, True),
        ({"slo": ["share ok >= 99%"]}, True),
    ],
)
def test_an_slo_without_levels_is_searched_for(options: dict[str, Any], searches: bool) -> None:
    assert (terms(options) is not None) is searches


def test_a_stored_plan_names_the_levels() -> None:
    assert not wants_search({"slo": ["p95 runtime <= 1s"], "plan": "plan.parquet"})


@pytest.mark.parametrize(
    "options, where",
    [
        ({"adaptive": True}, "adaptive"),
        ({"adaptive": True, "slo": ["p95 runtime <= 1s"], "concurrencies": "1,2"}, "concurrencies"),
        ({"adaptive": True, "slo": ["p95 runtime <= 1s"], "duration": "5s"}, "duration"),
        ({"precision": "5%"}, "precision"),
        ({"slo": ["p95 runtime <= 1s"], "rates": "3", "count": 9, "budget": "10m"}, "budget"),
        ({"slo": ["p95 runtime <= 1s"], "adaptive": False, "most_users": 9}, "most_users"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        terms(options)
    assert caught.value.where == where


def test_levels_of_the_command_line_take_the_place_of_a_search_in_a_file() -> None:
    file = {"adaptive": True, "precision": 0.03, "slo": ["p95 runtime <= 1s"]}
    assert over_levels(file, {"concurrencies": "1,2"}) == {"slo": ["p95 runtime <= 1s"]}
    assert over_levels({"rates": "3", "duration": "5s", "seed": 2}, {"adaptive": True}) == {"seed": 2}
    assert over_levels(file, {"seed": 3}) == file
