"""A double of a storage provisioner: claims of its class get a volume that nobody could mount."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.servers.kube.controller import Controller, put

__all__ = ["STORAGE_CLASS", "Provisioner"]

STORAGE_CLASS, NAME = "openebs-lvmpv", "local.csi.openebs.io"
"""The class that the seed's template asks for, and who provisions it."""
ASKED = "volume.kubernetes.io/storage-provisioner"


class Provisioner(Controller):
    """Makes the class, and a volume for each claim that Kubernetes hands on; the events are the real one's.

    ``ExternalProvisioning`` is an event of Kubernetes itself, and the binding is its work.
    """

    def __init__(self, client: Callable[[], httpx.Client]) -> None:
        super().__init__(client, ["/api/v1/persistentvolumeclaims"])
        with client() as admin:
            body = {"metadata": {"name": STORAGE_CLASS}, "provisioner": NAME, "volumeBindingMode": "Immediate"}
            put(admin, "/apis/storage.k8s.io/v1/storageclasses", body)

    def handle(self, client: httpx.Client, path: str, found: dict[str, Any]) -> None:
        of, spec = found["metadata"], found["spec"]
        if of.get("annotations", {}).get(ASKED) != NAME or "volumeName" in spec:
            return
        claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": of["namespace"], "name": of["name"]}
        volume = {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {**claim, "uid": of["uid"]},
            "csi": {"driver": NAME, "volumeHandle": of["uid"]},
        }
        name = f"pvc-{of['uid']}"
        marks = {"pv.kubernetes.io/provisioned-by": NAME}
        put(client, "/api/v1/persistentvolumes", {"metadata": {"name": name, "annotations": marks}, "spec": volume})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            # One name for one volume: the same claim may be seen twice.
            "metadata": {"name": f"{of['name']}.{of['uid']}"},
            "involvedObject": {**claim, "uid": of["uid"]},
            "reason": "ProvisioningSucceeded",
            "message": f"Successfully provisioned volume {name}",
            "type": "Normal",
            "source": {"component": NAME},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        put(client, f"/api/v1/namespaces/{of['namespace']}/events", event)
