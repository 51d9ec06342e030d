"""What objects say of their moments: recorded ones, and ones as the field's controllers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.cluster.watch.stamp_book import StampBook
from gpusize.cluster.watch.times import parse_time
from tests.cluster.watch.pods import take
from tests.cluster.watch.recorded import objects

Told = tuple[str, str | None, str, int | None]
ARRIVED = 7


def said(kind: str, *items: dict[str, Any]) -> pl.DataFrame:
    """The rows of some versions of objects; Events find the objects that they are about, but for what those say."""
    book = StampBook(Path("/nonexistent/gpusize"))
    for item in items:
        about = item.get("regarding")
        if about is not None:
            take(book, about["kind"], {"metadata": {"name": "x", "uid": about["uid"]}}, 1)
        take(book, kind, item, ARRIVED)
    return book.frame()


def told(rows: pl.DataFrame) -> list[Told]:
    """Moment, part, source and time of each row; no time where only the object's arrival tells it."""
    return [
        (moment, part, source, None if source == "watch" else at_ns)
        for moment, part, source, at_ns in rows.select("moment", "part", "source", "at_ns").iter_rows()
    ]


def moments(rows: pl.DataFrame) -> list[str]:
    """Of what showed itself, in order."""
    return rows.filter(pl.col("source") == "watch")["moment"].to_list()


def ns(text: str) -> int:
    found = parse_time(text)
    assert found is not None
    return found[0]


def workload(kind: str, conditions: list[dict[str, Any]], **status: Any) -> pl.DataFrame:
    return said(kind, {"metadata": {"name": "w", "uid": "u"}, "status": {"conditions": conditions, **status}})


