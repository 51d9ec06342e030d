"""What scales and routes says of itself: llm-d's endpoint picker, KEDA, kube-state-metrics, and the WVA of old.

- The endpoint picker changed its prefix twice: ``llm_d_epp_`` (llm-d-router 0.10), ``llm_d_router_epp_`` before, and
  ``inference_objective_``, ``inference_pool_``, ``inference_extension_`` and ``inference_model_`` of the Gateway API
  inference extension. Older ones are still shown beside the new ones, so one scrape has a metric up to three times.
- KEDA 2.15 renamed its metrics; latencies were in milliseconds before.
- The Workload Variant Autoscaler is deprecated by its project; its series are here for what was recorded.
"""

from __future__ import annotations

from typing import Final

from gpusize.observe.series.definition import Across, Definition, Kind, Source

__all__ = ["DEPLOYMENT", "EPP", "HPA", "KEDA", "WVA"]

_MS: Final = 1e-3
_EPP: Final = ("llm_d_epp_", "llm_d_router_epp_")
_OBJECTIVE: Final = ("inference_objective_", "inference_model_")


def _epp(
    name: str, means: str, kind: Kind, unit: str, *metrics: str, old: tuple[str, ...] = (), across: Across = "sum"
) -> Definition:
    """Its name of today, with both prefixes, then what it was called before."""
    named = dict.fromkeys((*(f"{prefix}{metric}" for metric in metrics for prefix in _EPP), *old))
    by = ("name",) if name.startswith("pool_") and name != "pool_saturation" else ()
    return Definition(name, means, kind, unit, tuple(map(Source, named)), across, by)


