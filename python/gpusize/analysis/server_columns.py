"""What the servers and GPUs did in a level, as columns of the summary beside what their users saw.

The figures are of the whole visit, from ``level.json``'s ``server``; GPUs or replicas are together in one figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import NS_PER_S
from gpusize.analysis.per_request import energy_per_request, power_w

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["SERVER_COLUMNS", "server_figures"]

Rows = Sequence[Mapping[str, Any]]

SERVER_COLUMNS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "server_gpus": ("GPUs", "that reported their utilization"),
        "server_gpu_utilization": ("share", "mean over time and GPUs; 1 when all were busy all the time"),
        "server_gpu_utilization_max": ("share", "of the busiest GPU, mean over time"),
        "server_gpu_power_w": ("W", "of all GPUs together, mean over time"),
        "server_gpu_power_limit_w": ("W", "what all GPUs together may draw"),
        "server_gpu_power_share": (
            "share",
            "drawn over the limit, of the GPUs that report both: means over time, added",
        ),
        "server_gpu_memory_used_bytes": ("bytes", "of all GPUs together, the most at one time"),
        "server_gpu_memory_share": ("share", "used over total, of the GPUs that report both: means over time, added"),
        "server_energy_per_request_j": (
            "J/request",
            "of all GPUs, per request answered; null where not every GPU told",
        ),
        "server_energy_per_output_token_j": ("J/token", "of all GPUs, per generated token; likewise"),
        "server_cpu_utilization": ("share", "of the servers' cores, mean over time and servers"),
        "server_kv_cache_use": ("share", "mean over time and replicas"),
        "server_kv_cache_use_max": ("share", "mean over replicas, the most at one time"),
        "server_running": ("requests", "worked on, of all replicas together, mean over time"),
        "server_waiting": ("requests", "queued, of all replicas together, mean over time"),
        "server_batch_size": ("inferences", "per execution of the model"),
        "server_queue_s": ("s", "mean time of a request in the server's queue"),
        "server_compute_s": (
            "s",
            "mean time of a request after it: input, inference and output, or prefill and decode",
        ),
        "server_request_s": ("s", "mean time of a request in the server"),
        "residence_s": ("s", "mean service of requests that ended ok, of the whole visit as the server's figures are"),
    }
)
"""Unit and meaning of each column; null where nothing told of it."""

_DIRECT: Final = {
    "server_gpu_utilization": ("gpu_utilization", "mean"),
    "server_gpu_power_w": ("gpu_power", "mean"),
    "server_gpu_power_limit_w": ("gpu_power_limit", "mean"),
    "server_cpu_utilization": ("cpu_utilization", "mean"),
    "server_gpu_memory_used_bytes": ("gpu_memory_used", "max"),
    "server_energy_per_output_token_j": ("energy_per_output_token", "mean"),
    "server_kv_cache_use": ("kv_cache_use", "mean"),
    "server_kv_cache_use_max": ("kv_cache_use", "max"),
    "server_running": ("running", "mean"),
    "server_waiting": ("waiting", "mean"),
    "server_batch_size": ("batch_size", "mean"),
    "server_queue_s": ("queue_time", "mean"),
    "server_request_s": ("request_time", "mean"),
}
_COMPUTE: Final = (
    ("compute_input_time", "compute_infer_time", "compute_output_time"),
    ("prefill_time", "decode_time"),
)
"""Parts of a request's time after the queue: of servers with steps around a model, and of those of language models."""


def server_figures(level: LevelData) -> dict[str, Any]:
    """The columns of ``SERVER_COLUMNS`` for a visit; empty where no server told of anything, and for pooled visits."""
    rows: Rows = level.meta.get("server") or ()
    if level.parts or not rows:
        return {}
    from gpusize.records.samples import value_of

    found: dict[str, Any] = {column: value_of(rows, *which) for column, which in _DIRECT.items()}
    busy = [row["mean"] for row in _single(rows, "gpu_utilization").values()]
    residence_ns = level.meta.get("residence_ns")
    found |= {
        "server_gpus": len(busy) or None,
        "server_gpu_utilization_max": max(busy, default=None),
        "server_gpu_memory_share": _share_of(rows, "gpu_memory_used", "gpu_memory_total"),
        "server_gpu_power_share": _share_of(rows, "gpu_power", "gpu_power_limit"),
        "server_energy_per_request_j": energy_per_request(level),
        "server_compute_s": _compute_s(rows),
        "residence_s": None if residence_ns is None else residence_ns / NS_PER_S,
    }
    if power_w(level) is None:
        # The energy of some GPUs is not that of a token.
        found["server_energy_per_output_token_j"] = None
    return {column: found[column] for column in SERVER_COLUMNS}


def _single(rows: Rows, metric: str) -> dict[tuple[Any, Any], Mapping[str, Any]]:
    """The rows of single GPUs that have a mean, by source and GPU."""
    return {
        (row["source"], row["labels"]): row
        for row in rows
        if row["metric"] == metric and row["labels"] is not None and row["mean"] is not None
    }


def _share_of(rows: Rows, what: str, most: str) -> float | None:
    """Each GPU's use is set against what it has: GPUs of one server need not be alike, or all tell both."""
    used, total = _single(rows, what), _single(rows, most)
    both = [key for key in used if key in total]
    whole = sum(total[key]["mean"] for key in both)
    return sum(used[key]["mean"] for key in both) / whole if whole > 0 else None


def _compute_s(rows: Rows) -> float | None:
    from gpusize.records.samples import value_of

    for parts in _COMPUTE:
        known = [seconds for part in parts if (seconds := value_of(rows, part)) is not None]
        if known:
            return sum(known)
    return None
