"""Clara Deploy's pipeline definitions, read without its compiler.

Source: the Clara Deploy SDK's pipeline definition language up to 0.8.1, and what its sizing tool makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusize.containers.pipeline.fields import Fields, Node
from gpusize.containers.pipeline.model import Input, Operator, Output, Pipeline, Requests, Service
from gpusize.containers.pipeline.templates import imported, resolver

__all__ = ["read_clara"]

DATA_PATH: Final = "$(NVIDIA_CLARA_SERVICE_DATA_PATH)"
"""What Clara puts before paths of a service's data; here they are where the server has them."""

_MEGABYTE: Final = 1_000_000
_PORTS: Final = (1024, 65535)
_TOP: Final = ("api-version", "name", "description", "orchestrator", "pull-secrets", "parameters", "operators")
_OPERATOR: Final = (
    "api-version",
    "name",
    "description",
    "container",
    "variables",
    "input",
    "output",
    "models",
    "services",
    "requests",
)
_SERVICE: Final = ("api-version", "name", "description", "container", "variables", "connections", "requests")
_TYPED: Final = dict.fromkeys(
    ("type", "element-type", "shape"), "shared memory between operators is not there; take untyped inputs and outputs"
)


def read_clara(root: Node, arguments: Mapping[str, str]) -> Pipeline:
    """A pipeline of Clara's definition language.

    Args:
        root: the top of the file.
        arguments: values of its parameters.

    Raises:
        ConfigError: a key or value that is not supported, with file, line and column.
        UsageError: an argument without a parameter.
    """
    top = root.fields()
    top.only(_TOP)
    root = root.resolved_by(resolver(top.get("parameters"), arguments, "parameter"))
    top = root.fields()
    notes = []
    secrets = top.get("pull-secrets")
    if secrets is not None:
        names = ", ".join(secret.text() for secret in secrets.items())
        notes.append(f"{secrets.where}: pull-secrets ({names}) are Kubernetes'; images are pulled as docker login says")
    for key in ("api-version", "description", "orchestrator"):
        top.read(key, Node.text)
    operators = tuple(_operator(node.fields()) for node in top.need("operators").items())
    return Pipeline(top.need("name").name(), operators, "clara", root.document.source, tuple(notes))


def _operator(given: Fields) -> Operator:
    fields = imported(given)
    fields.only(_OPERATOR)
    image, command = _container(fields.need("container"))
    return Operator(
        name=fields.need("name").name(),
        image=image,
        command=command,
        variables=fields.read("variables", Node.variables) or {},
        inputs=tuple(_input(node.fields()) for node in fields.list_of("input")),
        outputs=tuple(_output(node.fields()) for node in fields.list_of("output")),
        models=tuple(_model(node.fields()) for node in fields.list_of("models")),
        services=tuple(_service(node.fields()) for node in fields.list_of("services")),
        requests=_requests(fields.get("requests")),
        where=given.where,
    )


def _container(node: Node) -> tuple[str, tuple[str, ...] | None]:
    fields = node.fields()
    fields.only(("image", "tag", "command"))
    # Clara appends the words to those of docker run, where none means those of the image.
    words = tuple(item.text() for item in fields.list_of("command"))
    image, tag = fields.need("image").text(), fields.read("tag", Node.text)
    return f"{image}:{'latest' if tag is None else tag}", words or None


def _input(fields: Fields) -> Input:
    fields.only(("path", "from", "name"), _TYPED)
    upstream, name = fields.get("from"), fields.get("name")
    if upstream is None and name is not None:
        raise name.wrong("of use without from: the input folder has no outputs to choose from")
    return Input(
        fields.need("path").place(), fields.read("from", Node.name), fields.read("name", Node.name), fields.where
    )


def _output(fields: Fields) -> Output:
    fields.only(("path", "name"), _TYPED)
    return Output(fields.need("path").place(), fields.read("name", Node.name), fields.where)


def _model(fields: Fields) -> str:
    fields.only(("name",))
    return fields.need("name").text()


def _service(given: Fields) -> Service:
    fields = imported(given, template=False)
    fields.only(_SERVICE)
    image, command = _container(fields.need("container"))
    connections = fields.get("connections")
    https: list[Node] = []
    if connections is not None:
        kinds = connections.fields()
        kinds.only(("http",), {"file": "mount what it holds by --models-dir, which is /models in the service"})
        https = kinds.list_of("http")
    gpus = _requests(fields.get("requests")).gpus
    words = None if command is None else tuple(word.replace(DATA_PATH, "") for word in command)
    return Service(
        name=fields.need("name").name(),
        image=image,
        command=None if words is None else tuple(word for word in words if word),
        variables=fields.read("variables", Node.variables) or {},
        connections=tuple(_connection(node.fields()) for node in https),
        gpus=str(gpus) if gpus else None,
        where=given.where,
    )


def _connection(fields: Fields) -> tuple[str, int]:
    fields.only(("name", "port"))
    return fields.need("name").name(), fields.need("port").whole(*_PORTS)


def _requests(node: Node | None) -> Requests:
    if node is None:
        return Requests()
    fields = node.fields()
    fields.only(("cpu", "gpu", "memory"))
    return Requests(
        cpus=fields.read("cpu", lambda node: float(node.whole())),
        mem_bytes=fields.read("memory", lambda node: node.whole() * _MEGABYTE),
        gpus=fields.read("gpu", Node.whole),
    )
