"""Compose files as pipelines: each service is an operator that runs to its end, after those that it depends on.

Source: the Compose specification (compose-spec.io); what of it makes no sense for a container that runs to its end is
refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.containers.pipeline.fields import Node, Resolve
from gpusize.containers.pipeline.format_compose_resources import device_gpus, gpus_of, resources
from gpusize.containers.pipeline.model import INPUT_VOLUME, Bind, Operator, Pipeline, Requests

__all__ = ["interpolation", "read_compose"]

_TOP: Final = ("name", "version", "services", "volumes")
_TOP_LEFT: Final = {
    "networks": "each run has a network of its own; --network names another",
    "configs": "mount the file by volumes",
    "secrets": "mount the file by volumes",
    "include": "write the services into one file",
}
_HARMLESS: Final = ("container_name", "labels", "annotations")
_SERVICE: Final = (
    "image",
    "command",
    "entrypoint",
    "environment",
    "volumes",
    "depends_on",
    "deploy",
    "user",
    "working_dir",
    "shm_size",
    "network_mode",
    "gpus",
    "mem_limit",
    "cpus",
    "tmpfs",
    "init",
    *_HARMLESS,
)
_SERVICE_LEFT: Final = {
    "build": "build the image first, and name it by image",
    "env_file": "write the variables into environment",
    "ports": "operators are no servers; publish nothing",
    "restart": "an operator runs to its end, once",
    "healthcheck": "an operator runs to its end",
    "networks": "each run has a network of its own; --network names another",
    "profiles": "leave the service out, or in",
    "extends": "write it out",
}
_VARIABLE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?])(?P<rest>[^}]*))?\}|(?P<other>\{))"
)


def interpolation(environment: Mapping[str, str]) -> Resolve:
    """What fills ``$NAME``, ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?message}`` in; ``$$`` is a dollar sign.

    A name that is not set and has no default is an error: an empty text in its place would rarely be wanted.
    """

    def resolve(text: str, where: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "$"
            if match["other"] or "${" in (match["rest"] or ""):
                told = "write ${NAME}, ${NAME:-default} or ${NAME:?message}, without a placeholder in it, or $$ for a $"
                raise ConfigError("this placeholder is not supported", where, told)
            name, how, rest = match["plain"] or match["name"], match["how"] or "", match["rest"] or ""
            found = environment.get(name)
            if found is not None and (found or not how.startswith(":")):
                return found
            if how.endswith("-"):
                return rest
            message = rest or f"set {name} in the environment, or write ${{{name}:-default}}"
            raise ConfigError(f'the variable "{name}" is not set', where, message)

        return _VARIABLE.sub(value, text)

    return resolve


def read_compose(root: Node, arguments: Mapping[str, str]) -> Pipeline:
    """A pipeline out of a Compose file.

    Args:
        root: the top of the file.
        arguments: variables besides those of the environment, which they replace.

    Raises:
        ConfigError: a key or value that is not supported, with file, line and column.
    """
    root = root.resolved_by(interpolation({**os.environ, **arguments}))
    top = root.fields()
    extensions = tuple(key for key in top.nodes if key.startswith("x-"))
    top.only((*_TOP, *extensions), _TOP_LEFT)
    volumes = top.read("volumes", _volumes) or set()
    notes: list[str] = []
    operators = tuple(_operator(key, node, volumes, notes) for key, node in top.need("services").fields())
    folder = Path(root.document.source).absolute().parent
    name = top.read("name", Node.text)
    return Pipeline(folder.name if name is None else name, operators, "compose", root.document.source, tuple(notes))


def _volumes(node: Node) -> set[str]:
    found = set()
    for name, below in node.fields():
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", name):
            raise ConfigError(
                f'"{shown(name)}" is not a valid volume name', below.where, "use letters, digits, -, _ and ."
            )
        if below.value not in (None, {}):
            raise ConfigError(
                f'the volume "{shown(name)}" has options', below.where, "volumes are folders of the run and have none"
            )
        found.add(name)
    return found


def _operator(name: str, node: Node, volumes: set[str], notes: list[str]) -> Operator:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", name):
        raise ConfigError(f'"{shown(name)}" is not a valid service name', node.where, "use letters, digits, -, _ and .")
    fields = node.fields()
    extensions = tuple(key for key in fields.nodes if key.startswith("x-"))
    fields.only((*_SERVICE, *extensions), _SERVICE_LEFT)
    notes += [f"{each.where}: {key} is not used" for key, each in fields if key in _HARMLESS]
    limits, reserved = resources(fields.get("deploy"))
    return Operator(
        name=name,
        image=fields.need("image").text(),
        command=fields.read("command", Node.words),
        entrypoint=fields.read("entrypoint", Node.words),
        variables=fields.read("environment", _environment) or {},
        binds=tuple(_bind(each, volumes) for each in fields.list_of("volumes")),
        after=tuple(fields.read("depends_on", _after) or ()),
        user=fields.read("user", Node.text),
        gpus=device_gpus(fields.get("deploy")) if fields.get("gpus") is None else fields.read("gpus", gpus_of),
        shm_bytes=fields.read("shm_size", Node.size),
        network=fields.read("network_mode", _network),
        workdir=fields.read("working_dir", Node.text),
        tmpfs=tuple(fields.read("tmpfs", Node.one_or_more) or ()),
        init=fields.read("init", Node.flag) or False,
        requests=reserved,
        limits=Requests(
            cpus=fields.read("cpus", Node.number) or limits.cpus,
            mem_bytes=fields.read("mem_limit", Node.size) or limits.mem_bytes,
        ),
        where=node.where,
    )


def _environment(node: Node) -> dict[str, str]:
    """Variables of a table or a list; a name alone takes its value from our environment."""
    pairs: list[tuple[str, str | None]] = []
    if isinstance(node.value, list):
        for item in node.items():
            name, equals, text = item.text().partition("=")
            pairs.append((name, text if equals else None))
    else:
        pairs = [(key, None if below.value is None else below.text()) for key, below in node.fields()]
    found = {}
    for name, value in pairs:
        if not name:
            raise ConfigError("a variable has no name", node.where, "write NAME=VALUE")
        if value is not None:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


def _bind(node: Node, volumes: set[str]) -> Bind:
    if isinstance(node.value, dict):
        fields = node.fields()
        fields.only(("type", "source", "target", "read_only"))
        kind = fields.need("type").text()
        if kind not in {"bind", "volume"}:
            raise ConfigError(f'the type "{shown(kind)}" is not supported', node.where, "use bind, volume or tmpfs:")
        source, target = fields.need("source").text(), fields.need("target").place()
        read_only = fields.read("read_only", Node.flag) or False
    else:
        parts = node.text().split(":")
        if not 2 <= len(parts) <= 3 or not all(parts) or (len(parts) == 3 and parts[2] not in {"ro", "rw"}):
            raise ConfigError(f'the volume "{shown(node.value)}" is not understood', node.where, "write SOURCE:PATH:ro")
        source, target, read_only = parts[0], parts[1], parts[2:] == ["ro"]
        kind = "bind" if source.startswith((".", "/", "~")) else "volume"
        if not target.startswith("/") or ".." in target.split("/"):
            raise ConfigError(f'the path "{shown(target)}" cannot be mounted', node.where, "write one such as /input")
    if kind == "volume":
        if source not in volumes | {INPUT_VOLUME}:
            raise ConfigError(f'there is no volume "{shown(source)}"', node.where, f"add it to volumes: {source}:")
        return Bind(source, target, read_only or source == INPUT_VOLUME, volume=True, where=node.where)
    place = Path(node.document.source).absolute().parent / Path(source).expanduser()
    return Bind(os.path.normpath(place), target, read_only, where=node.where)


def _after(node: Node) -> list[str]:
    if isinstance(node.value, list):
        return [item.text() for item in node.items()]
    names = []
    for name, below in node.fields():
        fields = below.fields()
        fields.only(("condition", "required"))
        condition = fields.get("condition")
        text = "service_completed_successfully" if condition is None else condition.text()
        if text != "service_completed_successfully":
            raise ConfigError(
                f"the condition {shown(text)} is not supported",
                below.where if condition is None else condition.where,
                "operators run one after another, each to its end: service_completed_successfully",
            )
        names.append(name)
    return names


def _network(node: Node) -> str:
    mode = node.text()
    if mode.startswith(("service:", "container:")):
        raise ConfigError(f'the network "{shown(mode)}" is not supported', node.where, "use none, host or bridge")
    return mode
