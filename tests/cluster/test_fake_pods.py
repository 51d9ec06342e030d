"""What a pod on a fake node goes through, by the statuses that are written into it."""

from __future__ import annotations

from typing import Any

import pytest

from gpusize.cluster.fake import pods

NOW = "2026-11-28T00:00:00Z"


def pod(restart: str = "Always") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "work", "name": "one", "uid": "5d0c1a52"},
        "spec": {
            "nodeName": "gpusize-fake-0000",
            "restartPolicy": restart,
            "initContainers": [{"name": "first", "image": "busybox"}],
            "containers": [{"name": "main", "image": "model"}, {"name": "side", "image": "proxy"}],
        },
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


def merged(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """As the server merges a status: conditions by their type, the rest by key."""
    old, new = body["status"], patch["status"]
    conditions = {each["type"]: each for each in [*old.get("conditions", []), *new.get("conditions", [])]}
    return {**body, "status": {**old, **new, "conditions": list(conditions.values())}}


@pytest.mark.parametrize("restart, steps", [("Always", ["start", "ready"]), ("Never", ["start", "ready", "end"])])
def test_a_pod_goes_from_its_binding_to_its_end(restart: str, steps: list[str]) -> None:
    body, seen = pod(restart), []
    while (step := pods.next_step(body)) is not None:
        seen.append(step)
        make = {
            "start": lambda body: pods.started(body, NOW, is_ready=False),
            "ready": lambda body: pods.ready(body, NOW),
            "end": lambda body: pods.ended(body, NOW, 0),
        }[step]
        body = merged(body, make(body))
    assert seen == steps
    assert body["status"]["phase"] == ("Running" if restart == "Always" else "Succeeded")


def test_a_pod_that_is_ready_as_it_starts_takes_one_step() -> None:
    body = merged(pod(), pods.started(pod(), NOW, is_ready=True))
    assert pods.next_step(body) is None
    assert {each["type"]: each["status"] for each in body["status"]["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    assert [each["name"] for each in body["status"]["containerStatuses"]] == ["main", "side"]


def test_a_pod_that_fails_is_over_and_says_its_code() -> None:
    body = merged(pod(), pods.ended(pod(), NOW, 1))
    assert pods.is_over(body)
    assert pods.next_step(body) is None
    assert {each["state"]["terminated"]["exitCode"] for each in body["status"]["containerStatuses"]} == {1}


def test_a_pod_that_is_deleted_is_removed_whatever_it_does() -> None:
    for body in (
        pod(),
        merged(pod(), pods.started(pod(), NOW, is_ready=True)),
        merged(pod(), pods.ended(pod(), NOW, 0)),
    ):
        body["metadata"] = {**body["metadata"], "deletionTimestamp": NOW}
        assert pods.next_step(body) == "remove"


def test_the_address_is_one_that_is_set_aside_for_tests() -> None:
    address = pods.started(pod(), NOW, is_ready=True)["status"]["podIP"]
    assert address.startswith(("198.18.", "198.19."))
