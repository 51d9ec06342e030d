"""Keys of ``submitted.json`` and ``sampled.json``, columns of ``times.csv``, and times as they are written there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = [
    "DEFAULTS",
    "DELTAS",
    "SAMPLED_KEYS",
    "SAMPLED_NAMES",
    "SECOND_NS",
    "STAMP_COLUMNS",
    "SUBMITTED_KEYS",
    "parse_time",
    "time_text",
]

SECOND_NS: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SUBMITTED_KEYS: Final = ("jobName", "projectName", "jobNamespace", "submitTimestamp")

SAMPLED_NAMES: Final = ("jobName", "jobNamespace", "projectName")
"""What an object of ``sampled.json`` begins with."""

SAMPLED_KEYS: Final = {
    "workloadCreatedTimestamp": "workload_created",
    "jobCreatedTimestamp": "job_created",
    "firstPodCreatedTimestamp": "first_created",
    "lastPodCreatedTimestamp": "last_created",
    "podGroupCreatedTimestamp": "pod_group_created",
    "podSchedulingDecisionTimestamp": "last_scheduled",
    "firstEvictionTimestamp": "evicted",
    "firstPVCBindRequestTimestamp": "pvc_bind_requested",
    "firstPVCBindTimestamp": "pvc_bound",
    "backendJobCreatedTimestamp": "backend_created",
}
"""Times of ``sampled.json``, in its order, and the moment of a workload that each is."""

DEFAULTS: Final = {
    "firstEvictionTimestamp": "podSchedulingDecisionTimestamp",
    "firstPVCBindRequestTimestamp": "podSchedulingDecisionTimestamp",
    "firstPVCBindTimestamp": "podSchedulingDecisionTimestamp",
    "backendJobCreatedTimestamp": "workloadCreatedTimestamp",
}
"""What the tool writes where something did not happen or was not asked for: another time. It is no time then."""

STAMP_COLUMNS: Final = {
    "Workload Created": "workload_created",
    "Job Created": "job_created",
    "First Pod Created": "first_created",
    "Last Pod Created": "last_created",
    "Pod Group Created": "pod_group_created",
    "Pod Scheduling Decided": "last_scheduled",
    "First Evicted": "evicted",
    "First PVC Bind Requested": "pvc_bind_requested",
    "First PVC Bound": "pvc_bound",
    "Backend Job Created": "backend_created",
    "Workload Submitted": "submitted",
}
"""Columns of ``times.csv`` with times, after the names of job, namespace and project: as many as the values have."""

DELTAS: Final = {
    "Workload Creation": "workload_creation",
    "Job Creation": "job_creation",
    "First Pod Creation": "first_pod_creation",
    "Last Pod Creation": "last_pod_creation",
    "Pod Group Creation": "pod_group_creation",
    "Pod Scheduling Decision": "pod_scheduling_decision",
    "First Eviction": "first_eviction",
    "First PVC Bind Request": "first_pvc_bind_request",
    "First PVC Bind": "first_pvc_bind",
    "Backend Job Creation": "backend_job_creation",
    "Total Pod Scheduling Decision": "scheduled",
    "Total Backend Job Creation": "backend_total",
}
"""Columns of ``times.csv`` with deltas, and the phase that each is."""


def parse_time(text: str) -> tuple[int, int]:
    """A time of these files, in ns since 1970, and its resolution in ns: a second, or a microsecond with a fraction.

    Raises:
        ValueError: it is none.
    """
    at = datetime.fromisoformat(text.strip())
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    whole = (at - _EPOCH) // timedelta(microseconds=1)
    return whole * 1000, 1000 if "." in text else SECOND_NS


def time_text(lo_ns: int, hi_ns: int) -> str:
    """A moment as the API writes times: a whole second where no more is known, else with microseconds.

    Args:
        lo_ns, hi_ns: it lies between these.
    """
    if hi_ns - lo_ns >= SECOND_NS - 1:
        return (_EPOCH + timedelta(seconds=lo_ns // SECOND_NS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    middle = (lo_ns + hi_ns) // 2
    return (_EPOCH + timedelta(microseconds=middle // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
