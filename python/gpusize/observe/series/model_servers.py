"""What vLLM, SGLang, Triton and the DCGM exporter say of themselves.

Names are those of vLLM 0.33 (V1 engine), SGLang 0.5, Triton 2.60 and dcgm-exporter 4; older ones stand behind them.
Triton's have names of their own: its vLLM backend shows vLLM's series too, and its GPUs are DCGM's as well.
"""

from __future__ import annotations

from typing import Final

from gpusize.observe.series.definition import Definition, Source

__all__ = ["DCGM", "SGLANG", "TRITON", "VLLM"]

_US: Final = 1e-6
_SHARE: Final = "share"
_TOKENS: Final = "tokens"
_REQUESTS: Final = "requests"


def _gauge(name: str, means: str, unit: str, *metrics: str, across: str = "sum", scale: float = 1.0) -> Definition:
    return Definition(name, means, "gauge", unit, _of(metrics, scale), across)  # type: ignore[arg-type]


def _counter(name: str, means: str, unit: str, *metrics: str, scale: float = 1.0) -> Definition:
    return Definition(name, means, "counter", unit, _of(metrics, scale))


def _histogram(name: str, means: str, unit: str, *metrics: str) -> Definition:
    return Definition(name, means, "histogram", unit, _of(metrics))


def _of(metrics: tuple[str, ...], scale: float = 1.0) -> tuple[Source, ...]:
    return tuple(Source(metric, scale) for metric in metrics)


