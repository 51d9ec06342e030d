"""Policies out of manifests, and what their metrics measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError
from gpusize.estimate.plan.autoscale.autoscaler import Timing
from gpusize.estimate.plan.autoscale.keda import IDLE, INITIAL, NO_FALLBACK, PAUSED, POLLING
from gpusize.estimate.plan.autoscale.manifest import read_policies
from gpusize.estimate.plan.autoscale.quantity import milli
from gpusize.estimate.plan.autoscale.signals import signal

FILES = Path(__file__).parents[1] / "fixtures" / "autoscale"
LAST = {"over_time": "last", "window_s": 300.0, "across": "sum"}


USUAL = {"activation": 0.0, "use_cached": False, "ignore_null": True}


def series(quantity: object, **more: object) -> dict:
    return {"series": {"quantity": quantity, **LAST, **more}}


def arithmetic(operator: str, left: dict, right: dict) -> dict:
    return {"arithmetic": {"operator": operator, "left": left, "right": right}}


def test_an_hpa_with_its_defaults() -> None:
    [found] = read_policies(FILES / "hpa.yaml", timing=Timing(5.0, 30.0))
    assert (found.name, found.most, found.notes) == ("llama-queue", 12, ())
    assert found.policy["metrics"] == [
        {"source": "external", "target": {"average_value": 1000}},
        {"source": "pods", "target": {"average_value": 16_000}},
    ]
    assert found.signals == (series("waiting"), series("running"))
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
    cache = series("cache_usage", over_time="average", window_s=60.0, across="average")
    assert found.signals == (series("running"), cache)
    assert found.policy["behavior"]["down"]["stabilization_s"] == 60
    assert found.notes == (POLLING,)
    assert found.keda == {
        "polling_s": 10.0,
        "cooldown_s": 60,
        "initial_cooldown_s": 0,
        "min_replicas": 2,
        "idle_replicas": None,
        "fallback": {"failure_threshold": 3, "replicas": 4, "behavior": "static"},
        "triggers": [
            {"name": "running", "target": {"average_value": 16_000}, **USUAL},
            {"name": None, "target": {"value": 700}, **USUAL},
        ],
        "modifiers": None,
    }


def test_keda_s_own_defaults(tmp_path: Path) -> None:
    trigger = "{type: prometheus, metadata: {query: sum(waiting), threshold: 5}}"
    text = f"kind: ScaledObject\nmetadata: {{}}\nspec: {{triggers: [{trigger}]}}\n"
    (tmp_path / "s.yaml").write_text(text)
    [found] = read_policies(tmp_path / "s.yaml")
    # Of the ScaledObject none, of its HPA one at least.
    assert (found.least, found.policy["min_replicas"], found.most, found.policy["behavior"]) == (0, 1, 100, None)
    assert [found.bounded(each) for each in (0, 1, 500)] == [0, 1, 100]
    assert found.keda is not None
    assert (found.keda["polling_s"], found.keda["cooldown_s"], found.notes) == (30.0, 300, ())


MODIFIED = """kind: ScaledObject
metadata: {name: m, annotations: {autoscaling.keda.sh/paused-scale-in: "true"}}
spec:
  minReplicaCount: 2
  idleReplicaCount: 1
  initialCooldownPeriod: 90
  fallback: {failureThreshold: 2, replicas: 3, behavior: currentReplicasIfHigher}
  advanced:
    scalingModifiers:
      {formula: "max(queue / 2, tokens ?? 0)", target: "2.5", activationTarget: "0.5", metricType: Value}
  triggers:
    - {type: prometheus, name: queue, useCachedMetrics: true,
       metadata: {query: sum(waiting) + held, threshold: "0.0005", activationThreshold: "1", ignoreNullValues: "false"}}
    - {type: prometheus, name: tokens, metadata: {query: "sum(rate(prompt_tokens[1m]))", threshold: "1e3"}}
