"""What is found in objects by their form: pod templates, pod specs, where labels go, how many pods there will be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["pod_specs", "pods_of", "put_labels"]

_TEMPLATES: Final = ("template", "podTemplate", "jobTemplate")
_LISTS: Final = ("volumeClaimTemplates",)


def put_labels(document: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Put labels on an object and on every template inside it, whatever its kind: of pods, jobs and volume claims.

    A template is a table called ``template``, ``podTemplate`` or ``jobTemplate`` that has a ``spec``, or an item of
    ``volumeClaimTemplates``.
    """
    for each in (document, *_templates(document)):
        metadata = each.get("metadata")
        if not isinstance(metadata, dict):
            metadata = each["metadata"] = {}
        own = metadata.get("labels")
        metadata["labels"] = {**(own if isinstance(own, dict) else {}), **labels}


def _templates(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in _TEMPLATES and isinstance(value, dict) and isinstance(value.get("spec"), dict):
                yield value
            elif key in _LISTS and isinstance(value, list):
                yield from (item for item in value if isinstance(item, dict))
            yield from _templates(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from _templates(item)


def pod_specs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The specs of pods in an object: each table called ``spec`` that has a list of ``containers``."""
    found: list[dict[str, Any]] = []

    def walk(tree: Any) -> None:
        if isinstance(tree, Mapping):
            for key, value in tree.items():
                if key == "spec" and isinstance(value, dict) and isinstance(value.get("containers"), list):
                    found.append(value)
                walk(value)
        elif isinstance(tree, list):
            for item in tree:
                walk(item)

    walk(document)
    return found


def pods_of(document: Mapping[str, Any]) -> int | None:
    """How many pods an object will have at once; None for kinds of which that is not known."""
    kind, spec = document.get("kind"), document.get("spec")
    if not isinstance(spec, dict):
        return None
    known: dict[str, Callable[[], int]] = {
        "Pod": lambda: 1,
        "Job": lambda: _job_pods(spec),
        "Deployment": lambda: _number(spec.get("replicas")),
        "ReplicaSet": lambda: _number(spec.get("replicas")),
        "StatefulSet": lambda: _number(spec.get("replicas")),
        "JobSet": lambda: sum(
            _number(e.get("replicas")) * _job_pods(e["template"]["spec"]) for e in spec["replicatedJobs"]
        ),
        "PyTorchJob": lambda: sum(_number(each.get("replicas")) for each in spec["pytorchReplicaSpecs"].values()),
        "TrainingWorkload": lambda: 1,
        "InteractiveWorkload": lambda: 1,
        # A master beside the workers.
        "DistributedWorkload": lambda: 1 + _number((spec.get("workers") or {}).get("value")),
    }
    count = known.get(str(kind))
    try:
        return None if count is None else count()
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _job_pods(spec: Mapping[str, Any]) -> int:
    return min(_number(spec.get("parallelism")), _number(spec.get("completions", spec.get("parallelism"))))


def _number(value: Any) -> int:
    """As Kubernetes reads a number of replicas: one where none is given."""
    return 1 if value is None else int(value)
