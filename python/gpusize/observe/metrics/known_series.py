"""What series of the servers in the field mean: a table from their names to one quantity in one unit.

The names are those of Triton, vLLM, SGLang, TGI, llama.cpp and the DCGM exporter. A name with ``_total`` stands for the
bare name too, and the other way round: exporters differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["GPU_LABELS", "MEANINGS", "Meaning", "Rule"]

GPU_LABELS: Final = ("gpu_uuid", "UUID", "uuid", "gpu")
"""Labels that name a GPU, the best first."""

How = Literal["gauge", "counter", "ratio"]
Across = Literal["sum", "mean", "weighted"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one server says it.

    Attributes:
        series: name of the series; of a ratio, the counter above.
        below: of a ratio, the counter below; both taken as increases over the level.
        scale: factor to the meaning's unit.
    """

    series: str
    below: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Meaning:
    """One quantity.

    Attributes:
        name: as in ``level.json``'s ``server``.
        unit: of ``mean``, ``min``, ``max``, ``first``, ``last`` and ``delta``; ``rate`` is that per second.
        how: ``gauge``: a value at a time; ``counter``: what it rose by; ``ratio``: one rise over another.
        across: how GPUs or replicas make one figure: added, averaged, or (ratio) rises added before dividing.
        rules: the better ones first; of one source the first that has data is taken.
        gpu: whether it is of a GPU, so that the same GPU seen twice counts once.
    """

    name: str
    unit: str
    how: How
    across: Across
    rules: tuple[Rule, ...]
    gpu: bool = False


_MIB: Final = 1048576.0
_US: Final = 1e-6
_NS: Final = 1e-9
_OK: Final = "nv_inference_request_success"


def _per_request(*histograms: str, triton: str | None = None) -> tuple[Rule, ...]:
    """Mean seconds per request: from histograms in seconds, and from one of Triton's counters in microseconds.

    Triton's are divided by requests that ended well, never by executions: every request of a batch is charged the
    batch's whole time, and per execution a queue looks as many times longer as the batch is large.
    """
    rules = [Rule(f"{name}_sum", f"{name}_count") for name in histograms]
    if triton is not None:
        statistic = "success" if triton == "request" else triton
        rules.insert(0, Rule(f"nv_inference_{triton}_duration_us", _OK, _US))
        rules.append(Rule(f"kserve_{statistic}_ns", f"kserve_{statistic}_count", _NS))
    return tuple(rules)


def _each(*names: str, scale: float = 1.0) -> tuple[Rule, ...]:
    return tuple(Rule(name, scale=scale) for name in names)


