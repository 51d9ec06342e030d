"""The phases: from which moment to which, and what that says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from gpusize.base.errors import UsageError
from gpusize.base.text import did_you_mean

__all__ = ["DETAILED", "GENERAL", "PHASES", "POD_PHASES", "Phase", "phase"]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase.

    Attributes:
        name: as in tables and SLOs.
        start: the moment that it begins with.
        end: the moment that it ends with.
        reference: the first one, in titles.
        event: the last one, in titles.
        what: in one sentence.
        of: ``workload`` or ``pod``.
        certain: every workload that began it has to end it; where false, only those that did have a row.
        causal: it cannot end before it begins.
    """

    name: str
    start: str
    end: str
    reference: str
    event: str
    what: str
    of: Literal["workload", "pod"] = "workload"
    certain: bool = True
    causal: bool = True


_SUBMISSION: Final = "Workload Submission"
_GROUP: Final = "Pod Group Creation"

_KNOWN: Final = (
    Phase("lateness", "due", "submitted", "Due Time", _SUBMISSION, "how late the submitter was"),
    Phase("acknowledgement", "submitted", "acknowledged", _SUBMISSION, "Acknowledgement", "the API's answer"),
    Phase(
        "workload_creation", "submitted", "workload_created", _SUBMISSION, "Workload Creation", "the object is stored"
    ),
    Phase(
        "job_creation",
        "workload_created",
        "job_created",
        "Workload Creation",
        "Job Creation",
        "a controller makes the job of the workload",
    ),
    Phase(
        "first_pod_creation",
        "job_created",
        "first_created",
        "Job Creation",
        "First Pod Creation",
        "a controller makes the first pod",
    ),
    Phase(
        "last_pod_creation",
        "job_created",
        "last_created",
        "Job Creation",
        "Last Pod Creation",
        "a controller makes all pods",
    ),
    Phase(
        "pod_group_creation",
        "first_created",
        "pod_group_created",
        "First Pod Creation",
        _GROUP,
        "the gang scheduler's group; it may come before the pod",
        causal=False,
    ),
    Phase("queueing", "queued", "quota_reserved", "Queueing", "Quota Reservation", "waiting for quota"),
    Phase("admission", "queued", "admitted", "Queueing", "Admission", "waiting until the queue lets it in"),
    Phase(
        "admission_checks",
        "quota_reserved",
        "admitted",
        "Quota Reservation",
        "Admission",
        "checks after the quota was reserved",
    ),
    Phase(
        "pod_scheduling_decision",
        "pod_group_created",
        "last_scheduled",
        _GROUP,
        "Pod Scheduling Decision",
        "the scheduler places all pods of the group",
        causal=False,
    ),
    Phase(
        "gang_scheduling",
        "last_created",
        "last_scheduled",
        "Last Pod Creation",
        "Pod Scheduling Decision",
        "the scheduler places all pods, counted from the last one's creation",
        causal=False,
    ),
    Phase(
        "straggler_spread",
        "first_scheduled",
        "last_scheduled",
        "First Pod Scheduling",
        "Last Pod Scheduling",
        "how far the first and the last pod of a gang are apart",
    ),
    Phase(
        "binding",
        "last_scheduled",
        "last_bound",
        "Pod Scheduling Decision",
        "Pod Binding",
        "the node is set; the Event of the decision comes after that",
        causal=False,
    ),
    Phase(
        "initialisation",
        "last_bound",
        "last_initialized",
        "Pod Binding",
        "Initialisation",
        "init containers have ended in all pods",
        causal=False,
    ),
    Phase(
        "starting",
        "last_scheduled",
        "last_started",
        "Pod Scheduling Decision",
        "Container Start",
        "containers of all pods have started: images, volumes, sandboxes",
    ),
    Phase("readying", "last_started", "last_ready", "Container Start", "Readiness", "started pods become ready"),
    Phase("execution", "last_running", "completed", "Running", "Completion", "the work itself"),
    Phase(
        "first_eviction", "pod_group_created", "evicted", _GROUP, "First Eviction", "a pod is evicted", certain=False
    ),
    Phase("preemption", "submitted", "preempted", _SUBMISSION, "Preemption", "others take the place", certain=False),
    Phase(
        "unschedulable",
        "submitted",
        "unschedulable",
        _SUBMISSION,
        "Unschedulable Verdict",
        "the scheduler first says that there is no place; no success",
        certain=False,
    ),
    Phase(
        "first_pvc_bind_request",
        "pod_group_created",
        "pvc_bind_requested",
        _GROUP,
        "First PVC Bind Request",
        "a volume is asked for",
        certain=False,
        causal=False,
    ),
    Phase(
        "first_pvc_bind",
        "pvc_bind_requested",
        "pvc_bound",
        "First PVC Bind Request",
        "First PVC Bind",
        "the volume is there",
    ),
    Phase(
        "backend_job_creation",
        "pod_group_created",
        "backend_created",
        _GROUP,
        "Backend Job Creation",
        "the control plane's database knows the job",
        certain=False,
        causal=False,
    ),
    Phase("admitted", "submitted", "admitted", _SUBMISSION, "Admission", "until the queue lets it in"),
    Phase(
        "first_scheduled",
        "submitted",
        "first_scheduled",
        _SUBMISSION,
        "First Pod Scheduling",
        "until one pod is placed",
    ),
    Phase(
        "quorum_scheduled",
        "submitted",
        "quorum_scheduled",
        _SUBMISSION,
        "Quorum Scheduling",
        "until as many pods are placed as the gang may begin with",
    ),
    Phase(
        "scheduled",
        "submitted",
        "last_scheduled",
        _SUBMISSION,
        "Total Pod Scheduling Decision",
        "until all pods are placed",
    ),
    Phase("bound", "submitted", "last_bound", _SUBMISSION, "Pod Binding", "until all pods have their node"),
    Phase("started", "submitted", "last_started", _SUBMISSION, "Container Start", "until all containers have started"),
    Phase("running", "submitted", "last_running", _SUBMISSION, "Running", "until all pods run"),
    Phase("ready", "submitted", "last_ready", _SUBMISSION, "Readiness", "until all pods are ready"),
    Phase("completed", "submitted", "completed", _SUBMISSION, "Completion", "until the work is done"),
    Phase(
        "backend_total",
        "submitted",
        "backend_created",
        _SUBMISSION,
        "Total Backend Job Creation",
        "until the control plane's database knows the job",
        certain=False,
    ),
)

