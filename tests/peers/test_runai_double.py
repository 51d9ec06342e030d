"""The double of Run:ai's operator, on a real control plane: what it makes is what the seed's sampler looks for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.servers.kube import ControlPlane
from tests.servers.kube.crds import JOBS, RUNAI, install
from tests.servers.kube.objects import condition, create, items, node, until
from tests.servers.kube.provisioner import STORAGE_CLASS, Provisioner
from tests.servers.kube.runai_operator import RunaiOperator

SPACE = "runai-project-0"
WORKLOADS = f"/apis/run.ai/v2alpha1/namespaces/{SPACE}"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
GROUPS = f"/apis/scheduling.run.ai/v1/namespaces/{SPACE}/podgroups"


@pytest.fixture(scope="module")
def admin(control_plane: ControlPlane) -> Iterator[httpx.Client]:
    with control_plane.client() as client:
        install(client, RUNAI, JOBS)
        create(client, "/api/v1/nodes", node("runai-0", 64))
        create(client, "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        with RunaiOperator(control_plane.client) as operator, Provisioner(control_plane.client) as provisioner:
            yield client
        assert operator.refused == provisioner.refused == []
        client.delete(PODS, params={"gracePeriodSeconds": 0}).raise_for_status()
        client.delete("/api/v1/nodes/runai-0").raise_for_status()


def workload(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    values = {"name": name, "image": "none", "cpu": "0.05", "memory": "1Mi", "gpu": 1, **fields}
    return {
        "apiVersion": "run.ai/v2alpha1",
        "kind": kind,
        "metadata": {"name": f"w-{name}", "labels": {"PreviousJob": "true", "gpusize.dev/run": "r1"}},
        "spec": {key: {"value": value} for key, value in values.items()},
    }


def created(of: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(of["metadata"]["creationTimestamp"])


@pytest.mark.parametrize("kind", ["Training", "Interactive", "Distributed"])
def test_a_workload_becomes_a_job_pods_and_a_podgroup(kind: str, admin: httpx.Client) -> None:
    name, distributed = f"j-{kind.lower()}", kind == "Distributed"
    made = create(admin, f"{WORKLOADS}/{kind.lower()}workloads", workload(f"{kind}Workload", name, workers=3))
    (group,) = until(lambda: items(admin, GROUPS, labelSelector=f"release={name}"), bool)
    jobs = (
        f"kubeflow.org/v1/namespaces/{SPACE}/pytorchjobs" if distributed else f"run.ai/v1/namespaces/{SPACE}/runaijobs"
    )
    job = admin.get(f"/apis/{jobs}/{name}").json()
    label = "training.kubeflow.org/job-name" if distributed else "release"

    def bound() -> list[dict[str, Any]]:
        pods = items(admin, PODS, labelSelector=f"{label}={name}")
        return [pod for pod in pods if condition(pod, "PodScheduled").get("status") == "True"]

    pods = until(bound, lambda found: len(found) == (4 if distributed else 1))
    assert {pod["metadata"]["labels"]["gpusize.dev/run"] for pod in pods} == {"r1"}
    times = [created(made), created(job), min(map(created, pods)), max(map(created, pods)), created(group)]
    assert all(one <= other for one, other in pairwise(times))


def test_what_it_made_goes_with_the_workload(admin: httpx.Client) -> None:
    create(admin, f"{WORKLOADS}/trainingworkloads", workload("TrainingWorkload", "j-gone", gpu=65))
    until(lambda: items(admin, GROUPS, labelSelector="release=j-gone"), bool)
    admin.delete(f"{WORKLOADS}/trainingworkloads/w-j-gone").raise_for_status()
    until(lambda: items(admin, GROUPS, labelSelector="release=j-gone"), lambda found: not found)
    until(lambda: items(admin, PODS, labelSelector="release=j-gone"), lambda found: not found)


def test_a_claim_is_asked_for_and_bound_before_its_pod(admin: httpx.Client) -> None:
    asked = {"claimName": "", "existingPvc": False, "path": "/new", "readWriteOnce": True, "size": "1Mi"}
    body = workload("TrainingWorkload", "j-123abc")
    body["spec"]["pvcs"] = {"items": {"new-0": {"value": {**asked, "storageClass": STORAGE_CLASS}}}}
    create(admin, f"{WORKLOADS}/trainingworkloads", body)

    def of_claim() -> dict[str, dict[str, Any]]:
        found = items(admin, f"/api/v1/namespaces/{SPACE}/events", fieldSelector="involvedObject.name=j-123abc-new-0")
        return {event["reason"]: event for event in found}

    events = until(of_claim, lambda found: {"ExternalProvisioning", "ProvisioningSucceeded"} <= found.keys())
    assert events["ExternalProvisioning"]["source"]["component"] == "persistentvolume-controller"
    pod = until(lambda: admin.get(f"{PODS}/j-123abc-0-0").json(), lambda found: "nodeName" in found["spec"])
    claim = admin.get(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/j-123abc-new-0").json()
    assert claim["status"]["phase"] == "Bound"
    assert condition(pod, "PodScheduled")["lastTransitionTime"] >= events["ExternalProvisioning"]["firstTimestamp"]


def test_a_field_of_the_wrong_type_is_named(admin: httpx.Client) -> None:
    answer = admin.post(f"{WORKLOADS}/distributedworkloads", json=workload("DistributedWorkload", "j-x", workers="7"))
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == ["spec.workers.value"]


def test_it_lives_through_a_restart_of_the_api_server(admin: httpx.Client, control_plane: ControlPlane) -> None:
    control_plane.restart_apiserver()
    create(admin, f"{WORKLOADS}/trainingworkloads", workload("TrainingWorkload", "j-after"))
    until(lambda: items(admin, GROUPS, labelSelector="release=j-after"), bool)
