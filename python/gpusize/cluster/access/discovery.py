"""Which kinds a server has whose objects can be listed and deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from gpusize.base.errors import GpusizeError
from gpusize.cluster.access.api import KubeApi, Resource

__all__ = ["Deletable", "deletable"]


@dataclass(frozen=True, slots=True)
class Deletable:
    """A kind with objects in namespaces that can be listed and deleted.

    Attributes:
        resource: the kind.
        by_collection: whether all that a selector names can be deleted at once.
    """

    resource: Resource
    by_collection: bool


async def deletable(api: KubeApi) -> tuple[list[Deletable], list[str]]:
    """All of them, each in one version, and notes on versions that did not answer.

    A group may serve a kind in a version that it does not prefer, so all are asked.

    Raises:
        KubeRefused, TargetError: the server does not say which groups it has.
    """
    groups = await api.request("GET", "/apis")
    versions = ["v1", *(version for each in groups.get("groups") or [] for version in _versions(each))]
    answers = await asyncio.gather(*(_resources(api, each) for each in versions))
    kinds: dict[tuple[str, str], Deletable] = {}
    for found, _ in answers:
        for each in found:
            kinds.setdefault((each.resource.api_version.rpartition("/")[0], each.resource.plural), each)
    return list(kinds.values()), [note for _, note in answers if note]


def _versions(group: dict[str, Any]) -> list[str]:
    """Versions of a group, the one that the server prefers first."""
    preferred = group.get("preferredVersion") or {}
    return list(
        dict.fromkeys(str(each["groupVersion"]) for each in (preferred, *(group.get("versions") or [])) if each)
    )


async def _resources(api: KubeApi, version: str) -> tuple[list[Deletable], str]:
    try:
        said: Any = await api.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")
    except GpusizeError as problem:
        # An aggregated API whose server is down fails for itself alone.
        return [], f"{version} could not be asked for its kinds: {problem.what}"
    found = []
    for each in said.get("resources") or []:
        verbs = set(each.get("verbs") or [])
        if each.get("namespaced") and "/" not in each["name"] and {"list", "delete"} <= verbs:
            resource = Resource(version, each["kind"], each["name"], namespaced=True)
            found.append(Deletable(resource, "deletecollection" in verbs))
    return found, ""
