"""Policies out of manifests, and what their metrics measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError
from gpusize.estimate.plan.autoscale.autoscaler import Timing
from gpusize.estimate.plan.autoscale.manifest import FALLBACK, POLLING, ZERO, read_policies
from gpusize.estimate.plan.autoscale.quantity import milli
from gpusize.estimate.plan.autoscale.signals import signal

FILES = Path(__file__).parents[1] / "fixtures" / "autoscale"
LAST = {"over_time": "last", "window_s": 300.0, "across": "sum", "factor": 1.0}


def test_an_hpa_with_its_defaults() -> None:
    [found] = read_policies(FILES / "hpa.yaml", timing=Timing(5.0, 30.0))
    assert (found.name, found.most, found.notes) == ("llama-queue", 12, ())
    assert found.policy["metrics"] == [
        {"source": "external", "target": {"average_value": 1000}},
        {"source": "pods", "target": {"average_value": 16_000}},
    ]
    assert found.signals == ({"quantity": "waiting", **LAST}, {"quantity": "running", **LAST})
    # scaleUp is not given: as SetDefaults_HorizontalPodAutoscalerBehavior fills it in.
    assert found.policy["behavior"] == {
        "up": {
            "stabilization_s": 0,
            "select": "max",
            "policies": [
                {"kind": "pods", "value": 4, "period_s": 15},
                {"kind": "percent", "value": 100, "period_s": 15},
            ],
            "tolerance": None,
        },
        "down": {
            "stabilization_s": 120,
            "select": "max",
            "policies": [{"kind": "pods", "value": 2, "period_s": 60}],
            "tolerance": None,
        },
    }
    assert [found.bounded(each) for each in (0, 5, 20)] == [1, 5, 12]


def test_a_scaled_object_is_the_hpa_that_keda_makes_of_it() -> None:
    [found] = read_policies(FILES / "scaledobject.yaml", {"running": "sum(running)"})
    assert (found.name, found.policy["min_replicas"], found.most) == ("llama-keda", 2, 8)
    assert found.policy["metrics"] == [
        {"source": "external", "target": {"average_value": 16_000}},
        {"source": "external", "target": {"value": 700}},
    ]
    cache = {"quantity": "cache_usage", "over_time": "average", "window_s": 60.0, "across": "average", "factor": 1.0}
    assert found.signals == ({"quantity": "running", **LAST}, cache)
    assert found.policy["behavior"]["down"]["stabilization_s"] == 60
    assert found.notes == (FALLBACK, POLLING)


def test_keda_s_own_defaults(tmp_path: Path) -> None:
    trigger = "{type: prometheus, metadata: {query: sum(waiting), threshold: 5}}"
    text = f"kind: ScaledObject\nmetadata: {{}}\nspec: {{triggers: [{trigger}]}}\n"
    (tmp_path / "s.yaml").write_text(text)
    [found] = read_policies(tmp_path / "s.yaml")
    assert (found.policy["min_replicas"], found.most, found.policy["behavior"]) == (1, 100, None)
    assert found.notes == (ZERO,)


HPA = """kind: HorizontalPodAutoscaler
metadata: {{name: a}}
spec:
  maxReplicas: {most}
  metrics:
    - type: {kind}
      {key}: {{metric: {{name: {name}}}, target: {{type: {target}, {field}: {value}}}}}
"""
GOOD = {
    "most": 4,
    "kind": "External",
    "key": "external",
    "name": "waiting",
    "target": "Value",
    "field": "value",
    "value": 1,
}


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"most": 0}, "a: the most replicas must be a number of at least 1, not 0"),
        ({"kind": "Resource", "key": "resource"}, "a: metrics[0]: metrics of type Resource are not simulated"),
        ({"name": "queue_depth"}, 'what the metric "queue_depth" measures is not known'),
        ({"target": "Utilization"}, "a target of type Utilization does not go with External"),
        ({"value": "many"}, "value must be a quantity, as 500m or 16, not many"),
        ({"field": "averageValue"}, "value must be a quantity"),
    ],
)
def test_what_cannot_be_simulated_says_where_and_what_to_do(tmp_path: Path, change: dict, problem: str) -> None:
    (tmp_path / "p.yaml").write_text(HPA.format(**GOOD))
    assert len(read_policies(tmp_path / "p.yaml")) == 1
    (tmp_path / "p.yaml").write_text(HPA.format(**{**GOOD, **change}))
    with pytest.raises(ConfigError) as raised:
        read_policies(tmp_path / "p.yaml")
    assert problem in str(raised.value)
    assert "p.yaml" in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    for text, problem in (
        ("kind: Deployment\n", "there is no HorizontalPodAutoscaler or ScaledObject in it"),
        ("a: [\n", "broken YAML"),
        ("", "there is no HorizontalPodAutoscaler"),
        ("kind: HorizontalPodAutoscaler\n", "it has no metadata"),
        ("kind: ScaledObject\nmetadata: {}\nspec: {triggers: [{type: cron}]}\n", "triggers of type cron"),
        (
            "kind: ScaledObject\nmetadata: {}\nspec: {triggers: [{}], advanced: {scalingModifiers: {formula: a}}}\n",
            "scalingModifiers are not simulated",
        ),
    ):
        place.write_text(text)
        with pytest.raises(ConfigError) as raised:
            read_policies(place)
        assert problem in str(raised.value), text
    with pytest.raises(ConfigError):
        read_policies(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "query, expected",
    [
        ("sum(vllm:num_requests_waiting)", {"quantity": "waiting", **LAST}),
        ('max(sglang:num_running_reqs{job="a,b"})', {"quantity": "running", **LAST, "across": "max"}),
        ("llm_d_epp_average_queue_size", {"quantity": "waiting", **LAST, "across": "average"}),
        ("sum(in_flight) / 4 or vector(0)", {"quantity": "in_flight", **LAST, "factor": 0.25}),
        (
            "100 * avg(rate(busy[30s]))",
            {"quantity": "busy", "over_time": "rate", "window_s": 30.0, "across": "average", "factor": 100.0},
        ),
        (
            "sum(max_over_time(waiting[2m]))",
            {"quantity": "waiting", "over_time": "max", "window_s": 120.0, "across": "sum", "factor": 1.0},
        ),
    ],
)
def test_queries(query: str, expected: dict) -> None:
    assert signal(query, "here") == expected


@pytest.mark.parametrize(
    "query, problem",
    [
        ("sum(requests)", "requests only ever grows"),
        ("sum(rate(waiting[1m]))", "waiting is no counter"),
        ("sum(foo_bar)", 'what the metric "foo_bar" measures is not known'),
        ("histogram_quantile(0.9, x)", "this query cannot be simulated"),
        ("sum(waiting) by (pod)", "this query cannot be simulated"),
        ("sum(waiting[5m])", "this query cannot be simulated"),
        ("0 * sum(waiting)", "a factor must be above 0"),
        ("", "this query cannot be simulated"),
    ],
)
def test_queries_that_cannot_be_simulated(query: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        signal(query, "here")
    assert problem in str(raised.value)
    assert "here" in str(raised.value)


def test_quantities_as_kubernetes_reads_them() -> None:
    cases = {"500m": 500, "2": 2000, "1.5k": 1_500_000, "1e3": 1_000_000, "0.0001": 1, ".5": 500, "1Ki": 1_024_000}
    assert {text: milli(text) for text in cases} == cases
    assert [milli(text) for text in ("", "x", "5 m", "1e999", "10000000E", "Ki")] == [None] * 6
