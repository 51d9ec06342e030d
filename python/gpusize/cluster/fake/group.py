"""Fake nodes in a cluster: made together, kept alive, and taken away with what runs on them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from gpusize.base.errors import TargetError, UsageError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.fake.kubelet import FakeKubelet
from gpusize.cluster.fake.nodes import LABEL_FAKE, LEASES, micro_time
from gpusize.cluster.tables import LABEL_RUN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable
    from types import TracebackType

    from gpusize.cluster.access.api import KubeApi
    from gpusize.cluster.fake.delays import Delays
    from gpusize.cluster.fake.kubelet import Step
    from gpusize.cluster.fake.nodes import FakeNodes

__all__ = ["FakeGroup", "check_alone", "remove_group"]

T = TypeVar("T")

_NODES: Final = "/api/v1/nodes"
_AT_ONCE: Final = 32
_USUAL_BEAT_S: Final = 15.0
_SYSTEM: Final = ("kube-system", "kube-public", "kube-node-lease")


async def check_alone(api: KubeApi) -> None:
    """Refuse a cluster in which others work: a scheduler would put their pods on nodes that run nothing.

    Raises:
        UsageError: it has nodes that are not fake, or pods that are not ours.
        KubeRefused, TargetError: it could not be asked.
    """
    real = [
        node["metadata"]["name"]
        async for page in api.pages(_NODES, {"labelSelector": f"!{LABEL_FAKE}"})
        for node in page["items"]
        if (node["metadata"].get("annotations") or {}).get("kwok.x-k8s.io/node") != "fake"
    ]
    others = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        async for page in api.pages("/api/v1/pods", {"labelSelector": f"!{LABEL_RUN}"})
        for pod in page["items"]
        if pod["metadata"]["namespace"] not in _SYSTEM
    ]
    for what, names in (("nodes that are not fake", real), ("pods of others", others)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UsageError(
                f"this cluster has {what}: {', '.join(names[:3])}{more}",
                api.server,
                "use a cluster of your own, or pass --allow-other-workloads: their pods may be bound to fake nodes "
                "and then run nowhere",
            )


@dataclass
class FakeGroup:
    """Fake nodes for the time of an ``async with`` block; their pods go through their phases meanwhile.

    Args:
        api: the cluster.
        nodes: what they are like.
        delays: of their pods' steps.
        heartbeat_s: how often each node's lease is renewed; 0 for never, where no controller watches them.
        keep: leave the nodes there after the block.
        on_step: told of each step of a pod.
    """

    api: KubeApi
    nodes: FakeNodes
    delays: Delays
    heartbeat_s: float = 15.0
    keep: bool = False
    on_step: Callable[[Step], None] = lambda _step: None
    made: list[str] = field(default_factory=list)
    """Names of nodes that were made, in order."""

    def __post_init__(self) -> None:
        names = self.nodes.names()
        self.kubelet = FakeKubelet(self.api, frozenset(names), self.delays, self.on_step)
        self._uids: dict[str, str] = {}
        self._before: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._before = await _names(self.api, self.nodes.group)
        await self._check_dead()
        try:
            await _all(self._make, self.nodes.names())
        except BaseException:
            await self._remove()
            raise
        self._tasks.append(asyncio.create_task(self.kubelet.run()))
        if self.heartbeat_s > 0:
            self._tasks.append(asyncio.create_task(self._beat()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._remove()

    async def _check_dead(self) -> None:
        """Refuse nodes that somebody keeps alive: two would move the same pods, each after its own delays.

        Raises:
            UsageError: the lease of one was renewed just now.
        """
        # A lease outlives its node for a while, until it is collected.
        if not self._before:
            return
        async for page in self.api.pages(LEASES, {"labelSelector": f"{LABEL_FAKE}={self.nodes.group}"}):
            for lease in page["items"]:
                renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
                if datetime.now(UTC) - renewed < timedelta(seconds=2 * max(self.heartbeat_s, _USUAL_BEAT_S)):
                    what = f"fake nodes of the group {self.nodes.group} are kept alive by another command"
                    todo = "stop it, or give another --group; after a crash, wait half a minute"
                    raise UsageError(what, "--group", todo)

    def failed(self) -> bool:
        """Whether the kubelet or the heartbeats have ended by an error; `check` raises it."""
        return any(task.done() and not task.cancelled() and task.exception() is not None for task in self._tasks)

    def check(self) -> None:
        """Raise what ended the kubelet or the heartbeats.

        Raises:
            TargetError: the server no longer lets us.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled():
                problem = task.exception()
                while isinstance(problem, BaseExceptionGroup):
                    problem = problem.exceptions[0]
                if problem is not None:
                    raise problem

    async def _make(self, name: str) -> None:
        try:
            node = await self.api.request("POST", _NODES, self.nodes.node(name))
            self.made.append(name)
        except KubeRefused as refused:
            if refused.status != 409:
                raise
            node = await self.api.request("GET", f"{_NODES}/{name}")
            if (node["metadata"].get("labels") or {}).get(LABEL_FAKE) != self.nodes.group:
                raise UsageError(
                    f"there is a node {name} that is not one of ours", "--group", "give another name"
                ) from refused
        self._uids[name] = node["metadata"]["uid"]
        await self.api.request(
            "PATCH", f"{_NODES}/{name}/status", self.nodes.status(name), patch="strategic-merge-patch"
        )
        await self.api.request("PATCH", f"{_NODES}/{name}", self.nodes.untainted())
        if self.heartbeat_s > 0:
            await self._renew(name)

    async def _renew(self, name: str) -> None:
        try:
            await self.api.request("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": micro_time()}})
        except KubeRefused as refused:
            if refused.status != 404:
                raise
            await self.api.request("POST", LEASES, self.nodes.lease(name, self._uids[name]))

    async def _beat(self) -> None:
        """Renew the leases one after another, spread over the interval."""
        names = self.nodes.names()
        while True:
            for name in names:
                await asyncio.sleep(self.heartbeat_s / len(names))
                # One that is missed is renewed in the next round; a lease holds for four of them.
                with contextlib.suppress(TargetError):
                    await self._renew(name)

    async def _remove(self) -> None:
        # By what is there, not by what was acknowledged: an answer that was not waited for may have been a node.
        if not self.keep:
            await remove_group(self.api, self.nodes.group, other_than=self._before)


