"""The objects of fake nodes: what a node with GPUs looks like to a scheduler, and what shows that it is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gpusize.base.errors import UsageError

__all__ = ["LABEL_FAKE", "LEASES", "FakeNodes", "micro_time", "second_time"]

LABEL_FAKE: Final = "gpusize.dev/fake-node"
"""On every fake node; its value is the name of the group that was made together."""

KWOK: Final = {"kwok.x-k8s.io/node": "fake"}
"""The annotation by which KWOK's users know its nodes."""

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
"""Where the leases of nodes are: a node without a fresh one is taken for dead."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
_LEASE_S: Final = 60


@dataclass(frozen=True, slots=True)
class FakeNodes:
    """Nodes that are all alike.

    Attributes:
        count: how many.
        gpus: of each.
        product: label ``nvidia.com/gpu.product`` of each.
        cpus: cores of each.
        memory: of each, as Kubernetes writes it.
        pods: most pods of each.
        group: part of their names: ``GROUP-0000`` and on.
        labels: further labels.
        taint: whether only pods that tolerate ``kwok.x-k8s.io/node=fake`` may be bound to them.
    """

    count: int = 1
    gpus: int = 8
    product: str = "NVIDIA-H100-80GB-HBM3"
    cpus: int = 128
    memory: str = "1Ti"
    pods: int = 110
    group: str = "gpusize-fake"
    labels: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    taint: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 100_000:
            raise UsageError(f"{self.count} nodes cannot be made", "--nodes", "give 1 to 100000")
        if not _NAME.fullmatch(self.group):
            raise UsageError(f'"{self.group}" cannot be part of a node\'s name', "--group", "use a-z, 0-9 and -")

    def names(self) -> list[str]:
        """Their names, in order."""
        digits = max(4, len(str(self.count - 1)))
        return [f"{self.group}-{number:0{digits}}" for number in range(self.count)]

    def node(self, name: str) -> dict[str, Any]:
        """What is created."""
        labels = {
            LABEL_FAKE: self.group,
            "type": "kwok",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        if self.gpus:
            labels |= {
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.count": str(self.gpus),
                "nvidia.com/gpu.product": self.product,
            }
        taint = [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels | dict(self.labels), "annotations": dict(KWOK)},
            # The server adds the not-ready taint to each new node; `untainted` takes it away.
            "spec": {"taints": taint} if self.taint else {},
        }

    def untainted(self) -> dict[str, Any]:
        """A patch that leaves no taint but ours; where the node lifecycle controller runs it would do the same."""
        return {"spec": {"taints": self.node("x")["spec"].get("taints")}}

    def status(self, name: str) -> dict[str, Any]:
        """What its kubelet would say of it."""
        can = {"cpu": str(self.cpus), "memory": self.memory, "pods": str(self.pods), "ephemeral-storage": "1Ti"}
        if self.gpus:
            can["nvidia.com/gpu"] = str(self.gpus)
        now = second_time()
        states = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        return {
            "status": {
                "capacity": can,
                "allocatable": can,
                "addresses": [{"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "kubeletVersion": "fake",
                    "kubeProxyVersion": "fake",
                    "containerRuntimeVersion": "fake",
                    "osImage": "fake",
                    "kernelVersion": "fake",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                    "machineID": "",
                    "systemUUID": "",
                    "bootID": "",
                },
                "conditions": [
                    {
                        "type": each,
                        "status": status,
                        "reason": "FakeNode",
                        "message": "this node is simulated by gpusize",
                        "lastHeartbeatTime": now,
                        "lastTransitionTime": now,
                    }
                    for each, status in states.items()
                ],
            }
        }

    def lease(self, name: str, uid: str) -> dict[str, Any]:
        """The node's lease; it goes with the node."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [owner], "labels": {LABEL_FAKE: self.group}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_S, "renewTime": micro_time()},
        }


def second_time() -> str:
    """Now, as the API has times: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time() -> str:
    """Now, as leases have it: microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
