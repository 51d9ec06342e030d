"""Deletes what a run has made, in every kind that the cluster knows, and looks afterwards whether all is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import TargetError, UsageError
from gpusize.cluster.access.api import KubeApi, Resource, connect
from gpusize.cluster.access.discovery import deletable
from gpusize.cluster.access.patience import PUT_OFF, patiently
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import Broken
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.folder import read_facts, update_facts
from gpusize.cluster.submit.names import check_run
from gpusize.cluster.submit.submit import KEY as SUBMIT
from gpusize.cluster.tables import LABEL_RUN

__all__ = ["KEY", "Cleaned", "Run", "clean", "clean_run", "run_of"]

KEY: Final = "clean"
"""Of what a cleaning says in ``cluster.json``."""

METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_POLL_S: Final = 0.5
_AT_ONCE: Final = 16
_SETTLED: Final = 2
"""So many listings in a row must be empty: a controller may still make a pod for an object that was just deleted."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is to be cleaned.

    Attributes:
        run: its id.
        namespace: where its workloads are; None: that of the context.
        kinds: API version and kind of what it created, in that order; deleted first, the last one before the others.
        server: where it was submitted; None where that is not known.
    """

    run: str
    namespace: str | None = None
    kinds: tuple[tuple[str, str], ...] = ()
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleaning has done.

    Attributes:
        run: the id.
        namespace: where.
        found: names by kind, as they were found.
        held: what was there still at the end: kind and name, and why where the object says it.
        notes: what could not be looked into.
        dry_run: whether nothing was deleted.
    """

    run: str
    namespace: str
    found: Mapping[str, Sequence[str]]
    held: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    dry_run: bool = False


def run_of(folder: Path) -> Run:
    """The run of a folder.

    Raises:
        UsageError: nothing was submitted into it.
        StoreError: it cannot be read.
    """
    facts = read_facts(folder).get(SUBMIT)
    if not facts:
        raise UsageError("nothing was submitted into this folder", str(folder), "name another one, or --run ID")
    kinds = tuple((each["api_version"], each["kind"]) for each in facts["kinds"])
    return Run(facts["run"], facts["namespace"], kinds, facts["server"]["url"])


def clean_run(
    run: Run | str | Path,
    *,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    timeout_s: float = 120.0,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Cleaned:
    """Delete every object that has the label of a run, in one namespace, and wait until none is left.

    Args:
        run: the folder of its test as a path, its id as a text, or what is known of it.
        namespace: where to look; that of the folder, else that of the context by default.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        timeout_s: it ends when nothing has gone for so long.
        force: end pods without waiting for their nodes, which may not be there any more.
        dry_run: only say what would be deleted.
        progress: told in words how far it is.

    Returns:
        What was found, and what holds out.

    Raises:
        UsageError: no id of a run, a folder without one, or one that was submitted to another server.
        ConfigError: an invalid kubeconfig.
        TargetError: the server does not answer, or refuses.
        StoreError: the folder cannot be read or written.
        EnvironmentLacks: lightkube is not installed.
    """
    folder = run if isinstance(run, Path) else None
    known = run_of(run) if isinstance(run, Path) else Run(run) if isinstance(run, str) else run
    check_run(known.run)

    def begin() -> None:
        """Note when: what is deleted from then on was deleted by us."""
        if folder is not None:
            before = read_facts(folder).get(KEY) or {}
            update_facts(folder, **{KEY: {"run": known.run, "started_ns": before.get("started_ns", CLIENT.now_ns())}})

    async def work() -> Cleaned:
        async with connect(kubeconfig, context, connections=_AT_ONCE + 2) as api:
            how: dict[str, Any] = {"timeout_s": timeout_s, "force": force, "dry_run": dry_run, "progress": progress}
            return await clean(api, known, namespace=namespace, begin=begin, **how)

    done = asyncio.run(work())
    if folder is not None and done.found and not dry_run:
        counts = {kind: len(names) for kind, names in done.found.items()}
        facts = {**read_facts(folder)[KEY], "ended_ns": CLIENT.now_ns(), "deleted": counts, "held": list(done.held)}
        update_facts(folder, **{KEY: facts})
    return done


async def clean(
    api: KubeApi,
    run: Run,
    *,
    namespace: str | None = None,
    timeout_s: float = 120.0,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] | None = None,
    begin: Callable[[], None] | None = None,
) -> Cleaned:
    """As `clean_run`, on a server that is connected to already; ``begin`` is called before anything is deleted.

    Raises:
        UsageError: no id of a run, or it was submitted to another server.
        KubeRefused: the server does not let this user list or delete what the run created.
        TargetError: the server does not answer.
    """
    selector = {"labelSelector": f"{LABEL_RUN}={check_run(run.run)}"}
    if run.server is not None and run.server != api.server:
        what = f"it was submitted to {run.server}, and this kubeconfig names {api.server}"
        raise UsageError(what, f"run {run.run}", "name the other one with --kubeconfig or --context")
    where = namespace or run.namespace or api.namespace
    kinds, notes = await deletable(api)
    # Those that the run created by their own version: it is the one that the user may list.
    own = {await api.resource(*each): place for place, each in enumerate(run.kinds)}
    whole = {(_group(each.resource), each.resource.plural): each.by_collection for each in kinds}
    everything = {
        each: whole.pop((_group(each), each.plural), True) for each in sorted(own, key=lambda each: -own[each])
    }
    everything |= {e.resource: e.by_collection for e in kinds if (_group(e.resource), e.resource.plural) in whole}
    sweep = _Sweep(api, where, selector, frozenset(own), force=force)
    found: dict[str, dict[str, None]] = {}
    left = await sweep.listing(list(everything))
    _add(found, left)
    end = asyncio.get_running_loop().time() + timeout_s
    empty = 0 if left else _SETTLED
    if begin is not None and left and not dry_run:
        begin()
    while not dry_run and empty < _SETTLED and asyncio.get_running_loop().time() < end:
        owners = [each for each in left if each in own]
        # What the run created goes first: its controllers delete what they made of it, and make no more.
        for resource in owners or list(left):
            await sweep.delete(resource, left[resource], by_collection=everything[resource])
        await asyncio.sleep(_POLL_S)
        before = sum(map(len, left.values()))
        left = await sweep.listing(list(left)) or await sweep.listing(list(everything))
        _add(found, left)
        if sum(map(len, left.values())) < before:
            end = asyncio.get_running_loop().time() + timeout_s
        empty = 0 if left else empty + 1
        if progress is not None:
            progress(f"{sum(map(len, left.values())):,} of {sum(map(len, found.values())):,} objects left")
    held = () if dry_run else tuple(_why(resource, item) for resource in left for item in left[resource])
    names = {kind: tuple(found[kind]) for kind in found}
    return Cleaned(run.run, where, names, held, (*notes, *sorted(sweep.notes)), dry_run)