def true(kind: str, at: str = "2026-11-28T00:00:01Z", **more: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": at, **more}


def test_a_pod_says_more_from_version_to_version_and_takes_nothing_back() -> None:
    seen: set[Told] = set()
    news = []
    for item in objects("Pod", "w-000001"):
        words = set(told(said("Pod", item)))
        news.append({moment for moment, *_ in words - seen})
        seen |= words
    assert news[:6] == [
        {"created"},
        {"unschedulable"},  # its claim was not bound
        {"scheduled", "bound"},
        {"ready_to_start", "initialized"},
        {"running", "started", "ready", "containers_ready"},
        {"succeeded"},
    ]
    assert news[6] == set()
    assert news[7] == {"deleting"}


def test_what_a_pod_says_has_the_times_that_are_written_in_it() -> None:
    last = objects("Pod", "w-000001")[5]
    words = told(said("Pod", last))
    conditions = {each["type"]: each["lastTransitionTime"] for each in last["status"]["conditions"]}
    ran = last["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ("created", None, "creationTimestamp", ns(last["metadata"]["creationTimestamp"])) in words
    assert ("scheduled", None, "condition PodScheduled", ns(conditions["PodScheduled"])) in words
    assert ("started", "main", "containerStatuses.startedAt", ns(ran["startedAt"])) in words
    assert ("succeeded", None, "containerStatuses.finishedAt", ns(ran["finishedAt"])) in words
    assert ("bound", None, "watch", None) in words
    # It is no longer ready, and that was no moment of its own.
    assert not [word for word in words if word[0] == "ready"]


def test_the_victim_of_a_preemption_was_evicted_and_its_winner_was_not() -> None:
    rows = said("Pod", *objects("Pod"))
    assert set(rows.filter(pl.col("moment") == "evicted")["name"]) == {"victim-2"}
    evicted = said("Event", *objects("Event")).filter(pl.col("moment") == "evicted")
    uids = {item["metadata"]["uid"] for item in objects("Pod", "victim-2")}
    assert set(evicted["uid"]) == uids


def test_the_deletion_was_asked_for_a_grace_before_its_time() -> None:
    first = next(item for item in objects("Pod", "victim-2") if "deletionTimestamp" in item["metadata"])
    ((_, _, _, at_ns),) = [
        word for word in told(said("Pod", first)) if word[0] == "deleting" and word[2] == "deletionTimestamp"
    ]
    assert first["metadata"]["deletionGracePeriodSeconds"] == 30
    assert at_ns == ns(first["metadata"]["deletionTimestamp"]) - 30_000_000_000


def test_a_gated_pod_is_queued_and_one_without_a_verdict_is_neither() -> None:
    def words(**more: str) -> set[str]:
        condition = {"type": "PodScheduled", "status": "False", **more}
        return set(moments(said("Pod", {"metadata": {"name": "p", "uid": "u"}, "status": {"conditions": [condition]}})))

    assert words(reason="SchedulingGated") == {"queued"}
    assert words(reason="Unschedulable", message="0/4 nodes are available") == {"unschedulable"}
    assert words() == set()


def test_a_container_that_was_started_again_began_twice() -> None:
    state = {"running": {"startedAt": "2026-11-28T00:00:09Z"}}
    before = {"terminated": {"startedAt": "2026-11-28T00:00:01Z", "finishedAt": "2026-11-28T00:00:05Z"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "a", "state": state, "lastState": before}]}
    words = told(said("Pod", {"metadata": {"name": "p", "uid": "u"}, "status": status}))
    source = "containerStatuses.startedAt"
    # That it came now says something of the second time only.
    assert [word for word in words if word[0] == "started"] == [
        ("started", "a", source, ns("2026-11-28T00:00:09Z")),
        ("started", "a", "watch", None),
        ("started", "a", source, ns("2026-11-28T00:00:01Z")),
    ]


def test_a_job_is_suspended_resumed_and_completed() -> None:
    last = {item["metadata"]["name"]: item for item in objects("Job")}
    done = told(said("Job", last["w-000001"]))
    status = last["w-000001"]["status"]
    complete = next(each for each in status["conditions"] if each["type"] == "Complete")
    assert ("completed", None, "condition Complete", ns(complete["lastTransitionTime"])) in done
    assert ("completed", None, "status.completionTime", ns(status["completionTime"])) in done
    assert ("started", None, "status.startTime", ns(status["startTime"])) in done
    assert {"suspended", "resumed"} <= set(moments(said("Job", *objects("Job", "w-000002"))))


def test_a_claim_says_who_bound_it_and_when() -> None:
    versions = objects("PersistentVolumeClaim")
    assert set(moments(said("PersistentVolumeClaim", versions[0]))) == {"created"}
    bound = [word for word in told(said("PersistentVolumeClaim", versions[-1])) if word[0] == "claim_bound"]
    assert [source for _, _, source, _ in bound] == ["watch", "managedFields kube-controller-manager"]


def test_a_kueue_workload_goes_through_its_queue() -> None:
    waits = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "too many",
             "lastTransitionTime": "2026-11-28T00:00:00Z"}  # fmt: skip
    rows = workload("Workload", [waits])
    assert set(rows.select("moment", "reason", "message").iter_rows()) == {("queued", "WaitingForQuota", "too many")}
    later = [true(kind) for kind in ("QuotaReserved", "Admitted", "PodsReady", "Finished", "Evicted", "Preempted")]
    assert moments(workload("Workload", [*later, true("Requeued"), true("OnHold")])) == [
        "quota_reserved", "admitted", "pods_ready", "finished", "evicted", "preempted", "requeued", "condition:OnHold",
    ]  # fmt: skip


def test_a_second_eviction_is_another_occurrence() -> None:
    times = [f"2026-11-28T00:00:0{second}Z" for second in (1, 2, 2)]
    versions = [
        {"metadata": {"name": "w", "uid": "u"}, "status": {"conditions": [true("Evicted", at)]}} for at in times
    ]
    words = told(said("Workload", *versions))
    assert [at_ns for _, _, source, at_ns in words if source != "watch"] == [ns(at) for at in times[:2]]
    assert len(words) == 4


