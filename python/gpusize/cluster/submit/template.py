"""A template: the documents of one workload, as they are before names and numbers are filled in."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.documents import parse_yaml_documents
from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import is_file, read_text, shown
from gpusize.cluster.submit.overrides import overridden, parse_override
from gpusize.cluster.submit.placeholders import Quoted, modernised, placeholders
from gpusize.cluster.submit.structure import pod_specs
from gpusize.cluster.submit.templates import template_text

__all__ = ["REPEAT", "RUNAI_GROUP", "Template", "read_template"]

REPEAT: Final = "gpusize.dev/repeat"
"""Annotation of a document that is created so many times, with the placeholder ``rank`` from 0."""

RUNAI_GROUP: Final = "run.ai"
_CLAIM_PATH: Final = "/data"


@dataclass(frozen=True, slots=True)
class Template:
    """The documents of a workload, the last of which is the workload itself.

    Attributes:
        name: as it was asked for: a template of ours, or a path.
        documents: in the order in which they are created.
        sha256: of all of them, overrides included.
    """

    name: str
    documents: tuple[dict[str, Any], ...]
    sha256: str

    @property
    def runai(self) -> bool:
        """Whether the workload is one of Run:ai, whose namespaces are called after projects."""
        return str(self.documents[-1]["apiVersion"]).partition("/")[0] == RUNAI_GROUP

    @property
    def asks(self) -> set[str]:
        """The placeholders in it."""
        return placeholders(list(self.documents))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """API version and kind of each document, once each, in their order."""
        return tuple(dict.fromkeys((each["apiVersion"], each["kind"]) for each in self.documents))


def read_template(name: str, *, pvc: bool = False, overrides: Sequence[str] = ()) -> Template:
    """A template of ours by its name, or a YAML file by its path.

    Args:
        name: one of `templates.template_names`, or a path: with a slash, or ending in .yaml or .yml.
        pvc: whether a volume claim is added to it.
        overrides: as `parse_override` reads them.

    Raises:
        UsageError: no such template, or an override that does not fit it.
        ConfigError: a file that is no template, with line and column where they are known.
    """
    path = "/" in name or Path(name).suffix.lower() in (".yaml", ".yml") or is_file(name)
    text = read_text(name, error=ConfigError) if path else template_text(name)
    source = name if path else f"template {name}"
    documents = [each for each in modernised(parse_yaml_documents(text, source, Quoted)) if each is not None]
    _check(documents, source)
    if pvc:
        documents = _with_claim(documents, source)
    for each in overrides:
        documents = overridden(documents, parse_override(each))
    _check(documents, source)
    digest = hashlib.sha256(repr(documents).encode()).hexdigest()
    return Template(name, tuple(documents), digest)


def _check(documents: Sequence[Any], source: str) -> None:
    """Whether each document is an object that gets another name in each workload."""
    if not documents:
        raise ConfigError("the template is empty", source, "write at least one object of Kubernetes")
    for number, each in enumerate(documents, start=1):
        where = source if len(documents) == 1 else f"{source}, document {number}"
        if not isinstance(each, dict) or not all(isinstance(each.get(key), str) for key in ("apiVersion", "kind")):
            raise ConfigError("this is no object of Kubernetes", where, "it needs apiVersion and kind")
        metadata = each.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise ConfigError(f"metadata is {shown(metadata)}", where, "make it a table")
        if "generateName" in metadata:
            what = "generateName gives a name that nobody knows before"
            raise ConfigError(what, where, "write metadata: name: ${name}")
        name = metadata.setdefault("name", "${name}")
        if not placeholders(name) & {"name", "index"}:
            what = f"every workload would be called {shown(name)}"
            raise ConfigError(what, f"{where}, metadata.name", "put ${name} into it")
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and REPEAT in annotations and "rank" not in placeholders(name):
            what = "the documents that are repeated would have one name"
            raise ConfigError(what, f"{where}, metadata.name", "write ${name}-${rank}")
        _check_values(each, where, ())


def _check_values(tree: Any, where: str, path: tuple[str, ...]) -> None:
    if isinstance(tree, dict):
        for key, value in tree.items():
            _check_values(value, where, (*path, str(key)))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            _check_values(value, where, (*path, str(number)))
    elif tree is not None and not isinstance(tree, str | bool | int | float):
        what = f"{type(tree).__name__} {shown(str(tree))} is no value of JSON"
        raise ConfigError(what, f"{where}, {'.'.join(path)}", "put it in quotes")


def _with_claim(documents: Sequence[dict[str, Any]], source: str) -> list[dict[str, Any]]:
    """With a volume claim: in the spec of a workload of Run:ai, else before the workload and mounted by its pods."""
    copies = [copy.deepcopy(each) for each in documents]
    workload = copies[-1]
    if str(workload["apiVersion"]).partition("/")[0] == RUNAI_GROUP:
        part = parse_yaml_documents(template_text("runai-pvc"), "template runai-pvc", Quoted)[0]
        workload.setdefault("spec", {}).update(part)
        return copies
    specs = [spec for each in copies for spec in pod_specs(each)]
    if not specs:
        raise UsageError("the template has no pods that could mount a volume claim", source, "leave --pvc out")
    claim = parse_yaml_documents(template_text("pvc"), "template pvc", Quoted)[0]
    for spec in specs:
        volume = {"name": "gpusize", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        spec.setdefault("volumes", []).append(volume)
        for container in spec["containers"]:
            container.setdefault("volumeMounts", []).append({"name": "gpusize", "mountPath": _CLAIM_PATH})
    return [claim, *copies]
