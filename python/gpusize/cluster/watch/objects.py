"""The parts of objects that stamps are made of; msgspec skips all other fields without building them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = [
    "INITIAL_END",
    "Claim",
    "Condition",
    "Event",
    "Kept",
    "Line",
    "Listed",
    "Meta",
    "Pod",
    "WireError",
    "Workload",
    "error_of",
    "shape_of",
]

INITIAL_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the objects a watch list begins with."""


class Owner(msgspec.Struct, gc=False):
    """An ``ownerReferences`` entry."""

    uid: str = ""
    kind: str = ""
    name: str = ""


class Written(msgspec.Struct, gc=False):
    """A ``managedFields`` entry: who wrote which fields, and when last."""

    manager: str = ""
    time: str | None = None
    fieldsV1: msgspec.Raw = msgspec.Raw(b"")


class Meta(msgspec.Struct, gc=False):
    """An object's ``metadata``."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[Owner] | None = None


class ClaimMeta(Meta, gc=False):
    """Metadata of a volume claim: its writers are the only ones to say when it was bound."""

    managedFields: list[Written] | None = None


class Condition(msgspec.Struct, gc=False):
    """A condition of any object's status."""

    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None
    reason: str | None = None
    message: str | None = None


class Ran(msgspec.Struct, gc=False):
    """A container that runs or has run."""

    startedAt: str | None = None
    finishedAt: str | None = None
    reason: str | None = None
    exitCode: int | None = None


class State(msgspec.Struct, gc=False):
    """A container's state: one of the two, or neither while it waits."""

    running: Ran | None = None
    terminated: Ran | None = None


class Container(msgspec.Struct, gc=False):
    """A container's status."""

    name: str = ""
    state: State | None = None
    lastState: State | None = None


class ClaimName(msgspec.Struct, gc=False):
    """A volume's claim."""

    claimName: str = ""


class Volume(msgspec.Struct, gc=False):
    """A pod's volume."""

    persistentVolumeClaim: ClaimName | None = None


class PodSpec(msgspec.Struct, gc=False):
    """A pod's ``spec``."""

    nodeName: str | None = None
    volumes: list[Volume] | None = None


class PodStatus(msgspec.Struct, gc=False):
    """A pod's ``status``."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: list[Condition] | None = None
    containerStatuses: list[Container] | None = None


class Kept(msgspec.Struct, gc=False):
    """Any object, of which only the metadata is needed."""

    metadata: Meta


class Pod(msgspec.Struct, gc=False):
    """A pod."""

    metadata: Meta
    spec: PodSpec | None = None
    status: PodStatus | None = None


class WorkloadStatus(msgspec.Struct, gc=False):
    """The ``status`` of a job, a pod group, a workload in a queue: conditions, and times of their own."""

    conditions: list[Condition] | None = None
    schedulingConditions: list[Condition] | None = None
    startTime: str | None = None
    completionTime: str | None = None
    phase: str | None = None


class Workload(msgspec.Struct, gc=False):
    """A job, a pod group, a workload in a queue, or any other object with conditions.

    ``spec`` is kept as bytes: only Run:ai's workloads have their name in it.
    """

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: WorkloadStatus | None = None


class ClaimStatus(msgspec.Struct, gc=False):
    """A volume claim's ``status``."""

    phase: str | None = None


class Claim(msgspec.Struct, gc=False):
    """A volume claim."""

    metadata: ClaimMeta
    status: ClaimStatus | None = None


class Regarded(msgspec.Struct, gc=False):
    """The object that an Event is about."""

    kind: str = ""
    namespace: str | None = None
    name: str = ""
    uid: str = ""
    fieldPath: str | None = None


class Series(msgspec.Struct, gc=False):
    """How often an Event repeated, and when last."""

    count: int = 0
    lastObservedTime: str | None = None


class Event(msgspec.Struct, gc=False):
    """An Event of ``events.k8s.io/v1``, whoever wrote it: legacy ones have the ``deprecated`` times."""

    metadata: Meta
    regarding: Regarded | None = None
    reason: str | None = None
    note: str | None = None
    eventTime: str | None = None
    series: Series | None = None
    deprecatedFirstTimestamp: str | None = None
    deprecatedLastTimestamp: str | None = None


class WireError(msgspec.Struct, gc=False):
    """The ``Status`` of an ERROR line."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMeta(msgspec.Struct, gc=False):
    """A list's ``metadata``; ``continue`` is a word of Python's."""

    resourceVersion: str = ""
    onward: str | None = msgspec.field(default=None, name="continue")


class Line(msgspec.Struct, gc=False, kw_only=True):
    """A line of a watch, with any object."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"")


class Listed(msgspec.Struct, gc=False):
    """A page of a list, with any objects."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Failed(msgspec.Struct):
    object: WireError


def shape_of(kind: str) -> tuple[Any, Any]:
    """Decoders of a kind's watch lines (``type``, ``object``) and of pages of its list (``metadata``, ``items``).

    An empty list of partial metadata has null for its items.
    """
    inner: Any = {"Pod": Pod, "Event": Event, "PersistentVolumeClaim": Claim}.get(kind, Workload)
    if kind not in _DECODERS:
        line = msgspec.defstruct("Watched" + inner.__name__, [("type", str), ("object", inner)], gc=False)
        page = msgspec.defstruct(
            "Listed" + inner.__name__, [("metadata", ListMeta), ("items", list[inner] | None, None)]
        )
        _DECODERS[kind] = (msgspec.json.Decoder(line), msgspec.json.Decoder(page))
    return _DECODERS[kind]


def error_of(line: bytes) -> WireError | None:
    """What an ERROR line says; None for another line.

    Raises:
        msgspec.DecodeError: it is none of the lines of a watch.
    """
    if msgspec.json.decode(line, type=Line).type != "ERROR":
        return None
    return msgspec.json.decode(line, type=_Failed).object


_DECODERS: dict[str, tuple[Any, Any]] = {}
