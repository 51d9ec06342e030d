"""From a template to the objects of each workload: named, labelled, and as the bytes that are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.cluster.submit.names import workload_name
from gpusize.cluster.submit.placeholders import fill
from gpusize.cluster.submit.structure import pods_of, put_labels
from gpusize.cluster.submit.template import REPEAT, Template
from gpusize.cluster.tables import LABEL_INDEX, LABEL_RUN, LABEL_WORKLOAD

__all__ = ["KubeObject", "Maker", "Workload"]


@dataclass(frozen=True, slots=True)
class KubeObject:
    """An object that is to be created.

    Attributes:
        api_version: such as ``batch/v1``.
        kind: such as ``Job``.
        name: its own.
        body: it as JSON.
        pods: how many pods it will have at once; None for kinds of which that is not known.
    """

    api_version: str
    kind: str
    name: str
    body: bytes
    pods: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of a run.

    Attributes:
        index: its number in the run, from 0.
        name: its own.
        objects: in the order in which they are created.
    """

    index: int
    name: str
    objects: tuple[KubeObject, ...]

    @property
    def pods(self) -> int | None:
        """How many pods it will have at once, as far as its kinds are known; None where none is."""
        known = [each.pods for each in self.objects if each.pods is not None]
        return sum(known) if known else None


class Maker:
    """Makes the workloads of a run, each from its number alone.

    Args:
        template: what they are made from.
        run: id of the run.
        prefix: what names begin with.
        namespace: where they go.
        values: of the placeholders that are the same in all.
    """

    def __init__(
        self, template: Template, run: str, prefix: str, namespace: str, values: Mapping[str, str | int | float]
    ) -> None:
        self._template = template
        self._run = run
        self._prefix = prefix
        self._namespace = namespace
        self._values = {**values, "run": run, "prefix": prefix, "namespace": namespace}

    def make(self, index: int) -> Workload:
        """The workload of this number.

        Raises:
            UsageError: the template has a placeholder that there is not, or names another namespace.
        """
        name = workload_name(self._prefix, self._run, index)
        labels = {LABEL_RUN: self._run, LABEL_WORKLOAD: name, LABEL_INDEX: str(index)}
        values = {**self._values, "name": name, "index": index}
        objects = [made for document in self._template.documents for made in self._objects(document, values, labels)]
        return Workload(index, name, tuple(objects))

    def _objects(
        self, document: dict[str, Any], values: Mapping[str, str | int | float], labels: Mapping[str, str]
    ) -> Sequence[KubeObject]:
        source = self._template.name
        annotations = document["metadata"].get("annotations")
        count = annotations.get(REPEAT) if isinstance(annotations, dict) else None
        if count is None:
            return [self._object(fill(document, values, source), labels)]
        times = fill(count, values, source)
        if not str(times).isdecimal():
            raise ConfigError(f"{REPEAT} is {shown(times)}", source, "give a whole number, or ${workers}")
        kept = {key: value for key, value in annotations.items() if key != REPEAT}
        once = {**document, "metadata": {**document["metadata"], "annotations": kept}}
        return [self._object(fill(once, {**values, "rank": rank}, source), labels) for rank in range(int(str(times)))]

    def _object(self, filled: dict[str, Any], labels: Mapping[str, str]) -> KubeObject:
        metadata = filled["metadata"]
        elsewhere = metadata.get("namespace")
        if elsewhere not in (None, self._namespace):
            what = f"it is for namespace {shown(elsewhere)}, and the workloads go to {self._namespace}"
            raise ConfigError(what, f"{self._template.name}, metadata.namespace", "leave it out, or give --namespace")
        metadata["namespace"] = self._namespace
        put_labels(filled, labels)
        body = json.dumps(filled, separators=(",", ":"), allow_nan=False).encode()
        kind, name = str(filled["kind"]), str(metadata["name"])
        return KubeObject(str(filled["apiVersion"]), kind, name, body, pods_of(filled))
