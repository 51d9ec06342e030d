"""What objects say of their moments: recorded ones, and ones as the field's controllers write them."""

from __future__ import annotations

from typing import Any

import pytest

from gpusize.cluster.watch.stamps import Word, claim_words, event_words, pod_words, run_ai_name, workload_words
from tests.cluster.watch.recorded import decoded, objects

Told = tuple[str, str | None, str | None, str | None]


def told(words: list[Word]) -> list[Told]:
    """Moment, part, source and time of each word."""
    return [(moment, part, source, text) for moment, part, _, source, text, *_ in words]


def workload(kind: str, conditions: list[dict[str, Any]], **status: Any) -> list[Word]:
    item = {"metadata": {"name": "w", "uid": "u"}, "status": {"conditions": conditions, **status}}
    return workload_words(decoded(kind, item))


def true(kind: str, at: str = "2026-11-28T00:00:01Z", **more: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": at, **more}


def test_a_pod_says_more_from_version_to_version_and_takes_nothing_back() -> None:
    seen: set[Told] = set()
    news = []
    for item in objects("Pod", "w-000001"):
        words = set(told(pod_words(decoded("Pod", item))))
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
    words = told(pod_words(decoded("Pod", last)))
    conditions = {each["type"]: each["lastTransitionTime"] for each in last["status"]["conditions"]}
    ran = last["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ("created", None, "creationTimestamp", last["metadata"]["creationTimestamp"]) in words
    assert ("scheduled", None, "condition PodScheduled", conditions["PodScheduled"]) in words
    assert ("started", "main", "containerStatuses.startedAt", ran["startedAt"]) in words
    assert ("succeeded", None, "containerStatuses.finishedAt", ran["finishedAt"]) in words
    assert ("bound", None, None, None) in words
    # It is no longer ready, and that was no moment of its own.
    assert not [word for word in words if word[0] == "ready"]


def test_the_victim_of_a_preemption_was_evicted_and_its_winner_was_not() -> None:
    last = {item["metadata"]["name"]: item for item in objects("Pod")}
    evicted = {name for name, item in last.items() if "evicted" in {w[0] for w in pod_words(decoded("Pod", item))}}
    assert evicted == {"victim-2"}
    events = [decoded("Event", item) for item in objects("Event")]
    about = {event.regarding.name for event in events if any(word[0] == "evicted" for word in event_words(event))}
    assert about == {"victim-2"}


def test_the_deletion_was_asked_for_a_grace_before_its_time() -> None:
    first = next(item for item in objects("Pod", "victim-2") if "deletionTimestamp" in item["metadata"])
    (word,) = [word for word in pod_words(decoded("Pod", first)) if word[0] == "deleting"]
    assert word[4] == first["metadata"]["deletionTimestamp"]
    assert word[8] == first["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_gated_pod_is_queued_and_one_without_a_verdict_is_neither() -> None:
    def words(**more: str) -> set[str]:
        condition = {"type": "PodScheduled", "status": "False", **more}
        item = {"metadata": {"name": "p", "uid": "u"}, "status": {"conditions": [condition]}}
        return {word[0] for word in pod_words(decoded("Pod", item))}

    assert words(reason="SchedulingGated") == {"queued"}
    assert words(reason="Unschedulable", message="0/4 nodes are available") == {"unschedulable"}
    assert words() == set()


def test_a_container_that_was_started_again_began_twice() -> None:
    state = {"running": {"startedAt": "2026-11-28T00:00:09Z"}}
    before = {"terminated": {"startedAt": "2026-11-28T00:00:01Z", "finishedAt": "2026-11-28T00:00:05Z"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "a", "state": state, "lastState": before}]}
    words = pod_words(decoded("Pod", {"metadata": {"name": "p", "uid": "u"}, "status": status}))
    began = [(word[4], word[7]) for word in words if word[0] == "started"]
    assert began == [("2026-11-28T00:00:09Z", True), ("2026-11-28T00:00:01Z", False)]


def test_a_job_is_suspended_resumed_and_completed() -> None:
    last = {item["metadata"]["name"]: item for item in objects("Job")}
    done = told(workload_words(decoded("Job", last["w-000001"])))
    status = last["w-000001"]["status"]
    complete = next(each for each in status["conditions"] if each["type"] == "Complete")
    assert ("completed", None, "condition Complete", complete["lastTransitionTime"]) in done
    assert ("completed", None, "status.completionTime", status["completionTime"]) in done
    assert ("started", None, "status.startTime", status["startTime"]) in done
    moments = [word[0] for item in objects("Job", "w-000002") for word in workload_words(decoded("Job", item))]
    assert {"suspended", "resumed"} <= set(moments)


def test_a_claim_says_who_bound_it_and_when() -> None:
    versions = [decoded("PersistentVolumeClaim", item) for item in objects("PersistentVolumeClaim")]
    assert {word[0] for word in claim_words(versions[0])} == {"created"}
    bound = [word for word in claim_words(versions[-1]) if word[0] == "claim_bound"]
    assert [(word[3], word[7]) for word in bound] == [(None, True), ("managedFields kube-controller-manager", False)]
    assert bound[1][4] is not None


def test_a_kueue_workload_goes_through_its_queue() -> None:
    waits = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "too many",
             "lastTransitionTime": "2026-11-28T00:00:00Z"}  # fmt: skip
    assert [(word[0], word[5]) for word in workload("Workload", [waits])] == [("queued", "WaitingForQuota")]
    later = [true(kind) for kind in ("QuotaReserved", "Admitted", "PodsReady", "Finished", "Evicted", "Preempted")]
    assert [word[0] for word in workload("Workload", [*later, true("Requeued"), true("OnHold")])] == [
        "quota_reserved", "admitted", "pods_ready", "finished", "evicted", "preempted", "requeued", "condition:OnHold",
    ]  # fmt: skip


def test_a_second_eviction_is_another_occurrence() -> None:
    first, second = (workload("Workload", [true("Evicted", f"2026-11-28T00:00:0{n}Z")])[0] for n in (1, 2))
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def test_a_pod_group_that_cannot_be_placed_is_unschedulable() -> None:
    said = [{"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "nodePool": "default",
             "transitionID": "1", "lastTransitionTime": "2026-11-28T00:00:01Z"}]  # fmt: skip
    words = workload("PodGroup", [], schedulingConditions=said)
    assert told(words) == [("unschedulable", None, "condition UnschedulableOnNodePool", "2026-11-28T00:00:01Z")]


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet", "TrainJob"])
def test_other_jobs_have_the_same_moments(kind: str) -> None:
    done = "Succeeded" if kind == "PyTorchJob" else "Completed"
    assert [word[0] for word in workload(kind, [true("Created"), true("Running"), true(done), true("Failed")])] == [
        "condition:Created", "running", "completed", "failed",
    ]  # fmt: skip


def test_an_event_has_microseconds_and_its_name_nanoseconds() -> None:
    (item,) = objects("Event", "winner.18ec0e0d3d722afb")
    words = event_words(decoded("Event", item))
    assert [(word[0], word[3], word[4] or word[2]) for word in words] == [
        ("scheduled", "event Scheduled", item["eventTime"]),
        ("scheduled", "event Scheduled name", item["metadata"]["name"]),
    ]
    assert not any(word[7] for word in words)  # that an Event came says nothing of when its object was seen


def test_an_event_that_repeats_says_so_again() -> None:
    again = objects("Event", "w-000001-mkv8f.18ec0e09fcbf37e8")[-1]
    times = [word[4] for word in event_words(decoded("Event", again)) if word[3] == "event FailedScheduling"]
    assert times == [again["eventTime"], again["series"]["lastObservedTime"]]


def test_an_event_of_an_old_recorder_has_whole_seconds() -> None:
    item = {"metadata": {"name": "p.18ec0e0d3d722afb", "uid": "e"}, "reason": "Started", "eventTime": None,
            "regarding": {"kind": "Pod", "name": "p", "uid": "u", "fieldPath": "spec.containers{main}"},
            "deprecatedFirstTimestamp": "2026-11-28T00:00:01Z",
            "deprecatedLastTimestamp": "2026-11-28T00:00:01Z"}  # fmt: skip
    words = event_words(decoded("Event", item))
    assert told(words)[0] == ("started", "main", "event Started", "2026-11-28T00:00:01Z")
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
    assert {word[0] for word in event_words(decoded("Event", item))} == ({moment} if moment else set())


def test_the_name_of_a_run_ai_workload_is_in_its_spec() -> None:
    named = {"metadata": {"name": "generated", "uid": "u"}, "spec": {"name": {"value": "j-1"}, "gpu": {"value": "1"}}}
    assert run_ai_name(decoded("TrainingWorkload", named)) == "j-1"
    others: list[dict[str, Any]] = [{}, {"name": "plain"}, {"name": {}}, {"name": {"value": 3}}]
    for spec in others:
        assert run_ai_name(decoded("TrainingWorkload", {**named, "spec": spec})) is None
