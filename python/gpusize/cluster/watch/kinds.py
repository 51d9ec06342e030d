"""Which kinds are watched: those that a workload may consist of, as far as the cluster knows them and lets us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.tables import LABEL_RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.cluster.access.api import KubeApi, Resource

__all__ = ["OWN_KINDS", "Watched", "find_kinds"]

_CORE: Final = (("v1", "Pod"), ("events.k8s.io/v1", "Event"), ("v1", "PersistentVolumeClaim"), ("batch/v1", "Job"))
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "kueue.x-k8s.io": ("Workload",),
    "scheduling.run.ai": ("PodGroup",),
    "scheduling.k8s.io": ("PodGroup",),
    "scheduling.x-k8s.io": ("PodGroup",),
    "kubeflow.org": ("PyTorchJob",),
    "trainer.kubeflow.org": ("TrainJob",),
    "jobset.x-k8s.io": ("JobSet",),
    "run.ai": ("RunaiJob", "TrainingWorkload", "DistributedWorkload", "InteractiveWorkload"),
}
"""Kinds of these groups, in whatever version the cluster prefers that has them."""

_LABELLED: Final = frozenset({"Pod", "Job", "Deployment", "JobSet", "PyTorchJob"})
"""Kinds whose pods have the run's label, as it is in their pod template."""

_BARE: Final = frozenset({"RunaiJob", "Deployment", "ReplicaSet", "StatefulSet"})
"""Kinds of which the metadata says all that is asked."""


OWN_KINDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "training": (("run.ai/v2alpha1", "TrainingWorkload"),),
    "distributed": (("run.ai/v2alpha1", "DistributedWorkload"),),
    "interactive": (("run.ai/v2alpha1", "InteractiveWorkload"),),
    "pod": (("v1", "Pod"),),
    "job": (("batch/v1", "Job"),),
    "deployment": (("apps/v1", "Deployment"),),
    "jobset": (("jobset.x-k8s.io/v1alpha2", "JobSet"),),
    "pytorchjob": (("kubeflow.org/v1", "PyTorchJob"),),
}
"""What is submitted as a workload of a type, for folders that do not say it themselves."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind, and which of its objects.

    Attributes:
        resource: the kind.
        selector: labels that its objects have; None for all of the namespace.
        bare: whether only their metadata is asked for.
        needed: whether nothing can be measured without it.
    """

    resource: Resource
    selector: str | None = None
    bare: bool = False
    needed: bool = False


async def find_kinds(
    api: KubeApi, own: Sequence[tuple[str, str]], run: str | None, namespace: str
) -> tuple[list[Watched], dict[str, str]]:
    """The kinds to watch.

    Args:
        api: the server.
        own: version and kind of what is submitted, such as ``("batch/v1", "Job")``.
        run: the run's id, where its objects have its label.
        namespace: where they are.

    Returns:
        The kinds, and those that the cluster has and may not be listed, with the reason.

    Raises:
        UsageError: the cluster does not know a kind that is submitted.
        KubeRefused: one that is needed may not be listed.
        TargetError: no answer came.
    """
    kinds: dict[tuple[str, str], Resource] = {}
    for version, kind in own:
        resource = await api.resource(version, kind)
        kinds[version.partition("/")[0], kind] = resource
    needed = {*(kind for _, kind in own), "Pod"}
    for version, kind in _CORE:
        kinds.setdefault((version.partition("/")[0], kind), await api.resource(version, kind))
    served = await _versions(api)
    for group, names in _GROUPS.items():
        for kind in names:
            for version in served.get(group, ()) if (group, kind) not in kinds else ():
                try:
                    kinds[group, kind] = await api.resource(version, kind)
                except UsageError:
                    continue
                break
    labelled = run is not None and all(kind in _LABELLED for _, kind in own)
    wanted = {kind for _, kind in own} | {"Pod"} if labelled else set()
    watched: list[Watched] = []
    left_out: dict[str, str] = {}
    for (_, kind), resource in kinds.items():
        selector = f"{LABEL_RUN}={run}" if kind in wanted else None
        each = Watched(resource, selector, kind in _BARE, kind in needed)
        refused = await _refused(api, each, namespace)
        if refused is None:
            watched.append(each)
        elif each.needed:
            raise refused
        else:
            left_out[kind] = str(refused)
    return watched, left_out


async def _versions(api: KubeApi) -> dict[str, list[str]]:
    """The versions of each group, the preferred one first."""
    found: dict[str, list[str]] = {}
    for group in (await api.request("GET", "/apis"))["groups"]:
        preferred = (group.get("preferredVersion") or {}).get("groupVersion")
        rest = [each["groupVersion"] for each in group.get("versions") or ()]
        found[group["name"]] = [each for each in (preferred, *rest) if each]
    return found


async def _refused(api: KubeApi, each: Watched, namespace: str) -> KubeRefused | None:
    params = {"limit": "1", **({"labelSelector": each.selector} if each.selector else {})}
    answer = await api.ask("GET", each.resource.path(namespace), params=params)
    if answer.status < 400:
        return None
    return KubeRefused.answered(answer.status, answer.body, f"GET {each.resource.path(namespace)}")