"""


def test_a_scaled_object_with_everything(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(MODIFIED)
    [found] = read_policies(tmp_path / "m.yaml")
    assert found.policy["metrics"] == [{"source": "external", "target": {"value": 2500}}]
    assert found.notes == (INITIAL, NO_FALLBACK, IDLE, PAUSED)
    assert found.keda is not None
    assert found.keda["fallback"]["behavior"] == "current_replicas_if_higher"
    assert found.keda["modifiers"] == {
        "formula": "max(queue / 2, tokens ?? 0)", "target": "2.5", "activation": 0.5, "is_value": True,
    }  # fmt: skip
    first, second = found.keda["triggers"]
    # KEDA rounds thresholds to thousandths, to even.
    assert first["target"] == {"average_value": 1}
    assert (first["activation"], first["use_cached"], first["ignore_null"]) == (1.0, True, False)
    assert second["target"] == {"average_value": 1_000_000}
    assert found.signals[0] == arithmetic("add", series("waiting"), series("held"))
    assert (found.least, found.bounded(0), found.bounded(1)) == (1, 1, 2)


@pytest.mark.parametrize(
    "change, problem",
    [
        (("max(queue / 2, tokens ?? 0)", "queue + cpu"), 'at character 9: there is no trigger "cpu"'),
        (("max(queue / 2, tokens ?? 0)", "trim(queue)"), "the function trim is not known"),
        (("max(queue / 2, tokens ?? 0)", "queue > 2"), "it comes to true or false, and KEDA wants a number"),
        (("name: tokens, ", ""), "triggers[1].name must be there"),
        (("name: tokens, ", "name: queue, "), "triggers[1].name is another trigger's too: queue"),
        (('target: "2.5"', "target: fast"), "target must be a number, as 16 or 0.7, not fast"),
        (('target: "2.5"', 'target: "0"'), "modifiers.target must be a number above 0"),
        (("idleReplicaCount: 1", "idleReplicaCount: 2"), "idle_replicas must be less than min_replicas (2), not 2"),
        (("currentReplicasIfHigher", "double"), "behavior must be one of static, currentReplicas"),
        (('"0.0005"', "500m"), "threshold must be a number, as 16 or 0.7, not 500m"),
        (('"0.0005"', "-1"), "threshold must be 0 or more, not -1"),
        (('"false"', '"no"'), "ignoreNullValues must be true or false, not no"),
        (("sum(waiting) + held", "waiting"), "gives a value for each replica, which KEDA refuses"),
        (("minReplicaCount: 2", "minReplicaCount: 200"), "the most replicas must be a number of at least 200, not 100"),
    ],
)
def test_what_keda_would_refuse_is_refused(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    assert change[0] in MODIFIED
    (tmp_path / "m.yaml").write_text(MODIFIED.replace(*change))
    with pytest.raises(ConfigError) as raised:
        read_policies(tmp_path / "m.yaml")
    assert problem in str(raised.value)


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
        ("kind: ScaledObject\nmetadata: {}\nspec: {triggers: []}\n", "it has no triggers"),
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
        ("sum(vllm:num_requests_waiting)", series("waiting")),
        ('max(sglang:num_running_reqs{job="a,b}"})', series("running", across="max")),
        ("llm_d_epp_average_queue_size", series("waiting", across="average")),
        ("llm_d_epp_flow_control_queue_size", series("held")),
        ("sum(rate(llm_d_epp_request_total[1m]))", series("dispatched", over_time="rate", window_s=60.0)),
        ("sum(rate(vllm:generation_tokens_total[1m]))", series("output_tokens", over_time="rate", window_s=60.0)),
        (
            "sum(in_flight) / 4 or vector(0)",
            {"or": [arithmetic("divide", series("in_flight"), {"number": 4.0}), {"number": 0.0}]},
        ),
        (
            "100 * avg(rate(busy[30s]))",
            arithmetic(
                "multiply", {"number": 100.0}, series("busy", over_time="rate", window_s=30.0, across="average")
            ),
        ),
        ("sum(max_over_time(waiting[2m]))", series("waiting", over_time="max", window_s=120.0)),
        (
            "max(running + waiting)",
            {"over": {"across": "max", "each": arithmetic("add", series("running"), series("waiting"))}},
        ),
        (
            "sum(rate(ttft_seconds_sum[1m])) / sum(rate(vllm:time_to_first_token_seconds_count[1m]))",
            arithmetic(
                "divide",
                series({"sum": "ttft"}, over_time="rate", window_s=60.0),
                series({"count": "ttft"}, over_time="rate", window_s=60.0),
            ),
        ),
        (
            "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{a='b'}[2m])))",
            {"quantile": {"q": 0.95, "histogram": "ttft", "window_s": 120.0}},
        ),
        (
            "avg(histogram_quantile(0.5, rate(itl_seconds_bucket[1m])))",
            {"quantile": {"q": 0.5, "histogram": "itl", "window_s": 60.0, "across": "average"}},
        ),
        (
            "1 - 2 - 3",
            arithmetic("subtract", arithmetic("subtract", {"number": 1.0}, {"number": 2.0}), {"number": 3.0}),
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
        ("histogram_quantile(0.9, sum by (le) (rate(waiting[1m])))", '"waiting" is no histogram that is known'),
        ("sum(ttft_seconds_bucket)", "ttft_seconds_bucket is a histogram"),
        ("sum(waiting) by (pod)", "this query cannot be simulated"),
        ("sum(waiting[5m])", "a range goes with a function over time"),
        ("sum(waiting) > 5", 'unexpected ">"'),
        ("waiting + held", "values of each replica beside one value of all"),
        ("sum(waiting", '")" was expected'),
        ("deriv(waiting[1m])", "the function deriv is not known"),
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
