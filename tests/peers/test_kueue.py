"""Kueue on the real control plane: Jobs of a queue are admitted as far as its quota goes, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from scripts.peers import peer_folder, peer_pieces
from tests.servers.kube import ControlPlane
from tests.servers.kube.kueue import Kueue
from tests.servers.kube.objects import GPU, condition, create, items, node, pod, until

pytestmark = pytest.mark.optional_in_ci("building Kueue takes minutes more, and is asked for by name")
KUEUE, JOBS = "/apis/kueue.x-k8s.io/v1beta2", "/apis/batch/v1/namespaces/team/jobs"
QUOTA = 8


def queue(client: httpx.Client) -> None:
    """One queue with eight GPUs."""
    room = {"cpu": "100", "memory": "1Ti", GPU: str(QUOTA)}
    flavor = {"name": "any", "resources": [{"name": name, "nominalQuota": quota} for name, quota in room.items()]}
    group = {"coveredResources": list(room), "flavors": [flavor]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    create(client, f"{KUEUE}/resourceflavors", _object("ResourceFlavor", "any"))
    create(client, f"{KUEUE}/clusterqueues", _object("ClusterQueue", "all", spec=spec))
    create(client, "/api/v1/namespaces", {"metadata": {"name": "team"}})
    create(client, f"{KUEUE}/namespaces/team/localqueues", _object("LocalQueue", "gpus", spec={"clusterQueue": "all"}))


def _object(kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **parts}


def job(name: str, gpus: int) -> dict[str, Any]:
    template = {"spec": pod("", gpus)["spec"]}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def test_jobs_are_admitted_as_far_as_the_quota_goes(start_control_plane: Callable[..., ControlPlane]) -> None:
    folder = peer_folder("kueue")
    if not {"program", "config"} <= peer_pieces(folder):
        pytest.skip("the peer kueue is not there: make peers PEERS=kueue")
    plane = start_control_plane()
    with Kueue(folder, plane), plane.client() as client:
        queue(client)
        for each in range(4):
            create(client, "/api/v1/nodes", node(f"n{each}", gpus=8))
        for each in range(3):
            create(client, JOBS, job(f"job-{each}", gpus=4))

        def workloads() -> dict[str, dict[str, Any]]:
            found = items(client, f"{KUEUE}/namespaces/team/workloads")
            return {each["metadata"]["ownerReferences"][0]["name"]: each for each in found}

        def admitted() -> set[str]:
            return {name for name, each in workloads().items() if condition(each, "Admitted").get("status") == "True"}

        def bound() -> set[str]:
            pods = items(client, "/api/v1/namespaces/team/pods")
            return {each["metadata"]["labels"]["job-name"] for each in pods if "nodeName" in each["spec"]}

        until(
            lambda: [condition(each, "QuotaReserved") for each in workloads().values()],
            lambda all_: sum(map(bool, all_)) == 3,
        )
        # 32 GPUs are there, and the quota is 8: the third Job waits for it, and no pod of it is made.
        first = until(admitted, lambda names: len(names) == 2)
        (waits,) = {"job-0", "job-1", "job-2"} - first
        refused = condition(workloads()[waits], "QuotaReserved")
        assert refused["status"] == "False"
        assert GPU in refused["message"]
        assert until(bound, lambda names: len(names) == 2) == first
        assert client.get(f"{JOBS}/{waits}").json()["spec"]["suspend"] is True
        # One ends: the third comes.
        client.delete(f"{JOBS}/{min(first)}", params={"propagationPolicy": "Background"}).raise_for_status()
        until(admitted, lambda names: waits in names)
        until(bound, lambda names: waits in names)
