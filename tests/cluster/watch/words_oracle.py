"""What objects say of their moments, a second time: plain Python over plain dictionaries, slow and easy to read.

The tests hold `gpusize._core.WatchBook` against it, over random objects. A *word* is one source's word on one moment of
one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

__all__ = ["Oracle", "Row", "Word", "words_of"]

Item = dict[str, Any]
SECOND_NS = 1_000_000_000

POD = {
    "PodReadyToStartContainers": "ready_to_start",
    "PodHasNetwork": "ready_to_start",
    "Initialized": "initialized",
    "ContainersReady": "containers_ready",
    "Ready": "ready",
    "PodScheduled": "scheduled",
    "DisruptionTarget": "evicted",
}
WORKLOAD = {
    "Complete": "completed",
    "Completed": "completed",
    "Succeeded": "completed",
    "Failed": "failed",
    "Suspended": "suspended",
    "Running": "running",
    "QuotaReserved": "quota_reserved",
    "Admitted": "admitted",
    "PodsReady": "pods_ready",
    "Finished": "finished",
    "Evicted": "evicted",
    "Preempted": "preempted",
    "Requeued": "requeued",
    "UnschedulableOnNodePool": "unschedulable",
    "PodGroupScheduled": "scheduled",
}
WORKLOAD_FALSE = {"QuotaReserved": "queued", "PodGroupScheduled": "unschedulable", "Suspended": "resumed"}
EVENTS = {
    "Pod": {
        "Scheduled": "scheduled",
        "FailedScheduling": "unschedulable",
        "Unschedulable": "unschedulable",
        "Started": "started",
        "Preempted": "evicted",
        "Evict": "evicted",
        "Evicted": "evicted",
    },
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


class Word(NamedTuple):
    """As `gpusize_kube::words::Word` has it."""

    moment: str
    part: str | None
    token: str
    source: str | None
    text: str | None
    reason: str | None = None
    message: str | None = None
    shows: bool = True
    before_s: int = 0


class Row(NamedTuple):
    """A row of ``stamps``, without what its object is called and its workload."""

    uid: str
    moment: str
    part: str | None
    source: str
    clock: str
    at_ns: int
    resolution_ns: int
    received_ns: int
    reason: str | None
    message: str | None
    reported: bool


def words_of(kind: str, item: Item) -> list[Word]:
    """What an object says."""
    says = {"Pod": pod_words, "PersistentVolumeClaim": claim_words, "Event": event_words}.get(kind, workload_words)
    return list(says(item))


def pod_words(pod: Item) -> Iterator[Word]:
    yield from metadata_words(pod)
    node = (pod.get("spec") or {}).get("nodeName")
    if node:
        yield Word("bound", None, node, None, None)
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    for each in conditions:
        kind = each.get("type", "")
        if each.get("status") == "True":
            yield condition_word(each, POD.get(kind, f"condition:{kind}"))
        elif kind == "PodScheduled" and each.get("reason") is not None:
            yield condition_word(each, "queued" if each["reason"] == "SchedulingGated" else "unschedulable")
    ends = []
    for container in status.get("containerStatuses") or []:
        for name in ("state", "lastState"):
            state = container.get(name) or {}
            ran = state.get("running") if state.get("running") is not None else state.get("terminated")
            began = (ran or {}).get("startedAt")
            if ran is None or began is None:
                continue
            source = "containerStatuses.startedAt"
            yield Word("started", container.get("name", ""), began, source, began, shows=name == "state")
            if name == "state" and ran.get("finishedAt") is not None:
                ends.append(ran["finishedAt"])
    phase = status.get("phase")
    reason, message = status.get("reason") or None, status.get("message") or None
    if phase == "Running":
        yield Word("running", None, "Running", None, None)
    elif phase in ("Succeeded", "Failed"):
        ended_by = "containerStatuses.finishedAt" if ends else None
        yield Word(phase.lower(), None, phase, ended_by, max(ends, default=None), reason, message)
        disrupted = any(each.get("type") == "DisruptionTarget" and each.get("status") == "True" for each in conditions)
        if status.get("reason") == "Evicted" and not disrupted:
            yield Word("evicted", None, phase, None, None, reason, message)


def workload_words(item: Item) -> Iterator[Word]:
    yield from metadata_words(item)
    status = item.get("status") or {}
    began, done = status.get("startTime"), status.get("completionTime")
    if began is not None:
        yield Word("started", None, began, "status.startTime", began)
    for each in (*(status.get("conditions") or ()), *(status.get("schedulingConditions") or ())):
        kind = each.get("type", "")
        if each.get("status") == "True":
            moment = WORKLOAD.get(kind, f"condition:{kind}")
            yield condition_word(each, moment)
            if moment == "completed" and done is not None:
                yield Word(moment, None, done, "status.completionTime", done, shows=False)
        elif each.get("status") == "False" and kind in WORKLOAD_FALSE:
            yield condition_word(each, WORKLOAD_FALSE[kind])


def claim_words(claim: Item) -> Iterator[Word]:
    yield from metadata_words(claim)
    bound = (claim.get("status") or {}).get("phase") == "Bound"
    notes = claim["metadata"].get("annotations") or {}
    asked = notes.get("volume.kubernetes.io/selected-node") or next(
        (value for name, value in notes.items() if name.endswith("/storage-provisioner")), None
    )
    if asked is not None:
        yield Word("bind_requested", None, asked, None, None)
    if bound:
        yield Word("claim_bound", None, "Bound", None, None)
    for entry in claim["metadata"].get("managedFields") or []:
        at, wrote = entry.get("time"), names_in(entry.get("fieldsV1"))
        if at is None:
            continue
        source = f"managedFields {entry.get('manager', '')}"
        if bound and "f:volumeName" in wrote:
            yield Word("claim_bound", None, "Bound", source, at, shows=False)
        elif any("/selected-node" in name or ("/storage-provisioner" in name and not bound) for name in wrote):
            yield Word("bind_requested", None, asked or "", source, at, shows=False)


def event_words(event: Item) -> Iterator[Word]:
    about, reason = event.get("regarding") or {}, event.get("reason") or ""
    kind = about.get("kind", "")
    moment = EVENTS.get(kind, {}).get(reason)
    if kind == "Workload" and reason.startswith("Evicted"):
        moment = "evicted"
    if moment is None:
        return
    path = about.get("fieldPath") or ""
    part = path.removeprefix("spec.containers{")[:-1] if path.startswith("spec.containers{") else None
    note = event.get("note") or None
    first = event.get("eventTime") or event.get("deprecatedFirstTimestamp")
    series = event.get("series")
    last = event.get("deprecatedLastTimestamp") if series is None else series.get("lastObservedTime")
    for at in dict.fromkeys(each for each in (first, last) if each is not None):
        yield Word(moment, part, at, f"event {reason}", at, reason, note, shows=False)
    yield Word(moment, part, event["metadata"].get("name", ""), f"event {reason} name", None, reason, note, shows=False)


def metadata_words(item: Item) -> Iterator[Word]:
    metadata = item["metadata"]
    made, gone = metadata.get("creationTimestamp"), metadata.get("deletionTimestamp")
    if made is not None:
        yield Word("created", None, made, "creationTimestamp", made)
    if gone is not None:
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        yield Word("deleting", None, "", "deletionTimestamp", gone, before_s=grace)


def condition_word(each: Item, moment: str) -> Word:
    at, kind = each.get("lastTransitionTime"), each.get("type", "")
    source = f"condition {kind}" if at is not None else None
    token = at or each.get("status", "")
    return Word(moment, None, token, source, at, each.get("reason") or None, each.get("message") or None)


def names_in(fields: Any) -> set[str]:
    """The names in a tree of them."""
    if not isinstance(fields, dict):
        return set()
    return set(fields).union(*(names_in(below) for below in fields.values()))


def time_of(text: str) -> tuple[int, int] | None:
    """Ns since 1970, and the resolution in ns, of a time in UTC."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    try:
        second = datetime.fromisoformat(whole + "+00:00").timestamp()
    except ValueError:
        return None
    if not text.endswith("Z") or (dot and not 1 <= len(fraction) <= 9):
        return None
    return round(second) * SECOND_NS + int(fraction.ljust(9, "0")), 10 ** (9 - len(fraction))


