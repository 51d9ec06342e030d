"""Watches recorded from a real control plane (Kubernetes 1.37.2): a Job's pod to its end, a preemption, a claim."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["FOLDER", "KINDS", "objects"]

FOLDER: Final = Path(__file__).parents[2] / "fixtures/kube/watch"
KINDS: Final = {"Pod": "pods", "Job": "jobs", "PersistentVolumeClaim": "claims", "Event": "events"}


def objects(kind: str, name: str | None = None) -> list[dict[str, Any]]:
    """All versions of the objects of a kind, as dictionaries, in the order in which they came."""
    return [item for _, item in _lines(kind) if name is None or item["metadata"]["name"].startswith(name)]


def _lines(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in (FOLDER / f"{KINDS[kind]}.jsonl").read_bytes().splitlines():
        said = json.loads(line)
        if said["type"] != "BOOKMARK":
            yield said["type"], said["object"]
