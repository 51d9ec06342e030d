"""Addresses of services in a Kubernetes cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["KubeAddress", "is_kube", "parse_kube"]

_URL: Final = re.compile(
    r"kube://(?P<namespace>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/"
    r"(?:(?P<kind>service|pod|deployment|statefulset)/)?"
    r"(?P<name>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?):(?P<port>[0-9]{1,5}|[a-z][a-z0-9-]*)(?P<path>/[!-~]*)?"
)


@dataclass(frozen=True, slots=True)
class KubeAddress:
    """What a ``kube://`` address names.

    Attributes:
        namespace: of the service.
        kind: ``service``, ``pod``, ``deployment`` or ``statefulset``.
        name: its name.
        port: number or name of its port.
        path: path and query on the server; may be empty.
    """

    namespace: str
    kind: str
    name: str
    port: str
    path: str

    def __str__(self) -> str:
        kind = "" if self.kind == "service" else f"{self.kind}/"
        return f"kube://{self.namespace}/{kind}{self.name}:{self.port}"


def is_kube(url: str) -> bool:
    """Whether an address names something in a Kubernetes cluster."""
    return url.startswith("kube://")


def parse_kube(url: str) -> KubeAddress:
    """Take a ``kube://namespace/service:port`` address apart.

    Raises:
        UsageError: it is not one.
    """
    match = _URL.fullmatch(url.strip())
    if match is None or (match["port"].isdigit() and not 0 < int(match["port"]) < 65536):
        raise UsageError(
            "not an address of a service in a cluster",
            f'URL "{shown(url, 120)}"',
            "write it as kube://namespace/service:port, or kube://namespace/pod/name:port",
        )
    return KubeAddress(
        match["namespace"], match["kind"] or "service", match["name"], match["port"], match["path"] or ""
    )