@dataclass
class Oracle:
    """Rows of what objects say, each occurrence once.

    Attributes:
        rows: what is stamped.
    """

    rows: list[Row] = field(default_factory=list)
    _said: set[tuple[Any, ...]] = field(default_factory=set)
    _timed: set[tuple[Any, ...]] = field(default_factory=set)
    _arrived: set[tuple[Any, ...]] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)
    _waiting: list[tuple[Item, int, bool]] = field(default_factory=list)

    def take(self, kind: str, item: Item, received_ns: int, *, reported: bool) -> None:
        """Stamp what an object says."""
        uid = item["metadata"]["uid"]
        if kind == "Event":
            about = (item.get("regarding") or {}).get("uid", "")
            if about in self._known:
                self._hear(about, words_of(kind, item), received_ns, reported=reported)
            elif about:
                self._waiting.append((item, received_ns, reported))
            return
        if uid not in self._known:
            self._known.add(uid)
            come = [each for each in self._waiting if each[0]["regarding"]["uid"] == uid]
            self._waiting = [each for each in self._waiting if each[0]["regarding"]["uid"] != uid]
            for event, event_ns, event_reported in come:
                self.take("Event", event, event_ns, reported=event_reported)
        self._hear(uid, words_of(kind, item), received_ns, reported=reported)

    def _hear(self, uid: str, words: list[Word], received_ns: int, *, reported: bool) -> None:
        for word in words:
            if (uid, *word[:4]) in self._said:
                continue
            self._said.add((uid, *word[:4]))
            at = None if word.source is None else self._at(word)
            if at is not None and (uid, word.moment, word.part, word.source, at[0]) not in self._timed:
                self._timed.add((uid, word.moment, word.part, word.source, at[0]))
                self._add(uid, word, str(word.source), "server", at, received_ns, reported)
            if word.shows and (reported or (uid, word.moment, word.part) not in self._arrived):
                self._arrived.add((uid, word.moment, word.part))
                self._add(uid, word, "watch", "client", (received_ns, 1), received_ns, reported)

    def _add(
        self, uid: str, word: Word, source: str, clock: str, at: tuple[int, int], received_ns: int, reported: bool
    ) -> None:
        at_ns, resolution_ns = at
        self.rows.append(
            Row(uid, word.moment, word.part, source, clock, at_ns, resolution_ns, received_ns, word.reason,
                word.message, reported)
        )  # fmt: skip

    @staticmethod
    def _at(word: Word) -> tuple[int, int] | None:
        if word.text is None:
            ending = word.token.rpartition(".")[2]
            return (int(ending, 16), 1) if len(ending) == 16 else None
        found = time_of(word.text)
        return None if found is None else (found[0] - word.before_s * SECOND_NS, found[1])
