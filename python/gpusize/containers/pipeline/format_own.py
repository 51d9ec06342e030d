"""The short form of a pipeline definition, gpusize's own.

pipeline: segmentation
operators:
reader:
image: registry.example/reader:1
input: /in
output: /out
segment:
image: registry.example/segment:1
input: {reader: /in}
output: {masks: /masks, log: /log}
gpus: 1
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.containers.pipeline.fields import Node
from gpusize.containers.pipeline.format_compose import interpolation
from gpusize.containers.pipeline.format_compose_resources import gpus_of
from gpusize.containers.pipeline.model import Input, Operator, Output, Pipeline, Requests

__all__ = ["read_own"]

_PAYLOAD: Final = "input"
"""As the name of an upstream: the pipeline's input folder."""

_OPERATOR: Final = (
    "image",
    "command",
    "entrypoint",
    "env",
    "input",
    "output",
    "after",
    "models",
    "user",
    "gpus",
    "shm_size",
    "network",
    "workdir",
    "tmpfs",
    "init",
    "cpus",
    "memory",
)


def read_own(root: Node, arguments: Mapping[str, str]) -> Pipeline:
    """A pipeline of the short form.

    Args:
        root: the top of the file.
        arguments: variables besides those of the environment, which they replace.

    Raises:
        ConfigError: a key or value that is not supported, with file, line and column.
    """
    root = root.resolved_by(interpolation({**os.environ, **arguments}))
    top = root.fields()
    top.only(("pipeline", "operators"))
    operators = tuple(_operator(name, node) for name, node in top.need("operators").fields())
    return Pipeline(top.need("pipeline").name(), operators, "own", root.document.source)


def _operator(name: str, node: Node) -> Operator:
    if name == _PAYLOAD or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ConfigError(
            f'"{shown(name)}" is not a valid operator name', node.where, "use letters, digits, - and _; input is taken"
        )
    fields = node.fields()
    fields.only(_OPERATOR)
    return Operator(
        name=name,
        image=fields.need("image").text(),
        command=fields.read("command", Node.words),
        entrypoint=fields.read("entrypoint", Node.words),
        variables=fields.read("env", Node.variables) or {},
        inputs=tuple(_inputs(fields.get("input"))),
        outputs=tuple(_outputs(fields.get("output"))),
        after=tuple(fields.read("after", Node.one_or_more) or ()),
        models=tuple(fields.read("models", Node.one_or_more) or ()),
        user=fields.read("user", Node.text),
        gpus=fields.read("gpus", gpus_of),
        shm_bytes=fields.read("shm_size", Node.size),
        network=fields.read("network", Node.text),
        workdir=fields.read("workdir", Node.text),
        tmpfs=tuple(fields.read("tmpfs", Node.one_or_more) or ()),
        init=fields.read("init", Node.flag) or False,
        limits=Requests(fields.read("cpus", Node.number), fields.read("memory", Node.size)),
        where=node.where,
    )


def _inputs(node: Node | None) -> list[Input]:
    """A place for the input folder, or places by ``operator`` or ``operator/output``."""
    if node is None:
        return []
    if not isinstance(node.value, dict):
        return [Input(node.place(), where=node.where)]
    found = []
    for key, below in node.fields():
        upstream, _, name = key.partition("/")
        if upstream == _PAYLOAD and name:
            raise ConfigError("the input folder has no outputs to choose from", below.where, f"write {_PAYLOAD}: …")
        payload = upstream == _PAYLOAD
        found.append(Input(below.place(), None if payload else upstream, name or None, below.where))
    return found


def _outputs(node: Node | None) -> list[Output]:
    if node is None:
        return []
    if not isinstance(node.value, dict):
        return [Output(node.place(), where=node.where)]
    found = []
    for name, below in node.fields():
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ConfigError(
                f'"{shown(name)}" is not a valid output name', below.where, "use letters, digits, - and _"
            )
        found.append(Output(below.place(), name, below.where))
    return found