MEANINGS: Final = (
    Meaning(
        "gpu_utilization",
        "share",
        "gauge",
        "mean",
        (*_each("nvml_gpu_utilization"), Rule("DCGM_FI_DEV_GPU_UTIL", scale=0.01), *_each("nv_gpu_utilization")),
        gpu=True,
    ),
    Meaning("gpu_tensor_active", "share", "gauge", "mean", _each("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), gpu=True),
    Meaning(
        "gpu_power",
        "W",
        "gauge",
        "sum",
        _each("nvml_power_watts", "DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage"),
        gpu=True,
    ),
    Meaning(
        "gpu_energy",
        "J",
        "counter",
        "sum",
        (
            *_each("nvml_energy_joules_total"),
            Rule("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=1e-3),
            *_each("nv_energy_consumption"),
        ),
        gpu=True,
    ),
    Meaning(
        "gpu_memory_used",
        "bytes",
        "gauge",
        "sum",
        (
            *_each("nvml_memory_used_bytes"),
            Rule("DCGM_FI_DEV_FB_USED", scale=_MIB),
            *_each("nv_gpu_memory_used_bytes"),
        ),
        gpu=True,
    ),
    Meaning(
        "gpu_memory_total",
        "bytes",
        "gauge",
        "sum",
        _each("nvml_memory_total_bytes", "nv_gpu_memory_total_bytes"),
        gpu=True,
    ),
    Meaning("gpu_power_limit", "W", "gauge", "sum", _each("nvml_power_limit_watts", "nv_gpu_power_limit"), gpu=True),
    Meaning("gpu_sm_clock", "MHz", "gauge", "mean", _each("nvml_sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK"), gpu=True),
    Meaning("gpu_throttled", "share", "gauge", "mean", _each("nvml_throttled"), gpu=True),
    Meaning("gpu_temperature", "°C", "gauge", "mean", _each("DCGM_FI_DEV_GPU_TEMP"), gpu=True),
    Meaning(
        "kv_cache_use",
        "share",
        "gauge",
        "mean",
        _each(
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "sglang:token_usage",
            "llamacpp:kv_cache_usage_ratio",
            "inference_pool_average_kv_cache_utilization",
        ),
    ),
    Meaning(
        "running",
        "requests",
        "gauge",
        "sum",
        _each(
            "vllm:num_requests_running",
            "sglang:num_running_reqs",
            "tgi_batch_current_size",
            "llamacpp:requests_processing",
        ),
    ),
    Meaning(
        "waiting",
        "requests",
        "gauge",
        "sum",
        _each(
            "vllm:num_requests_waiting",
            "sglang:num_queue_reqs",
            "tgi_queue_size",
            "llamacpp:requests_deferred",
            "nv_inference_pending_request_count",
        ),
    ),
    Meaning(
        "requests",
        "requests",
        "counter",
        "sum",
        _each(_OK, "vllm:request_success_total", "tgi_request_success", "kserve_success_count"),
    ),
    Meaning(
        "failures",
        "requests",
        "counter",
        "sum",
        _each("nv_inference_request_failure", "tgi_request_failure", "kserve_fail_count"),
    ),
    Meaning("inferences", "inferences", "counter", "sum", _each("nv_inference_count", "kserve_inference_count")),
    Meaning("executions", "executions", "counter", "sum", _each("nv_inference_exec_count", "kserve_execution_count")),
    Meaning(
        "batch_size",
        "inferences",
        "ratio",
        "weighted",
        (
            Rule("nv_inference_count", "nv_inference_exec_count"),
            Rule("tgi_batch_inference_size_sum", "tgi_batch_inference_size_count"),
            Rule("kserve_inference_count", "kserve_execution_count"),
        ),
    ),
    Meaning("busy", "s", "counter", "sum", (Rule("kserve_busy_ns", scale=_NS),)),
    Meaning(
        "tokens_per_step",
        "tokens",
        "ratio",
        "weighted",
        (Rule("vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count"),),
    ),
    Meaning(
        "queue_time",
        "s",
        "ratio",
        "weighted",
        _per_request(
            "vllm:request_queue_time_seconds",
            "sglang:queue_time_seconds",
            "tgi_request_queue_duration",
            triton="queue",
        ),
    ),
    Meaning("compute_input_time", "s", "ratio", "weighted", _per_request(triton="compute_input")),
    Meaning("compute_infer_time", "s", "ratio", "weighted", _per_request(triton="compute_infer")),
    Meaning("compute_output_time", "s", "ratio", "weighted", _per_request(triton="compute_output")),
    Meaning("prefill_time", "s", "ratio", "weighted", _per_request("vllm:request_prefill_time_seconds")),
    Meaning("decode_time", "s", "ratio", "weighted", _per_request("vllm:request_decode_time_seconds")),
    Meaning(
        "request_time",
        "s",
        "ratio",
        "weighted",
        _per_request(
            "vllm:e2e_request_latency_seconds",
            "sglang:e2e_request_latency_seconds",
            "tgi_request_duration",
            triton="request",
        ),
    ),
    Meaning(
        "first_token_time",
        "s",
        "ratio",
        "weighted",
        _per_request("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    ),
    Meaning(
        "token_gap",
        "s",
        "ratio",
        "weighted",
        _per_request(
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
            "sglang:inter_token_latency_seconds",
            "sglang:time_per_output_token_seconds",
            "tgi_request_mean_time_per_token_duration",
        ),
    ),
    Meaning(
        "tokens_in",
        "tokens",
        "counter",
        "sum",
        _each(
            "vllm:prompt_tokens_total",
            "sglang:prompt_tokens_total",
            "tgi_request_input_length_sum",
            "llamacpp:prompt_tokens_total",
        ),
    ),
    Meaning(
        "tokens_out",
        "tokens",
        "counter",
        "sum",
        _each(
            "vllm:generation_tokens_total",
            "sglang:generation_tokens_total",
            "tgi_request_generated_tokens_sum",
            "llamacpp:tokens_predicted_total",
        ),
    ),
    Meaning("preemptions", "requests", "counter", "sum", _each("vllm:num_preemptions_total")),
    Meaning(
        "prefix_cache_hits",
        "share",
        "ratio",
        "weighted",
        (
            Rule("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
            Rule("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"),
        ),
    ),
    Meaning("cpu_utilization", "share", "gauge", "mean", _each("nv_cpu_utilization")),
    Meaning("cpu_memory_used", "bytes", "gauge", "sum", _each("nv_cpu_memory_used_bytes")),
)
"""All of them, in the order in which they are shown."""