def _add(found: dict[str, dict[str, None]], left: Mapping[Resource, Sequence[Mapping[str, Any]]]) -> None:
    for resource, items in left.items():
        found.setdefault(_called(resource), {}).update(dict.fromkeys(str(item["name"]) for item in items))


def _called(resource: Resource) -> str:
    """As kubectl names kinds: the group only where it is not the core one."""
    return f"{resource.plural}.{_group(resource)}" if _group(resource) else resource.plural


def _group(resource: Resource) -> str:
    return resource.api_version.rpartition("/")[0]


def _why(resource: Resource, item: Mapping[str, Any]) -> str:
    said = f"{_called(resource)}/{item['name']}"
    finalizers = item.get("finalizers") or []
    if finalizers:
        return f"{said} (held by {', '.join(map(str, finalizers))})"
    return f"{said} (it is to end, and its node has not ended it)" if item.get("deletionTimestamp") else said


class _Sweep:
    """Listings and deletions of one run in one namespace."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        selector: Mapping[str, str],
        own: frozenset[Resource],
        *,
        force: bool,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._selector = dict(selector)
        self._own = own
        self._force = force
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.notes: set[str] = set()

    async def listing(self, resources: Sequence[Resource]) -> dict[Resource, list[dict[str, Any]]]:
        """Metadata of the run's objects, by kind; kinds without any are left out, and each object is named once."""
        answers = await asyncio.gather(*(self._list(each) for each in resources))
        seen: set[str] = set()
        found: dict[Resource, list[dict[str, Any]]] = {}
        for resource, items in zip(resources, answers, strict=True):
            new = [item for item in items if item.get("uid") not in seen]
            seen.update(str(item.get("uid")) for item in new)
            if new:
                found[resource] = new
        return found

    async def _list(self, resource: Resource) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        async with self._slots:
            try:
                items = await patiently(lambda: self._pages(resource))
            except KubeRefused as refused:
                if resource in self._own or refused.status not in (403, 404, 405):
                    raise
                if refused.status == 403:
                    self.notes.add(
                        f"this user may not list {_called(resource)}: what there is of them was not looked at"
                    )
        return items

    async def _pages(self, resource: Resource) -> list[dict[str, Any]]:
        pages = self._api.pages(resource.path(self._namespace), self._selector, accept=METADATA_LIST)
        return [each["metadata"] async for page in pages for each in page.get("items") or []]

    async def delete(self, resource: Resource, items: Sequence[Mapping[str, Any]], *, by_collection: bool) -> None:
        """Ask for the end of a kind's objects: all by one request where that works, else one by one.

        Raises:
            KubeRefused: the server does not let this user delete them.
            TargetError: the server does not answer.
        """
        params = {"propagationPolicy": "Background"}
        forced = self._force and (resource.api_version, resource.kind) == ("v1", "Pod")
        if forced:
            params["gracePeriodSeconds"] = "0"
        elif all(item.get("deletionTimestamp") for item in items):
            return
        path = resource.path(self._namespace)
        if by_collection:
            # A large collection may take longer than the server gives a request; the next round goes on with it.
            try:
                answer = await self._api.ask("DELETE", path, params={**self._selector, **params}, timeout_s=120.0)
            except Broken:
                return
            if answer.status < 300 or answer.status in PUT_OFF:
                return
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(self._delete_one(resource, item, params))

    async def _delete_one(self, resource: Resource, item: Mapping[str, Any], params: Mapping[str, str]) -> None:
        path = resource.path(self._namespace, item["name"])
        async with self._slots:
            answer = await patiently(lambda: self._api.ask("DELETE", path, params=params))
        if answer.status >= 400 and answer.status not in PUT_OFF | {404, 409}:
            refused = KubeRefused.answered(answer.status, answer.body, f"DELETE {path}", answer.retry_after_s)
            raise TargetError(refused.what, refused.where, refused.todo)