async def remove_group(api: KubeApi, group: str, other_than: Collection[str] = ()) -> int:
    """Remove fake nodes, and by force the pods that are bound to them: no kubelet will ever end those.

    Args:
        api: the cluster.
        group: the group that they were made as.
        other_than: names of nodes that stay.

    Returns:
        How many nodes were removed.

    Raises:
        KubeRefused, TargetError: the server refuses it, or gives no answer.
    """
    names = await _names(api, group) - set(other_than)

    async def node(name: str) -> None:
        await _delete(api, f"{_NODES}/{name}")

    async def pod(place: tuple[str, str]) -> None:
        await _delete(api, f"/api/v1/namespaces/{place[0]}/pods/{place[1]}", {"gracePeriodSeconds": 0})

    await _all(node, sorted(names))
    bound = [
        (each["metadata"]["namespace"], each["metadata"]["name"])
        async for page in api.pages("/api/v1/pods", {"fieldSelector": "spec.nodeName!="})
        for each in page["items"]
        if each["spec"]["nodeName"] in names
    ]
    await _all(pod, bound)
    return len(names)


async def _names(api: KubeApi, group: str) -> set[str]:
    return {
        node["metadata"]["name"]
        async for page in api.pages(_NODES, {"labelSelector": f"{LABEL_FAKE}={group}"})
        for node in page["items"]
    }


async def _delete(api: KubeApi, path: str, options: dict[str, Any] | None = None) -> None:
    try:
        await api.request("DELETE", path, options)
    except KubeRefused as refused:
        if refused.status != 404:
            raise


async def _all(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Do the work for all items, a few at a time; the first error ends it."""
    left = iter(items)

    async def one_after_another() -> None:
        for item in left:
            await work(item)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(one_after_another())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