def _before(metric: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{metric}" for prefix in _OBJECTIVE)


EPP: Final = (
    _epp(
        "gateway_requests", "requests that came", "counter", "requests", "request_total", old=_before("request_total")
    ),
    _epp(
        "gateway_errors",
        "requests that failed, by error_code",
        "counter",
        "requests",
        "request_error_total",
        old=_before("request_error_total"),
    ),
    _epp(
        "gateway_request_time",
        "from a request to its whole answer, at the gateway",
        "histogram",
        "s",
        "request_duration_seconds",
        old=_before("request_duration_seconds"),
    ),
    _epp("gateway_ttft", "time to the first token, at the gateway", "histogram", "s", "request_ttft_seconds"),
    _epp("gateway_tpot", "time per output token, at the gateway", "histogram", "s", "request_streaming_tpot_seconds"),
    _epp("gateway_itl", "time between tokens, at the gateway", "histogram", "s", "request_streaming_itl_seconds"),
    _epp(
        "gateway_ntpot",
        "time of a request per token of its answer",
        "histogram",
        "s",
        "request_ntpot_seconds",
        "normalized_time_per_output_token_seconds",
        old=_before("normalized_time_per_output_token_seconds"),
    ),
    _epp(
        "gateway_tokens_in",
        "prompt tokens of a request",
        "histogram",
        "tokens",
        "request_input_tokens",
        "input_tokens",
        old=_before("input_tokens"),
    ),
    _epp(
        "gateway_tokens_out",
        "tokens of an answer",
        "histogram",
        "tokens",
        "request_output_tokens",
        "output_tokens",
        old=_before("output_tokens"),
    ),
    _epp(
        "gateway_running",
        "requests under way, by model",
        "gauge",
        "requests",
        "request_running",
        "running_requests",
        old=_before("running_requests"),
    ),
    _epp(
        "gateway_in_flight", "requests sent to each endpoint and not answered", "gauge", "requests", "inflight_requests"
    ),
    _epp("gateway_in_flight_tokens", "tokens of those", "gauge", "tokens", "inflight_tokens"),
    _epp(
        "pool_ready",
        "endpoints of a pool that are ready",
        "gauge",
        "replicas",
        "ready_endpoints",
        old=("inference_pool_ready_pods",),
        across="max",
    ),
    _epp(
        "pool_kv_cache_use",
        "share of the KV cache that is held, mean of a pool",
        "gauge",
        "share",
        "average_kv_cache_utilization",
        old=("inference_pool_average_kv_cache_utilization",),
        across="mean",
    ),
    _epp(
        "pool_queue",
        "requests that wait at a model server, mean of a pool",
        "gauge",
        "requests",
        "average_queue_size",
        old=("inference_pool_average_queue_size",),
        across="mean",
    ),
    _epp(
        "pool_running",
        "requests at work on a model server, mean of a pool",
        "gauge",
        "requests",
        "average_running_requests",
        old=("inference_pool_average_running_requests",),
        across="mean",
    ),
    _epp(
        "endpoint_queue",
        "requests that wait at each endpoint",
        "gauge",
        "requests",
        "per_endpoint_queue_size",
        old=("inference_pool_per_pod_queue_size",),
    ),
    _epp(
        "gateway_queue",
        "requests that flow control holds back",
        "gauge",
        "requests",
        "flow_control_queue_size",
        old=("inference_extension_flow_control_queue_size",),
    ),
    _epp(
        "gateway_queue_time",
        "time that flow control held a request back",
        "histogram",
        "s",
        "flow_control_request_queue_duration_seconds",
        old=("inference_extension_flow_control_request_queue_duration_seconds",),
    ),
    _epp(
        "pool_saturation",
        "how full the pool is: 1 is full",
        "gauge",
        "share",
        "flow_control_pool_saturation",
        old=("inference_extension_flow_control_pool_saturation",),
        across="max",
    ),
    _epp(
        "schedule_time",
        "time to choose an endpoint",
        "histogram",
        "s",
        "scheduler_e2e_duration_seconds",
        old=("inference_extension_scheduler_e2e_duration_seconds",),
    ),
    _epp("slo_violations", "requests beyond their SLO", "counter", "requests", "request_slo_violation_total"),
)


def _gauge(
    name: str, means: str, unit: str, *sources: Source, across: Across = "sum", by: tuple[str, ...] = ()
) -> Definition:
    return Definition(name, means, "gauge", unit, sources, across, by)


_SCALED: Final = ("scaledObject",)
_TRIGGER: Final = ("scaledObject", "metric")


KEDA: Final = (
    _gauge(
        "trigger_active", "whether a trigger is active", "", Source("keda_scaler_active"), across="each", by=_TRIGGER
    ),
    _gauge(
        "trigger_value",
        "value of a trigger, as the HPA is given it",
        "",
        Source("keda_scaler_metrics_value"),
        across="each",
        by=_TRIGGER,
    ),
    _gauge(
        "trigger_latency",
        "time to ask for a trigger's value",
        "s",
        Source("keda_scaler_metrics_latency_seconds"),
        Source("keda_scaler_metrics_latency", _MS),
        across="max",
        by=_TRIGGER,
    ),
    Definition(
        "trigger_errors",
        "times that a trigger's value could not be had",
        "counter",
        "errors",
        (Source("keda_scaler_detail_errors_total"), Source("keda_scaler_errors")),
        by=_TRIGGER,
    ),
    Definition(
        "scaledobject_errors",
        "errors of a ScaledObject",
        "counter",
        "errors",
        (Source("keda_scaled_object_errors_total"), Source("keda_scaled_object_errors")),
        by=_SCALED,
    ),
    _gauge(
        "scaledobject_paused",
        "whether a ScaledObject is paused",
        "",
        Source("keda_scaled_object_paused"),
        across="each",
        by=_SCALED,
    ),
    _gauge(
        "scale_loop_delay",
        "how late the scaling loop is",
        "s",
        Source("keda_internal_scale_loop_latency_seconds"),
        Source("keda_internal_scale_loop_latency", _MS),
        across="max",
    ),
)


def _hpa(name: str, means: str, unit: str, metric: str, *by: str) -> Definition:
    across: Across = "each" if by else "sum"
    source = Source(f"kube_horizontalpodautoscaler_{metric}")
    return _gauge(name, means, unit, source, across=across, by=("namespace", "horizontalpodautoscaler", *by))


HPA: Final = (
    _hpa("replicas_desired", "replicas that the HPA asks for", "replicas", "status_desired_replicas"),
    _hpa("replicas_current", "replicas that the HPA counts", "replicas", "status_current_replicas"),
    _hpa("replicas_min", "fewest replicas allowed", "replicas", "spec_min_replicas"),
    _hpa("replicas_max", "most replicas allowed", "replicas", "spec_max_replicas"),
    _hpa("hpa_target", "target of a metric", "", "spec_target_metric", "metric_name", "metric_target_type"),
    _hpa(
        "hpa_metric",
        "value of a metric; missing where it is <unknown>",
        "",
        "status_target_metric",
        "metric_name",
        "metric_target_type",
    ),
    _hpa("hpa_condition", "conditions of the HPA", "", "status_condition", "condition", "status"),
)


def _deployment(name: str, means: str, metric: str) -> Definition:
    return _gauge(name, means, "replicas", Source(f"kube_deployment_{metric}"), by=("namespace", "deployment"))


DEPLOYMENT: Final = (
    _deployment("replicas_wanted", "replicas that the deployment is to have", "spec_replicas"),
    _deployment("replicas", "replicas that there are, ready or not", "status_replicas"),
    _deployment("replicas_ready", "replicas that are ready", "status_replicas_ready"),
    _deployment("replicas_available", "replicas that have been ready for minReadySeconds", "status_replicas_available"),
    _deployment("replicas_unavailable", "replicas that are missing or not available", "status_replicas_unavailable"),
)


def _wva(name: str, means: str, unit: str, metric: str, across: Across = "sum", kind: Kind = "gauge") -> Definition:
    return Definition(name, means, kind, unit, (Source(f"wva_{metric}"),), across, ("variant_name",))


WVA: Final = (
    _wva("wva_replicas_desired", "replicas that the WVA asks for", "replicas", "desired_replicas"),
    _wva("wva_replicas_current", "replicas that the WVA counts", "replicas", "current_replicas"),
    _wva("wva_ratio", "desired over current replicas", "", "desired_ratio", "each"),
    _wva("wva_saturation", "how full a variant is: 1 is full", "share", "saturation_utilization", "max"),
    _wva("wva_fresh", "whether the metrics that it goes by are fresh", "", "metrics_freshness_status", "each"),
    _wva("wva_scalings", "changes of the replicas", "changes", "replica_scaling_total", kind="counter"),
)
