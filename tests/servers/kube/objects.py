"""Nodes and pods with GPUs, as the API takes them, and waiting for what becomes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx

__all__ = ["GPU", "condition", "create", "items", "node", "pod", "until"]

GPU = "nvidia.com/gpu"
Found = TypeVar("Found")


def node(name: str, gpus: int = 8, **labels: str) -> dict[str, Any]:
    """A ready node that nobody runs on; the API takes its status with it, as from a kubelet that registers itself."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "nothing runs here"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def pod(name: str, gpus: int = 1, scheduler: str = "", **labels: str) -> dict[str, Any]:
    """A pod of one container that asks for GPUs."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}
    spec = {"containers": [container], "restartPolicy": "Never", **({"schedulerName": scheduler} if scheduler else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def create(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create one object in the collection at this path; what the server made of it."""
    answer = client.post(path, json=body)
    assert answer.status_code == httpx.codes.CREATED, answer.text
    made: dict[str, Any] = answer.json()
    return made


def items(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    """The objects of a collection; where its definition or the server is new, it may be busy (429) at first."""
    busy = httpx.codes.TOO_MANY_REQUESTS
    answer = until(lambda: client.get(path, params=query), lambda found: found.status_code != busy)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def condition(of: dict[str, Any], kind: str) -> dict[str, Any]:
    """An object's condition of this type; empty where it has none."""
    conditions: Iterator[dict[str, Any]] = iter(of.get("status", {}).get("conditions") or [])
    return next((each for each in conditions if each["type"] == kind), {})


def until(look: Callable[[], Found], good: Callable[[Found], bool]) -> Found:
    """Look again and again until it is good; the test's own timeout bounds it."""
    pause = threading.Event()
    while not good(found := look()):
        pause.wait(0.05)
    return found
