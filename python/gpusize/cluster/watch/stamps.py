"""From an object to what it says of its moments: pure functions, one for each shape of object.

A *word* is one source's word on one moment of one object. It is a bare tuple, as there are some ten of them in each of
twenty thousand lines a second:

    moment    of `gpusize.cluster.tables.MOMENTS`, or ``condition:TYPE``
    part      such as a container's name, else None
    token     what tells this occurrence of the moment from another one: its time as written, or the state it shows
    source    who says when; None where the object shows the moment but no time, so that only its arrival is known
    text      the time as the API writes it; None without a source
    reason    of the condition or Event, else None
    message   likewise
    shows     whether the object's arrival is a word on the same moment (else it only explains an earlier one)
    before_s  seconds to be taken off the time
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from gpusize.cluster.watch.objects import Claim, Condition, Container, Event, Meta, Pod, PodStatus, Workload

__all__ = ["Word", "claim_words", "event_words", "pod_words", "run_ai_name", "workload_words"]

Word: TypeAlias = tuple[str, str | None, str, str | None, str | None, str | None, str | None, bool, int]

_POD: Final = {
    "PodReadyToStartContainers": "ready_to_start",
    "PodHasNetwork": "ready_to_start",  # its name up to 1.27
    "Initialized": "initialized",
    "ContainersReady": "containers_ready",
    "Ready": "ready",
    "PodScheduled": "scheduled",
    "DisruptionTarget": "evicted",
}
_POD_CONDITIONS: Final = {kind: (moment, f"condition {kind}") for kind, moment in _POD.items()}
_WORKLOAD: Final = {
    # Job, JobSet, PyTorchJob
    "Complete": "completed",
    "Completed": "completed",
    "Succeeded": "completed",
    "Failed": "failed",
    "Suspended": "suspended",
    "Running": "running",
    # Kueue
    "QuotaReserved": "quota_reserved",
    "Admitted": "admitted",
    "PodsReady": "pods_ready",
    "Finished": "finished",
    "Evicted": "evicted",
    "Preempted": "preempted",
    "Requeued": "requeued",
    # KAI, and the pod groups of Kubernetes itself
    "UnschedulableOnNodePool": "unschedulable",
    "PodGroupScheduled": "scheduled",
}
_WORKLOAD_FALSE: Final = {"QuotaReserved": "queued", "PodGroupScheduled": "unschedulable", "Suspended": "resumed"}
"""What it means when one of these is False; of others that is no moment."""

_POD_EVENTS: Final = {
    "Scheduled": "scheduled",
    "FailedScheduling": "unschedulable",
    "Unschedulable": "unschedulable",
    "Started": "started",
    "Preempted": "evicted",
    "Evict": "evicted",
    "Evicted": "evicted",
}
_EVENTS: Final = {
    "Pod": _POD_EVENTS,
    "Job": {"Completed": "completed", "Suspended": "suspended", "Resumed": "resumed"},
    "JobSet": {"AllJobsCompleted": "completed"},
    "PersistentVolumeClaim": {
        "ExternalProvisioning": "bind_requested",
        "Provisioning": "bind_requested",
        "ProvisioningSucceeded": "claim_bound",
    },
    "PodGroup": {"Evict": "evicted", "Unschedulable": "unschedulable"},
    "Workload": {
        "Pending": "queued",
        "QuotaReserved": "quota_reserved",
        "Admitted": "admitted",
        "Preempted": "preempted",
        "Finished": "finished",
        "FinishedWorkload": "finished",
    },
}
"""Of which moments Events speak, by the kind that they are about and their reason. The victim of an eviction is the
object that the Event is about, whoever its text names."""


def pod_words(pod: Pod) -> list[Word]:
    """What a pod says."""
    words = _of_metadata(pod.metadata)
    if pod.spec is not None and pod.spec.nodeName:
        words.append(("bound", None, pod.spec.nodeName, None, None, None, None, True, 0))
    status = pod.status
    if status is None:
        return words
    disrupted = False
    for each in status.conditions or ():
        kind = each.type
        if each.status == "True":
            text = each.lastTransitionTime
            known = _POD_CONDITIONS.get(kind)
            if known is None or text is None:
                words.append(_condition(each, _POD.get(kind) or f"condition:{kind}"))
            else:
                words.append((known[0], None, text, known[1], text, each.reason, each.message, True, 0))
            disrupted |= kind == "DisruptionTarget"
        elif kind == "PodScheduled" and each.reason is not None:
            gated = each.reason == "SchedulingGated"
            words.append(_condition(each, "queued" if gated else "unschedulable"))
    ended = _containers(status.containerStatuses, words) if status.containerStatuses else None
    if status.phase == "Running":
        words.append(("running", None, "Running", None, None, None, None, True, 0))
    elif status.phase in ("Succeeded", "Failed"):
        _over(status, ended, words, disrupted=disrupted)
    return words


def _containers(statuses: list[Container], words: list[Word]) -> str | None:
    """Add when containers began; when the last of them ended, None where none has."""
    ended: str | None = None
    for container in statuses:
        for state, now in ((container.state, True), (container.lastState, False)):
            ran = None if state is None else state.running or state.terminated
            if ran is None:
                continue
            began = ran.startedAt
            if began is not None:
                source = "containerStatuses.startedAt"
                words.append(("started", container.name, began, source, began, None, None, now, 0))
            if now and ran.finishedAt is not None and (ended is None or ran.finishedAt > ended):
                ended = ran.finishedAt
    return ended


def _over(status: PodStatus, ended: str | None, words: list[Word], *, disrupted: bool) -> None:
    phase = str(status.phase)
    source = "containerStatuses.finishedAt" if ended else None
    words.append((phase.lower(), None, phase, source, ended, status.reason, status.message, True, 0))
    if status.reason == "Evicted" and not disrupted:  # by a kubelet before 1.26
        words.append(("evicted", None, phase, None, None, status.reason, status.message, True, 0))


def workload_words(item: Workload) -> list[Word]:
    """What a job, a pod group, a workload in a queue, or another object with conditions says."""
    words = _of_metadata(item.metadata)
    status = item.status
    if status is None:
        return words
    if status.startTime is not None:
        began = status.startTime
        words.append(("started", None, began, "status.startTime", began, None, None, True, 0))
    for each in (*(status.conditions or ()), *(status.schedulingConditions or ())):
        if each.status == "True":
            moment = _WORKLOAD.get(each.type) or f"condition:{each.type}"
            words.append(_condition(each, moment))
            if moment == "completed" and status.completionTime is not None:
                done = status.completionTime
                words.append((moment, None, done, "status.completionTime", done, None, None, False, 0))
        elif each.status == "False" and each.type in _WORKLOAD_FALSE:
            words.append(_condition(each, _WORKLOAD_FALSE[each.type]))
    return words


def claim_words(claim: Claim) -> list[Word]:
    """What a volume claim says. It has no times of its own: who wrote a field says when last."""
    words = _of_metadata(claim.metadata)
    bound = claim.status is not None and claim.status.phase == "Bound"
    notes = claim.metadata.annotations or {}
    node = notes.get("volume.kubernetes.io/selected-node")
    asked = node or next((notes[name] for name in notes if name.endswith("/storage-provisioner")), None)
    if asked is not None:
        words.append(("bind_requested", None, asked, None, None, None, None, True, 0))
    if bound:
        words.append(("claim_bound", None, "Bound", None, None, None, None, True, 0))
    for entry in claim.metadata.managedFields or ():
        if entry.time is None:
            continue
        fields = bytes(entry.fieldsV1)
        source = f"managedFields {entry.manager}"
        if bound and b'"f:volumeName"' in fields:
            words.append(("claim_bound", None, "Bound", source, entry.time, None, None, False, 0))
        # Whoever binds the claim writes its provisioner, too, and has one time for both.
        elif b"/selected-node" in fields or (not bound and b"/storage-provisioner" in fields):
            words.append(("bind_requested", None, asked or "", source, entry.time, None, None, False, 0))
    return words


def event_words(event: Event) -> list[Word]:
    """What an Event says of the object that it is about (``regarding``).

    Two sources: ``event REASON`` (``eventTime`` in microseconds, or the whole seconds of old recorders), and ``event
    REASON name``, the nanoseconds in the name that its sender gave it.
    """
    about = event.regarding
    reason = event.reason or ""
    if about is None:
        return []
    known = _EVENTS.get(about.kind)
    if known is None:
        return []
    moment = known.get(reason) or ("evicted" if about.kind == "Workload" and reason.startswith("Evicted") else None)
    if moment is None:
        return []
    part = _part(about.fieldPath)
    source = f"event {reason}"
    words: list[Word] = []
    first = event.eventTime or event.deprecatedFirstTimestamp
    if first is not None:
        words.append((moment, part, first, source, first, reason, event.note, False, 0))
    last = event.series.lastObservedTime if event.series is not None else event.deprecatedLastTimestamp
    if last is not None and last != first:
        words.append((moment, part, last, source, last, reason, event.note, False, 0))
    words.append((moment, part, event.metadata.name, f"{source} name", None, reason, event.note, False, 0))
    return words


def run_ai_name(item: Workload) -> str | None:
    """The name that a Run:ai workload gives its job and pods: ``spec.name.value``; None in other objects."""
    try:
        found = msgspec.json.decode(item.spec, type=_NamedSpec) if item.spec else None
    except msgspec.MsgspecError:
        return None
    return found.name.value if found is not None and found.name is not None else None


class _Value(msgspec.Struct):
    value: str | None = None


class _NamedSpec(msgspec.Struct):
    name: _Value | None = None


def _of_metadata(metadata: Meta) -> list[Word]:
    words: list[Word] = []
    made = metadata.creationTimestamp
    if made is not None:
        words.append(("created", None, made, "creationTimestamp", made, None, None, True, 0))
    gone = metadata.deletionTimestamp
    if gone is not None:
        # The server writes when the object may go at the latest: when that was asked for, and the grace.
        grace = metadata.deletionGracePeriodSeconds or 0
        # Asked for once: when the object goes, its time is set anew.
        words.append(("deleting", None, "", "deletionTimestamp", gone, None, None, True, grace))
    return words


def _condition(each: Condition, moment: str) -> Word:
    text = each.lastTransitionTime
    source = f"condition {each.type}" if text is not None else None
    return (moment, None, text or each.status, source, text, each.reason or None, each.message or None, True, 0)


def _part(path: str | None) -> str | None:
    """The container in ``spec.containers{NAME}``."""
    if path is None or not path.startswith("spec.containers{"):
        return None
    return path[len("spec.containers{") : -1]
