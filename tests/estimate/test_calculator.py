"""The calculator's document over our own records: items, LLM latency, totals."""

from __future__ import annotations

import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, to_calc_output
from tests.analysis.synthetic import MS, SOURCE, level

LLM = {**SOURCE, "targets": [{"url": None, "api": "openai-chat", "simulated": None}]}


def small(c, *, source=None, state="done", slow_ms=300):
    due = [1000 * MS] * 5
    columns = {
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": [d + 10 * MS for d in due],
        "end_ns": [d + ms * MS for d, ms in zip(due, (100, 110, 120, 130, slow_ms), strict=True)],
        "row": [0, 1, 0, 0, 1],
        "outcome": [0, 0, 0, 3, 0],
    }
    return level(c, columns, passes=5, source=source, state=state)


def document(levels, *slos, users=10, **more):
    question = Question(users, [Slo.parse(s) for s in slos or ("p95 runtime <= 250ms",)])
    return to_calc_output(levels, question, **more)


def test_items_by_dataset_id_with_repeats():
    metrics = document([small(1)])["calc_data"]["1"]["sizing_metrics"]
    assert {k: v["workflow_runtime"] for k, v in metrics["per_item_metrics"].items()} == {
        "0": 0.1,
        "1": 0.11,
        "0_rep1": 0.12,
        "1_rep1": 0.3,
    }
    named = document([small(1)], ids=["a", "b"])["calc_data"]["1"]["sizing_metrics"]["per_item_metrics"]
    assert list(named) == ["a", "b", "a_rep1", "b_rep1"]
    assert metrics["total_runtime"] == pytest.approx(0.29)


def test_items_over_the_target_are_counted_and_a_long_level_has_none(monkeypatch):
    monkeypatch.setattr("gpusize.estimate.calculator_output.MAX_ITEMS", 3)
    level_one = document([small(1)])["calc_data"]["1"]
    assert level_one["alerts"]["num_items_greater_than_target_runtime"] == 1
    assert level_one["sizing_metrics"]["per_item_metrics"] == {}


def test_llm_latency_is_null_where_the_request_is_no_llm_call():
    found = document([small(1), small(2)], "p95 runtime <= 250ms", "p95 service <= 1s", "p95 llm_latency <= 1s")
    metrics = found["calc_data"]["1"]["sizing_metrics"]
    assert metrics["llm_latency_p95"] is None
    assert metrics["per_item_metrics"]["0"]["llm_latency"] is None
    assert found["fit_results"]["llm_latency_fit"] is None
    assert found["gpu_estimates"]["gpu_estimate_by_llm_latency"] is None
    assert found["calc_data"]["1"]["alerts"]["num_items_greater_than_target_latency"] == 0


@pytest.mark.parametrize("slo", ["p95 service <= 1s", "p95 llm_latency <= 1s"])
def test_for_an_llm_target_the_request_is_the_llm_call(slo):
    found = document([small(1, source=LLM), small(2, source=LLM, slow_ms=500)], slo)
    metrics = found["calc_data"]["1"]["sizing_metrics"]
    assert metrics["llm_latency_p95"] == pytest.approx(metrics["workflow_runtime_p95"] - 0.01)
    assert metrics["per_item_metrics"]["0"]["llm_latency"] == pytest.approx(0.09)
    assert found["gpu_estimates"]["gpu_estimate_by_llm_latency"] is not None
    assert found["gpu_estimates"]["gpu_estimate_by_wf_runtime"] is None


def test_one_target_exceeded_voids_both_rough_figures():
    both = document([small(1, source=LLM)], "p95 runtime <= 1s", "p95 service <= 50ms")
    assert set(both["calc_data"]["1"]["gpu_estimates"].values()) == {None}
    one = document([small(1, source=LLM)], "p95 runtime <= 1s")
    assert one["calc_data"]["1"]["gpu_estimates"]["gpu_estimate_by_wf_runtime"] is not None


def test_an_interrupted_level_is_shown_and_does_not_count():
    found = document([small(1), small(2, slow_ms=400), small(4, state="interrupted", slow_ms=9000)])
    broken = found["calc_data"]["4"]
    assert broken["sizing_metrics"]["alerts"] == {"workflow_interrupted": True}
    assert broken["gpu_estimates"] == {"gpu_estimate_by_wf_runtime": None, "gpu_estimate_by_llm_latency": None}
    assert broken["alerts"]["num_items_greater_than_target_runtime"] == 0
    assert found["fit_results"] == document([small(1), small(2, slow_ms=400)])["fit_results"]


def test_an_slo_that_the_calculator_cannot_express_gives_nulls():
    found = document([small(1), small(2, slow_ms=400)], "p99 runtime <= 1s")
    assert set(found["gpu_estimates"].values()) == {None}
    assert found["fit_results"]["wf_runtime_fit"] is not None


def test_without_levels_it_is_empty():
    assert document([])["calc_data"] == {}