_CREATION: Final = "Pod Creation"
_PODS: Final = tuple(
    Phase(f"pod_{name}", "created", end, _CREATION, event, what, of="pod")
    for name, end, event, what in (
        ("scheduled", "scheduled", "Pod Scheduling", "the scheduler places the pod"),
        ("initialized", "initialized", "Pod Initialisation", "its init containers have ended"),
        ("ready_to_start", "ready_to_start", "Pod Sandbox", "sandbox and network are there"),
        ("started", "started", "Container Start", "its containers have started"),
        ("containers_ready", "containers_ready", "Container Readiness", "its containers are ready"),
        ("ready", "ready", "Pod Readiness", "the pod is ready"),
        ("startup", "running", "Pod Running", "the pod runs: the startup of the Kubernetes SLO"),
    )
)

PHASES: Final = {each.name: each for each in _KNOWN}
"""Phases of workloads by name, in the order of their life; those that count from the submission at the end."""

POD_PHASES: Final = {each.name: each for each in _PODS}
"""Phases of single pods, from their creation."""

GENERAL: Final = ("scheduled", "backend_total")
"""Rows of the layout ``general``."""

DETAILED: Final = (
    "workload_creation",
    "job_creation",
    "first_pod_creation",
    "last_pod_creation",
    "pod_group_creation",
    "queueing",
    "admission",
    "pod_scheduling_decision",
    "gang_scheduling",
    "first_eviction",
    "first_pvc_bind_request",
    "first_pvc_bind",
    "backend_job_creation",
    "starting",
    "readying",
)
"""Rows of the layout ``detailed``, of which those are drawn that were measured."""


def phase(name: str, among: Iterable[str] | None = None) -> Phase:
    """A phase by its name.

    Raises:
        UsageError: there is none of this name.
    """
    known = {**PHASES, **POD_PHASES}
    if name not in known:
        names = list(known if among is None else among)
        raise UsageError(
            f"there is no phase {name}", None, did_you_mean(name, names, f"name one of {', '.join(names)}")
        )
    return known[name]