def test_a_pod_group_that_cannot_be_placed_is_unschedulable() -> None:
    at = "2026-11-28T00:00:01Z"
    stands = [{"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "nodePool": "default",
               "transitionID": "1", "lastTransitionTime": at}]  # fmt: skip
    words = told(workload("PodGroup", [], schedulingConditions=stands))
    assert words[0] == ("unschedulable", None, "condition UnschedulableOnNodePool", ns(at))


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet", "TrainJob"])
def test_other_jobs_have_the_same_moments(kind: str) -> None:
    done = "Succeeded" if kind == "PyTorchJob" else "Completed"
    assert moments(workload(kind, [true("Created"), true("Running"), true(done), true("Failed")])) == [
        "condition:Created", "running", "completed", "failed",
    ]  # fmt: skip


def test_an_event_has_microseconds_and_its_name_nanoseconds() -> None:
    (item,) = objects("Event", "winner.18ec0e0d3d722afb")
    # That an Event came says nothing of when its object was seen.
    assert told(said("Event", item)) == [
        ("scheduled", None, "event Scheduled", ns(item["eventTime"])),
        ("scheduled", None, "event Scheduled name", 0x18EC0E0D3D722AFB),
    ]


def test_an_event_that_repeats_says_so_again() -> None:
    again = objects("Event", "w-000001-mkv8f.18ec0e09fcbf37e8")[-1]
    times = [at_ns for _, _, source, at_ns in told(said("Event", again)) if source == "event FailedScheduling"]
    assert times == [ns(again["eventTime"]), ns(again["series"]["lastObservedTime"])]


def test_an_event_of_an_old_recorder_has_whole_seconds() -> None:
    item = {"metadata": {"name": "p.18ec0e0d3d722afb", "uid": "e"}, "reason": "Started", "eventTime": None,
            "regarding": {"kind": "Pod", "name": "p", "uid": "u", "fieldPath": "spec.containers{main}"},
            "deprecatedFirstTimestamp": "2026-11-28T00:00:01Z",
            "deprecatedLastTimestamp": "2026-11-28T00:00:01Z"}  # fmt: skip
    words = told(said("Event", item))
    assert words[0] == ("started", "main", "event Started", ns("2026-11-28T00:00:01Z"))
    assert len(words) == 2


@pytest.mark.parametrize(
    "kind, reason, moment",
    [
        ("PodGroup", "Evict", "evicted"),
        ("Workload", "EvictedDueToPreempted", "evicted"),
        ("Workload", "QuotaReserved", "quota_reserved"),
        ("PersistentVolumeClaim", "ExternalProvisioning", "bind_requested"),
        ("PersistentVolumeClaim", "ProvisioningSucceeded", "claim_bound"),
        ("Pod", "Pulled", None),
        ("Node", "Evict", None),
    ],
)
def test_events_by_their_reason(kind: str, reason: str, moment: str | None) -> None:
    item = {"metadata": {"name": "e", "uid": "e"}, "reason": reason, "eventTime": "2026-11-28T00:00:01.000001Z",
            "regarding": {"kind": kind, "name": "x", "uid": "u"}, "note": "preempted by somebody else"}  # fmt: skip
    assert {word[0] for word in told(said("Event", item))} == ({moment} if moment else set())


def test_the_name_of_a_run_ai_workload_is_in_its_spec() -> None:
    made = {"name": "generated", "uid": "u", "creationTimestamp": "2026-11-28T00:00:01Z"}
    named = {"metadata": made, "spec": {"name": {"value": "j-1"}, "gpu": {"value": "1"}}}
    assert set(said("TrainingWorkload", named)["workload"]) == {"j-1"}
    others: list[Any] = [{}, {"name": "plain"}, {"name": {}}, {"name": {"value": 3}}, None, "plain", []]
    for spec in others:
        assert set(said("TrainingWorkload", {**named, "spec": spec})["workload"]) == {None}
    # Kueue's has a name of its own there.
    assert set(said("Workload", named)["workload"]) == {None}
