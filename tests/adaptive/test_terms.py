"""What a search is asked for, and when it is one."""

from __future__ import annotations

from collections.abc import Sequence
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


LLM = ["language_model"]


def terms(options: dict[str, Any], natures: Sequence[str | None]) -> Adaptive | None:
    refuse_levels(options)
    return terms_of(options, load_from_options(options), as_slos(options.get("slo")), natures)


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
    assert (terms(options, LLM) is not None) is searches


def test_a_stored_plan_names_the_levels() -> None:
    assert not wants_search({"slo": ["p95 runtime <= 1s"], "plan": "plan.parquet"})


def test_a_workflow_tells_nothing_of_its_calls_per_request() -> None:
    options = {"slo": ["p95 llm_latency <= 1s"]}
    assert terms(options, [None]) is None
    with pytest.raises(UsageError, match="llm_latency is not known of each request"):
        terms({**options, "adaptive": True}, [None])


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
        terms(options, LLM)
    assert caught.value.where == where


def test_levels_of_the_command_line_take_the_place_of_a_search_in_a_file() -> None:
    file = {"adaptive": True, "precision": 0.03, "slo": ["p95 runtime <= 1s"]}
    assert over_levels(file, {"concurrencies": "1,2"}) == {"slo": ["p95 runtime <= 1s"]}
    assert over_levels({"rates": "3", "duration": "5s", "seed": 2}, {"adaptive": True}) == {"seed": 2}
    assert over_levels(file, {"seed": 3}) == file
