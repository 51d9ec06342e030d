"""Objects as API servers may send them: of every kind that has words of its own, with anything missing or null."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.cluster.watch import words_oracle as oracle
from tests.cluster.watch.pods import text

__all__ = ["UIDS", "objects"]

UIDS = ("a", "b", "c")
KINDS = ("Pod", "PersistentVolumeClaim", "Event", "Job", "Workload", "PodGroup", "TrainingWorkload")


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the fields; null as good as missing."""
    return st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in fields.items()})


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=4)


def whole_or_exact(second: int, fraction: str) -> str:
    return text(second)[:-1] + fraction + "Z"


times = st.builds(whole_or_exact, st.integers(0, 5), st.sampled_from(["", "", "", ".5", ".123456", ".000000001"]))
times |= st.just("soon")
words = st.sampled_from(["Because", 'a "quoted"\nword', "größer", "\u2603"])
owners = some(
    st.fixed_dictionaries({"uid": st.sampled_from(UIDS), "kind": st.just("Job"), "controller": st.booleans()})
)
notes = st.dictionaries(
    st.sampled_from(["volume.kubernetes.io/selected-node", "volume.beta.kubernetes.io/storage-provisioner", "x"]),
    st.sampled_from(["n1", "csi", ""]),
)
fields: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda below: st.dictionaries(
        st.sampled_from(
            [".", "f:volumeName", "f:spec", "f:volume.kubernetes.io/selected-node", "f:x/storage-provisioner"]
        ),
        below,
        max_size=3,
    ),
    max_leaves=4,
)
written = some(
    st.fixed_dictionaries(
        {"manager": st.sampled_from(["scheduler", "controller"])},
        optional={"time": st.none() | times, "fieldsV1": fields, "operation": st.just("Update")},
    )
)
ran = maybe(startedAt=times, finishedAt=times, exitCode=st.integers(0, 3))
state = maybe(running=ran, terminated=ran, waiting=st.just({"reason": "ContainerCreating"}))
container = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "side"])}, optional={"state": st.none() | state, "lastState": st.none() | state}
)


def conditions(kinds: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Of some types, in any status."""
    reasons = st.none() | words | st.just("SchedulingGated")
    return some(
        st.fixed_dictionaries(
            {"type": st.sampled_from(kinds), "status": st.sampled_from(["True", "False", "Unknown"])},
            optional={"lastTransitionTime": st.none() | times, "reason": reasons, "message": st.none() | words,
                      "lastProbeTime": st.none()},
        )
    )  # fmt: skip


statuses = {
    "Pod": maybe(
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        reason=st.sampled_from(["Evicted", "Because"]),
        message=words,
        conditions=conditions([*oracle.POD, "Other"]),
        containerStatuses=some(container),
        podIPs=st.just([{"ip": "10.0.0.1"}]),
    ),
    "PersistentVolumeClaim": maybe(phase=st.sampled_from(["Pending", "Bound"]), capacity=st.just({"storage": "1Gi"})),
}
other_status = maybe(
    conditions=conditions([*oracle.WORKLOAD, "Other"]),
    schedulingConditions=conditions(["UnschedulableOnNodePool", "PodGroupScheduled"]),
    startTime=times,
    completionTime=times,
    active=st.integers(0, 3),
)
specs = maybe(
    nodeName=st.sampled_from(["", "n1", "n2"]),
    volumes=some(maybe(persistentVolumeClaim=st.just({"claimName": "data"}), name=words)),
    name=maybe(value=words) | st.just("plain"),
)
regarding = st.fixed_dictionaries(
    {"kind": st.sampled_from([*oracle.EVENTS, "Node"]), "uid": st.sampled_from([*UIDS, "nobody", ""])},
    optional={"fieldPath": st.sampled_from(["spec.containers{main}", "spec.containers{}", "spec"]), "name": words},
)
reasons = st.sampled_from(sorted({reason for known in oracle.EVENTS.values() for reason in known})) | words
events = maybe(
    regarding=regarding,
    reason=reasons | st.just("EvictedDueToPreempted"),
    note=words,
    eventTime=times,
    series=maybe(lastObservedTime=times),
    deprecatedFirstTimestamp=times,
    deprecatedLastTimestamp=times,
)


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A kind, and an object of it."""
    kind = draw(st.sampled_from(KINDS))
    given = maybe(
        namespace=st.just("team"),
        creationTimestamp=times,
        deletionTimestamp=times,
        deletionGracePeriodSeconds=st.integers(0, 60),
        labels=notes,
        annotations=notes,
        ownerReferences=owners,
        managedFields=written,
    )
    names = st.sampled_from(["p", "p.18ec0e0d3d722afb", "w.18ec0e0d3d722aff"])
    metadata = {**draw(given), "name": draw(names), "uid": draw(st.sampled_from(UIDS))}
    if kind == "Event":
        return kind, {"metadata": metadata, **draw(events)}
    parts: dict[str, Any] = {
        "spec": draw(st.none() | specs),
        "status": draw(st.none() | statuses.get(kind, other_status)),
    }
    return kind, {
        "kind": kind,
        "metadata": metadata,
        **{name: part for name, part in parts.items() if part is not None},
    }
