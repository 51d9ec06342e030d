"""What a kubelet would write into a pod's status, step by step; no network."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ended", "is_over", "next_step", "ready", "started"]


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether it has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def next_step(pod: Mapping[str, Any]) -> str | None:
    """What comes next for a pod that is bound: ``start``, ``ready``, ``end``, ``remove``; None for nothing."""
    if pod["metadata"].get("deletionTimestamp"):
        return "remove"
    if is_over(pod):
        return None
    if (pod.get("status") or {}).get("phase") != "Running":
        return "start"
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or []}
    if conditions.get("Ready") != "True":
        return "ready"
    return None if pod["spec"].get("restartPolicy", "Always") == "Always" else "end"


def started(pod: Mapping[str, Any], now: str, *, is_ready: bool) -> dict[str, Any]:
    """Its containers run; with ``is_ready`` they are ready at once."""
    state = {"running": {"startedAt": now}}
    conditions = [_condition(each, now) for each in ("PodReadyToStartContainers", "Initialized")]
    conditions += [_condition(each, now, holds=is_ready) for each in ("ContainersReady", "Ready")]
    address = _address(pod)
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "hostIP": "192.0.2.1",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
            "containerStatuses": _containers(pod, state, is_ready=is_ready),
            "initContainerStatuses": [
                {
                    **_container(each),
                    "ready": True,
                    "state": {
                        "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
                    },
                }
                for each in pod["spec"].get("initContainers") or []
            ],
        }
    }


def ready(pod: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Its containers are ready."""
    running = (pod["status"].get("containerStatuses") or [{}])[0].get("state") or {"running": {"startedAt": now}}
    return {
        "status": {
            "conditions": [_condition(each, now) for each in ("ContainersReady", "Ready")],
            "containerStatuses": _containers(pod, running, is_ready=True),
        }
    }


def ended(pod: Mapping[str, Any], now: str, code: int) -> dict[str, Any]:
    """Its containers have ended with a code."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    begun = ((statuses[0].get("state") or {}).get("running") or {}).get("startedAt", now)
    reason = "Error" if code else "Completed"
    over = {"terminated": {"exitCode": code, "reason": reason, "startedAt": begun, "finishedAt": now}}
    return {
        "status": {
            "phase": "Failed" if code else "Succeeded",
            "startTime": (pod.get("status") or {}).get("startTime", now),
            "conditions": [
                {**_condition(each, now, holds=False), "reason": "PodFailed" if code else "PodCompleted"}
                for each in ("ContainersReady", "Ready")
            ],
            "containerStatuses": _containers(pod, over, is_ready=False),
        }
    }


def _condition(kind: str, now: str, *, holds: bool = True) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": now}


def _containers(pod: Mapping[str, Any], state: Mapping[str, Any], *, is_ready: bool) -> list[dict[str, Any]]:
    running = "running" in state
    return [
        {**_container(each), "ready": is_ready, "started": running, "state": state}
        for each in pod["spec"].get("containers") or []
    ]


def _container(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": spec["name"], "image": spec.get("image", ""), "imageID": "", "restartCount": 0}


def _address(pod: Mapping[str, Any]) -> str:
    """An address of a network that is set aside for tests of networks; pods may share one."""
    number = zlib.crc32(pod["metadata"]["uid"].encode()) % (1 << 17)
    return f"198.{18 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
