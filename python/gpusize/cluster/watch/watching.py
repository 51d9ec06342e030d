"""All watches of a test together: opened, kept, written down and closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import GpusizeError, TargetError
from gpusize.base.files import lock_folder, storing
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.folder import make_folder, read_facts, update_facts
from gpusize.cluster.tables import STAMPS
from gpusize.cluster.watch.canary import Canary
from gpusize.cluster.watch.feed import Feed
from gpusize.cluster.watch.kinds import find_kinds
from gpusize.cluster.watch.node_gpus import count_gpus
from gpusize.cluster.watch.progress import Progress
from gpusize.cluster.watch.stamp_book import StampBook

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path
    from types import TracebackType

    from gpusize.cluster.access.api import KubeApi
    from gpusize.cluster.watch.feed import Lost
    from gpusize.cluster.watch.progress import Until

__all__ = ["Watching"]

_FLUSH_S: Final = 1.0
_FACTS_EVERY: Final = 5
FACTS: Final = "sample"
"""The key of ``cluster.json`` that sampling keeps to."""


class Watching:
    """Watches every kind that a workload may consist of, and stamps what they tell, until `finish`.

    To be used as ``async with``; `ready` before the first submit.

    Args:
        api: the server.
        folder: of the test.
        kinds: version and kind of what is submitted, such as ``("batch/v1", "Job")``.
        selector: the run's id, where objects have its label; None to take all of the namespace.
        namespace: where they are; the context's own by default.
        canary: whether to write a Lease of our own, for clock and lag.
    """

    def __init__(
        self,
        api: KubeApi,
        folder: Path,
        kinds: Sequence[tuple[str, str]],
        selector: str | None,
        *,
        namespace: str | None = None,
        canary: bool = True,
    ) -> None:
        self.namespace = namespace or api.namespace
        self.progress = Progress()
        self.feeds: list[Feed] = []
        self._api = api
        self._folder = folder
        self._kinds = tuple(kinds)
        self._run = selector
        self._canary = Canary(api, self.namespace, selector) if canary else None
        self._began_ns = CLIENT.now_ns()
        self._before = _earlier(folder)
        self._left_out: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reconciled: dict[str, Any] = {}
        self._finished = False
        self._held: int | None = None
        self._gpus: int | None = None
        make_folder(folder)
        self.book = StampBook(folder, [kind for _, kind in kinds], self.progress.hear)

    async def __aenter__(self) -> Self:
        self._held = _hold(self._folder)
        try:
            return await self._open()
        except BaseException:
            self._let_go()
            raise

    async def _open(self) -> Self:
        found, self._left_out = await find_kinds(self._api, self._kinds, self._run, self.namespace)
        self.feeds = [Feed(self._api, each, self.namespace, self.book) for each in found]
        self._tasks = [asyncio.create_task(self._follow(feed)) for feed in self.feeds]
        self._tasks.append(asyncio.create_task(self._keep()))
        if self._canary is not None:
            self._tasks.append(asyncio.create_task(self._canary.run()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the watches. What has been seen is written down, also after an error."""
        try:
            if not self._finished:
                await self._stop()
                await self.book.flush(last=True)
                self._write_facts()
        except GpusizeError:
            if error is None:
                raise
        finally:
            self._let_go()

    async def ready(self) -> None:
        """Until every watch is open, so that nothing that begins from now on is missed.

        Raises:
            KubeRefused: one of them is refused.
        """
        waiting = asyncio.gather(*(feed.ready.wait() for feed in self.feeds))
        any_of: list[asyncio.Future[Any]] = [waiting, *self._tasks]
        try:
            while not waiting.done():
                await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
                self.check()
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting

    def check(self) -> None:
        """Raise what a watch, or the writing, has ended with."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (problem := task.exception()) is not None:
                raise problem

    def done(self, until: Until, expected: Collection[str] = ()) -> bool:
        """Whether all expected workloads are that far (`Progress.done`).

        Args:
            until: ``ready`` or ``completed``.
            expected: their names; none for those of the pods that were seen.
        """
        return self.progress.done(until, expected, self.book.belonging)

    async def list_once(self) -> None:
        """Instead of watching: stamp what the server still knows, and write it down.

        Raises:
            KubeRefused, TargetError: it cannot be listed.
            StoreError: the folder cannot be written.
        """
        self._held = _hold(self._folder)
        try:
            found, self._left_out = await find_kinds(self._api, self._kinds, self._run, self.namespace)
            self.feeds = [Feed(self._api, each, self.namespace, self.book) for each in found]
            for feed in self.feeds:
                await feed.list_once()
            self._gpus = await count_gpus(self._api)
            await self.book.flush(last=True)
            self._write_facts()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def finish(self) -> dict[str, Any]:
        """List everything once more, stamp what no watch had told, and close.

        Returns:
            What ``cluster.json`` has under ``sample``.

        Raises:
            StoreError: the folder cannot be written.
        """
        for feed in self.feeds:
            # A server that is gone tells nothing more; what it told is kept.
            try:
                found: Lost = await feed.reconcile()
            except TargetError as problem:
                self._reconciled[feed.kind] = {"problem": str(problem)}
            else:
                self._reconciled[feed.kind] = {
                    "objects": feed.objects,
                    "appeared": found.appeared,
                    "changed": found.changed,
                    "vanished": found.vanished,
                }
        self._gpus = await count_gpus(self._api)
        await self._stop()
        await self.book.flush(last=True)
        self._finished = True
        return self._write_facts()

    async def _follow(self, feed: Feed) -> None:
        """Follow a kind; one that may be listed and not watched is left out, unless nothing goes without it."""
        try:
            await feed.follow()
        except KubeRefused as refused:
            if feed.watched.needed:
                raise
            self._left_out[feed.kind] = str(refused)
            self.feeds.remove(feed)
            feed.ready.set()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self) -> None:
        """Write what has been stamped once a second, and the facts now and then."""
        turn = 0
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self.book.flush()
            turn += 1
            if turn % _FACTS_EVERY == 0:
                told = self.told()
                # In a thread: a slow disk would make what is read meanwhile late.
                await asyncio.to_thread(lambda facts: update_facts(self._folder, **{FACTS: facts}), told)

    def told(self) -> dict[str, Any]:
        """What ``cluster.json`` has under ``sample``."""
        lost = [each for feed in self.feeds for each in feed.lost]
        told: dict[str, Any] = {
            "times": self._before.get("times", 0) + 1,
            "began_ns": self._before.get("began_ns", self._began_ns),
            "ended_ns": CLIENT.now_ns(),
            "namespace": self.namespace,
            "gpus": self._gpus if self._gpus is not None else self._before.get("gpus"),
            "kinds": {feed.kind: _version_of(feed) for feed in self.feeds},
            "left_out": self._left_out,
            "lines": {feed.kind: feed.lines for feed in self.feeds},
            "gaps": [*self._before.get("gaps", ()), *(each.document() for each in lost if each.relisted)],
            "late": [*self._before.get("late", ()), *(_late(each) for each in lost if not each.relisted)],
            "reconciled": self._reconciled,
            "clock": None,
            "watch_lag_ns": None,
        }
        if self._canary is not None:
            told["clock"] = self._canary.offset.document() or self._before.get("clock")
            told["watch_lag_ns"] = self._canary.lag() or self._before.get("watch_lag_ns")
            if self._canary.refused is not None:
                told["canary"] = self._canary.refused
        return told

    def _write_facts(self) -> dict[str, Any]:
        told = self.told()
        update_facts(self._folder, **{FACTS: told})
        return told


def _hold(folder: Path) -> int:
    """Hold the stamps of a folder: two who wrote them would write everything twice.

    Raises:
        StoreError: another sampling holds them.
    """
    place = folder / STAMPS
    make_folder(place)
    with storing(place):
        return lock_folder(place)


def _earlier(folder: Path) -> dict[str, Any]:
    """What an earlier command wrote under ``sample``."""
    try:
        found = read_facts(folder).get(FACTS)
    except GpusizeError:
        return {}
    return found if isinstance(found, dict) else {}


def _version_of(feed: Feed) -> dict[str, Any]:
    return {"version": feed.watched.resource.api_version, "selector": feed.watched.selector, "objects": feed.objects}


def _late(lost: Lost) -> dict[str, Any]:
    return {"kind": lost.kind, "from": lost.from_ns, "to": lost.to_ns, "why": lost.why}
