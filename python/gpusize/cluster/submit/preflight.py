"""Before anything is created: kinds, namespace and permissions, and whether the server would take a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import TargetError, UsageError
from gpusize.cluster.access.api import KubeApi, Resource
from gpusize.cluster.access.patience import patiently
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.submit.template import Template
from gpusize.cluster.submit.workloads import KubeObject, Workload
from gpusize.cluster.tables import LABEL_RUN

__all__ = ["Known", "look_before"]

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Known:
    """What the server said of itself and of what is to be created.

    Attributes:
        version: of the server, such as ``v1.37.2``.
        resources: by API version and kind.
        notes: what could not be looked into.
    """

    version: str
    resources: Mapping[tuple[str, str], Resource]
    notes: tuple[str, ...]


async def look_before(api: KubeApi, template: Template, namespace: str, run: str, first: Workload) -> Known:
    """Ask the server whether the workloads could be created; nothing is.

    Args:
        api: the server.
        template: of the workloads.
        namespace: where they would go.
        run: id of the run.
        first: a workload that the server is to judge (``dryRun=All``, ``fieldValidation=Strict``).

    Raises:
        UsageError: a kind that the server does not know, or that has no namespaces; no such namespace.
        KubeRefused: a permission that is missing (403), a template that is wrong (400, 422, with the field).
        TargetError: no answer.
    """
    version = str((await _ask(api, "GET", "/version")).get("gitVersion", ""))
    resources = {}
    for api_version, kind in template.kinds:
        resources[api_version, kind] = found = await api.resource(api_version, kind)
        if not found.namespaced:
            what = f"{kind} of {api_version} has no namespace, so that it would not go with the run"
            raise UsageError(what, template.name, "create it before, and leave it out of the template")
    notes = await _namespace(api, namespace)
    for each in resources.values():
        notes += await _permission(api, each, namespace)
    for made in first.objects:
        notes += await _dry_run(api, resources[made.api_version, made.kind], made, namespace, run)
    return Known(version, resources, tuple(dict.fromkeys(notes)))


async def _ask(api: KubeApi, method: str, path: str, body: object = None) -> Any:
    return await patiently(lambda: api.request(method, path, body))


async def _namespace(api: KubeApi, namespace: str) -> list[str]:
    try:
        await _ask(api, "GET", f"/api/v1/namespaces/{namespace}")
    except KubeRefused as refused:
        if refused.status == 404:
            todo = f"make it: kubectl create namespace {namespace}; or name another one with --namespace"
            raise UsageError(f"there is no namespace {namespace}", api.server, todo) from refused
        if refused.status != 403:
            raise
        # Who may create in a namespace need not be allowed to look at the namespace itself.
    return []


async def _permission(api: KubeApi, resource: Resource, namespace: str) -> list[str]:
    group = resource.api_version.rpartition("/")[0]
    attributes = {"namespace": namespace, "verb": "create", "group": group, "resource": resource.plural}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        status = (await _ask(api, "POST", _REVIEWS, body)).get("status") or {}
    except KubeRefused as refused:
        if refused.status not in (403, 404):
            raise
        return ["the server does not say what this user may create; a dry run was tried all the same"]
    if not status.get("allowed"):
        reason = f": {status['reason']}" if status.get("reason") else ""
        what = f"403 Forbidden: this user may not create {resource.plural} in namespace {namespace}{reason}"
        todo = "ask the cluster's administrator for this permission, or name another --namespace or --context"
        raise TargetError(what, api.server, f"nothing was created; {todo}")
    return []


async def _dry_run(api: KubeApi, resource: Resource, made: KubeObject, namespace: str, run: str) -> list[str]:
    path = resource.path(namespace)
    params = {"dryRun": "All", "fieldValidation": "Strict"}

    async def try_it() -> None:
        answer = await api.ask("POST", path, params=params, content=made.body)
        if answer.status >= 400:
            where = f"{made.kind} {made.name}, before anything was created"
            raise KubeRefused.answered(answer.status, answer.body, where, answer.retry_after_s)

    try:
        await patiently(try_it)
    except KubeRefused as refused:
        if refused.status == 409 and await _is_ours(api, resource, made, namespace, run):
            return []
        if refused.status == 400 and "dry run" in refused.message:
            return [f"the cluster cannot try a {made.kind} without creating it: {refused.message}"]
        raise
    return []


async def _is_ours(api: KubeApi, resource: Resource, made: KubeObject, namespace: str, run: str) -> bool:
    try:
        found = await _ask(api, "GET", resource.path(namespace, made.name))
    except KubeRefused:
        return False
    labels = (found.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(LABEL_RUN) == run)
