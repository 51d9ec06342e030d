"""A double of Run:ai's operator, which nobody can have for a test: it makes what Run:ai makes of a workload.

Training and interactive workloads get a RunaiJob and a pod; distributed ones a PyTorchJob, a master and workers; each
gets a podgroup, and claims where it asks for new ones. Groups, versions, names and labels are those that the seed's
tool looks for. What Run:ai does besides (queues, quota, its scheduler, preemption) is not here: pods go to the
scheduler that is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.servers.kube.controller import Controller, put
from tests.servers.kube.objects import GPU

__all__ = ["RunaiOperator"]

VERSION = "run.ai/v2alpha1"
WORKLOADS = {
    f"/apis/{VERSION}/trainingworkloads": "TrainingWorkload",
    f"/apis/{VERSION}/interactiveworkloads": "InteractiveWorkload",
    f"/apis/{VERSION}/distributedworkloads": "DistributedWorkload",
}


class RunaiOperator(Controller):
    """Watches all namespaces; a context manager.

    Args:
        client: makes a client of the API with all rights.
        scheduler: of the pods.
    """

    def __init__(self, client: Callable[[], httpx.Client], scheduler: str = "default-scheduler") -> None:
        super().__init__(client, list(WORKLOADS))
        self._scheduler = scheduler

    def handle(self, client: httpx.Client, path: str, found: dict[str, Any]) -> None:
        kind, name = WORKLOADS[path], found["spec"]["name"]["value"]
        workload = _Workload(client, found)
        owner = _reference(found, VERSION, kind)
        claims = workload.claims(name, owner)
        if kind == "DistributedWorkload":
            workers = _value(found, "workers", 1)
            specs = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
            job = workload.make("kubeflow.org/v1", "PyTorchJob", name, owner, spec={"pytorchReplicaSpecs": specs})
            owner = _reference(job, "kubeflow.org/v1", "PyTorchJob")
            members = {
                f"{name}-{role}-{index}": {
                    "training.kubeflow.org/job-name": name,
                    "training.kubeflow.org/replica-type": role,
                    "training.kubeflow.org/replica-index": str(index),
                }
                for role, index in [("master", 0), *(("worker", index) for index in range(workers))]
            }
        else:
            job = workload.make("run.ai/v1", "RunaiJob", name, owner, spec={})
            owner = _reference(job, "run.ai/v1", "RunaiJob")
            members = {f"{name}-0-0": {"release": name}}
        for member, labels in members.items():
            workload.make("v1", "Pod", member, owner, labels, spec=self._pod_spec(found, claims))
        of = {"release": name, "workloadName": name}
        group = {"minMember": len(members)}
        workload.make("scheduling.run.ai/v1", "PodGroup", f"pg-{name}", owner, of, spec=group)

    def _pod_spec(self, workload: dict[str, Any], claims: dict[str, str]) -> dict[str, Any]:
        requests = {"cpu": str(_value(workload, "cpu", "0.05")), "memory": _value(workload, "memory", "1Mi")}
        names = [f"claim-{index}" for index, _ in enumerate(claims)]
        container = {
            "name": "main",
            "image": _value(workload, "image", "none"),
            "resources": {"requests": requests, "limits": {GPU: str(_value(workload, "gpu", 0))}},
            "volumeMounts": [
                {"name": name, "mountPath": path} for name, path in zip(names, claims.values(), strict=True)
            ],
        }
        volumes = [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, claim in zip(names, claims, strict=True)
        ]
        alone = {"schedulerName": self._scheduler, "restartPolicy": "Never"}
        return {**alone, "containers": [container], "volumes": volumes}


class _Workload:
    """Creates the objects of one workload; those there already stay as they are."""

    def __init__(self, client: httpx.Client, found: dict[str, Any]) -> None:
        self._client = client
        self._found = found
        # What whoever submitted it put on it is passed on, as Run:ai does with labels of a workload.
        self._labels: dict[str, str] = found["metadata"].get("labels", {})

    def make(
        self,
        version: str,
        kind: str,
        name: str,
        owner: dict[str, Any],
        labels: dict[str, str] | None = None,
        **parts: Any,
    ) -> dict[str, Any]:
        metadata = {"name": name, "labels": self._labels | (labels or {}), "ownerReferences": [owner]}
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{root}/namespaces/{self._found['metadata']['namespace']}/{kind.lower()}s"
        return put(self._client, path, {"apiVersion": version, "kind": kind, "metadata": metadata, **parts})

    def claims(self, name: str, owner: dict[str, Any]) -> dict[str, str]:
        """Where each claim of ``spec.pvcs`` is mounted, by the claim's name; new ones are made."""
        found = {}
        for key, item in self._found["spec"].get("pvcs", {}).get("items", {}).items():
            asked = item["value"]
            claim = asked.get("claimName") or f"{name}-{key}"
            found[claim] = asked["path"]
            if asked.get("existingPvc"):
                continue
            spec = {
                "accessModes": ["ReadWriteMany" if asked.get("readWriteMany") else "ReadWriteOnce"],
                "storageClassName": asked["storageClass"],
                "resources": {"requests": {"storage": asked["size"]}},
            }
            self.make("v1", "PersistentVolumeClaim", claim, owner, {"workloadName": name}, spec=spec)
        return found


def _value(workload: dict[str, Any], name: str, default: Any) -> Any:
    return workload["spec"].get(name, {}).get("value", default)


def _reference(of: dict[str, Any], version: str, kind: str) -> dict[str, Any]:
    uid, name = of["metadata"]["uid"], of["metadata"]["name"]
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
