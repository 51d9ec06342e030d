"""kube-burner's documents of pod latency: one for each pod, and those of their quantiles.

Times are milliseconds from a pod's ``creationTimestamp``. What it took from conditions is whole seconds; negative
latencies are written as 0, and pods that never became ready have no document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.cluster.seed_files.keys import SECOND_NS, parse_time
from gpusize.cluster.tables import SERVER_CLOCK, stamps_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PODS", "QUANTILES", "pod_stamps", "quantile_rows"]

PODS: Final = "podLatencyMeasurement"
QUANTILES: Final = "podLatencyQuantilesMeasurement"
SOURCE: Final = "kube-burner"
_MS: Final = 10**6

_MOMENTS: Final = {
    "schedulingLatency": "scheduled",
    "initializedLatency": "initialized",
    "readyToStartContainersLatency": "ready_to_start",
    "containersStartedLatency": "started",
    "containersReadyLatency": "containers_ready",
    "podReadyLatency": "ready",
}
_ZERO_IS_NONE: Final = ("readyToStartContainersLatency", "containersStartedLatency")
"""Latencies that are 0 where the pod never told of the moment."""

_PHASES: Final = {
    "PodScheduled": "pod_scheduled",
    "Initialized": "pod_initialized",
    "PodReadyToStartContainers": "pod_ready_to_start",
    "ContainersStarted": "pod_started",
    "ContainersReady": "pod_containers_ready",
    "Ready": "pod_ready",
}
_QUANTILES: Final = {"P50": "p50", "P95": "p95", "P99": "p99", "min": "min", "max": "max", "avg": "mean"}


def pod_stamps(documents: Sequence[Mapping[str, Any]], file: str) -> list[dict[str, Any]]:
    """Stamps of the pods of ``podLatencyMeasurement`` documents, of version 1 and 2.

    Each pod is a workload of its own, as the documents do not say which pods belong together.

    Raises:
        StoreError: a document without a name or a time.
    """
    whole = {key: all(int(each.get(key) or 0) % 1000 == 0 for each in documents) for key in _MOMENTS}
    made: list[dict[str, Any]] = []
    for number, each in enumerate(documents):
        labels = each.get("labels")
        about = {**(labels if isinstance(labels, dict) else {}), **each}
        name, namespace = about.get("podName"), about.get("namespace") or ""
        try:
            created, resolution = parse_time(str(each["timestamp"]))
        except (KeyError, ValueError):
            raise StoreError(f"document {number} has no time", file, "export it again") from None
        if not name:
            raise StoreError(f"document {number} names no pod", file, "export it again")
        uid = "/".join(str(about.get(key, "")) for key in ("uuid", "namespace", "podName"))

        def stamp(moment: str, at_ns: int, resolution_ns: int, source: str, *, of: tuple[str, str, str]) -> None:
            made.append(
                {
                    **dict.fromkeys(stamps_schema()),
                    "workload": f"{of[0]}/{of[1]}",
                    "kind": "Pod",
                    "namespace": of[0],
                    "name": of[1],
                    "uid": of[2],
                    "moment": moment,
                    "at_ns": at_ns,
                    "resolution_ns": resolution_ns,
                    "source": source,
                    "clock": SERVER_CLOCK,
                    "reported": True,
                }
            )

        of = (namespace, str(name), uid)
        stamp("created", created, resolution, f"{SOURCE} timestamp", of=of)
        for key, moment in _MOMENTS.items():
            latency = each.get(key)
            if not isinstance(latency, int | float) or (latency == 0 and key in _ZERO_IS_NONE):
                continue
            at = created + round(latency * _MS)
            stamp(moment, at, SECOND_NS if whole[key] else _MS, f"{SOURCE} {key}", of=of)
    return made


def quantile_rows(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Figures of ``podLatencyQuantilesMeasurement`` documents, in seconds."""
    made = []
    for each in documents:
        name = str(each.get("quantileName") or "")
        config = each.get("jobConfig") if isinstance(each.get("jobConfig"), dict) else {}
        test = str(each.get("jobName") or (config or {}).get("name") or each.get("uuid") or "")
        for key, figure in _QUANTILES.items():
            if isinstance(each.get(key), int | float):
                row = {"source": SOURCE, "test": test, "phase": _PHASES.get(name, name), "figure": figure}
                made.append({**row, "value": each[key] / 1000, "unit": "s"})
    return made