VLLM: Final = (
    _gauge("running", "requests at work", _REQUESTS, "vllm:num_requests_running"),
    _gauge("waiting", "requests that wait in front of the engine", _REQUESTS, "vllm:num_requests_waiting"),
    _gauge(
        "kv_cache_use",
        "share of the KV cache that is held",
        _SHARE,
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        across="mean",
    ),
    _counter("requests", "requests that ended, by finished_reason", _REQUESTS, "vllm:request_success_total"),
    _counter("tokens_in", "prompt tokens", _TOKENS, "vllm:prompt_tokens_total"),
    _counter("tokens_out", "generated tokens", _TOKENS, "vllm:generation_tokens_total"),
    _counter("preemptions", "requests that lost their cache to others", _REQUESTS, "vllm:num_preemptions_total"),
    _counter(
        "prefix_hits",
        "prompt tokens found in the prefix cache",
        _TOKENS,
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
    ),
    _counter(
        "prefix_queries",
        "prompt tokens looked for in the prefix cache",
        _TOKENS,
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    _counter("tokens_cached", "prompt tokens that came from a cache", _TOKENS, "vllm:prompt_tokens_cached_total"),
    _counter("rejections", "requests that were not admitted", _REQUESTS, "vllm:admission_rejections_total"),
    _counter("corrupted", "requests with NaN among their logits", _REQUESTS, "vllm:corrupted_requests_total"),
    _histogram("ttft", "time to the first token", "s", "vllm:time_to_first_token_seconds"),
    _histogram(
        "itl",
        "time between tokens",
        "s",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    _histogram("tpot", "time per output token, of a request", "s", "vllm:request_time_per_output_token_seconds"),
    _histogram("request_time", "from arrival to the last token", "s", "vllm:e2e_request_latency_seconds"),
    _histogram("queue_time", "wait in front of the engine", "s", "vllm:request_queue_time_seconds"),
    _histogram("prefill_time", "prefill of a request", "s", "vllm:request_prefill_time_seconds"),
    _histogram("decode_time", "decode of a request", "s", "vllm:request_decode_time_seconds"),
    _histogram("inference_time", "prefill and decode of a request", "s", "vllm:request_inference_time_seconds"),
    _histogram("prompt_length", "prompt tokens of a request", _TOKENS, "vllm:request_prompt_tokens"),
    _histogram("output_length", "generated tokens of a request", _TOKENS, "vllm:request_generation_tokens"),
    _histogram("tokens_per_step", "tokens of one step of the engine", _TOKENS, "vllm:iteration_tokens_total"),
)

SGLANG: Final = (
    _gauge("running", "requests at work", _REQUESTS, "sglang:num_running_reqs"),
    _gauge("waiting", "requests that wait in front of the engine", _REQUESTS, "sglang:num_queue_reqs"),
    _gauge("kv_cache_use", "share of the KV cache that is held", _SHARE, "sglang:token_usage", across="mean"),
    _gauge("cache_hit_rate", "share of prompt tokens found cached", _SHARE, "sglang:cache_hit_rate", across="mean"),
    _gauge("generation_rate", "generated tokens per second", "tokens/s", "sglang:gen_throughput"),
    _counter("requests", "requests that ended", _REQUESTS, "sglang:num_requests_total"),
    _counter("aborted", "requests that were given up", _REQUESTS, "sglang:num_aborted_requests_total"),
    _counter("tokens_in", "prompt tokens", _TOKENS, "sglang:prompt_tokens_total"),
    _counter("tokens_out", "generated tokens", _TOKENS, "sglang:generation_tokens_total"),
    _counter("tokens_cached", "prompt tokens that came from a cache", _TOKENS, "sglang:cached_tokens_total"),
    _histogram("ttft", "time to the first token", "s", "sglang:time_to_first_token_seconds"),
    _histogram(
        "itl",
        "time between tokens",
        "s",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
    _histogram("request_time", "from arrival to the last token", "s", "sglang:e2e_request_latency_seconds"),
    _histogram("queue_time", "wait in front of the engine", "s", "sglang:queue_time_seconds"),
)

TRITON: Final = (
    _counter("triton_requests", "requests that ended well", _REQUESTS, "nv_inference_request_success"),
    _counter("triton_failures", "requests that failed", _REQUESTS, "nv_inference_request_failure"),
    _counter("inferences", "inferences: entries of batches", "inferences", "nv_inference_count"),
    _counter("executions", "executions of the model", "executions", "nv_inference_exec_count"),
    _counter("request_seconds", "time of requests, added", "s", "nv_inference_request_duration_us", scale=_US),
    _counter("queue_seconds", "time in the queue, added", "s", "nv_inference_queue_duration_us", scale=_US),
    _counter(
        "input_seconds", "time of preparing inputs, added", "s", "nv_inference_compute_input_duration_us", scale=_US
    ),
    _counter("infer_seconds", "time of the model, added", "s", "nv_inference_compute_infer_duration_us", scale=_US),
    _counter(
        "output_seconds", "time of taking outputs, added", "s", "nv_inference_compute_output_duration_us", scale=_US
    ),
    _gauge(
        "triton_waiting", "requests that wait in front of the model", _REQUESTS, "nv_inference_pending_request_count"
    ),
    _gauge("triton_gpu_use", "share of time with a kernel running", _SHARE, "nv_gpu_utilization", across="mean"),
    _gauge("triton_gpu_power", "power drawn", "W", "nv_gpu_power_usage"),
    _gauge("triton_gpu_memory_used", "memory of GPUs in use", "bytes", "nv_gpu_memory_used_bytes"),
    _counter("triton_gpu_energy", "energy used", "J", "nv_energy_consumption"),
)

DCGM: Final = (
    _gauge("gpu_use", "share of time with a kernel running", _SHARE, "DCGM_FI_DEV_GPU_UTIL", across="mean", scale=0.01),
    _gauge(
        "gpu_tensor_active", "share of time in tensor cores", _SHARE, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", across="mean"
    ),
    _gauge("gpu_sm_active", "share of SMs with work", _SHARE, "DCGM_FI_PROF_SM_ACTIVE", across="mean"),
    _gauge("gpu_power", "power drawn", "W", "DCGM_FI_DEV_POWER_USAGE"),
    _counter("gpu_energy", "energy used", "J", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=1e-3),
    _gauge("gpu_memory_used", "memory of GPUs in use", "bytes", "DCGM_FI_DEV_FB_USED", scale=1048576.0),
    _gauge("gpu_clock", "clock of the SMs", "MHz", "DCGM_FI_DEV_SM_CLOCK", across="mean"),
    _gauge("gpu_temperature", "temperature", "°C", "DCGM_FI_DEV_GPU_TEMP", across="max"),
)
