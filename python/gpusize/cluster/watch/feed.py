"""One kind of object, followed: a list, a watch from there on, and after whatever breaks it again one of the two.

A watch that is asked to go on from the version of its last line misses nothing, however long it was away: what it tells
then is only late. Where the server has forgotten that version (410), a list shows what is there now. What had come and
gone in between no one can tell; the time that it may have happened in is a *gap*, and the folder says so.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize._core import ObjectList
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import Broken, open_lines
from gpusize.cluster.clock import CLIENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gpusize.cluster.access.api import KubeApi
    from gpusize.cluster.watch.kinds import Watched
    from gpusize.cluster.watch.stamp_book import StampBook

__all__ = ["Feed", "Lost"]

_PAGE: Final = 500
_WATCH_S: Final = (240, 300)
_SILENT_S: Final = 30.0
"""Added to the time that a watch was asked to last: after it a connection without a byte is taken for dead."""
_PAUSE_S: Final = (0.05, 5.0)
_LATE_NS: Final = 100_000_000
"""After a longer pause, what comes first had happened meanwhile."""
_CATCH_UP_NS: Final = 1_000_000_000
_FAILED: Final = 3
_SOON_S: Final = 5.0
"""After so many watches in a row that were opened, and broke this soon without a line, a list begins anew."""
_LOOK_S: Final = 0.02
_NAMED: Final = 100
_PARTIAL: Final = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_JSON: Final = "application/json"


class _Expired(Exception):
    """The server no longer knows the version that the watch was to go on from."""


@dataclass
class Lost:
    """A time for which the watch was away.

    Attributes:
        kind: what was watched.
        from_ns, to_ns: from its last line to the list, or to the new watch, by our clock.
        why: what had happened.
        relisted: a list took its place, so that something may be missing; else all was told, only later.
        appeared, changed, vanished: how many objects the list has that were unknown, in another version, or not any
            more. Names of the first and the last kind, as far as there are not too many.
    """

    kind: str
    from_ns: int
    to_ns: int
    why: str
    relisted: bool
    appeared: int = 0
    changed: int = 0
    vanished: int = 0
    appeared_names: list[str] = field(default_factory=list)
    vanished_names: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As ``cluster.json`` has it."""
        return {"from": self.from_ns, "to": self.to_ns} | {
            name: value for name, value in vars(self).items() if name not in ("from_ns", "to_ns")
        }


class Feed:
    """Follows one kind.

    Args:
        api: the server.
        watched: the kind, and which of its objects.
        namespace: where they are.
        book: what is told what they say.
    """

    def __init__(self, api: KubeApi, watched: Watched, namespace: str, book: StampBook) -> None:
        self.kind = watched.resource.kind
        self.watched = watched
        self.ready = asyncio.Event()
        self.lost: list[Lost] = []
        self.lines = 0
        self.last_ns = CLIENT.now_ns()
        self._api = api
        self._book = book
        self._path = watched.resource.path(namespace)
        self._select = {"labelSelector": watched.selector} if watched.selector else {}
        self._version = ""
        self._stream_lists = True
        self._opened = False
        self._broke_ns = 0
        self._late_until = 0

    @property
    def objects(self) -> int:
        """How many objects there are, as far as known."""
        return self._book.objects(self.kind)

    async def follow(self) -> None:
        """Until it is cancelled.

        Raises:
            KubeRefused: the server refuses to list or watch this kind, from the beginning.
        """
        pause, failed, why = _PAUSE_S[0], 0, ""
        loop = asyncio.get_running_loop()
        while True:
            lines, begun_s, self._opened = self.lines, loop.time(), False
            try:
                if self.ready.is_set() and (not self._version or failed >= _FAILED):
                    await self._list_again(why)
                    failed = 0
                elif not self.ready.is_set() and not self._stream_lists:
                    await self.list_once()
                await self._watch(why)
                why = "the server ended the watch, as it does now and then"
                if loop.time() - begun_s >= _SOON_S or self.lines > lines:
                    pause, failed = _PAUSE_S[0], 0
                    continue
            except KubeRefused as refused:
                if refused.status in (401, 403, 404) and not self.ready.is_set():
                    raise
                why, pause = self._why(refused), max(pause, refused.retry_after_s or 0.0)
            except (_Expired, OSError) as problem:
                why = self._why(problem)
            if self.lines > lines:
                pause, failed = _PAUSE_S[0], 0
            elif self._opened and loop.time() - begun_s < _SOON_S:
                failed += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _PAUSE_S[1])

    def _why(self, problem: Exception) -> str:
        """What has happened, in words; a version that the server has forgotten is not asked for again."""
        if isinstance(problem, _Expired) or (isinstance(problem, KubeRefused) and problem.status == 410):
            self._version = ""
        return problem.what if isinstance(problem, Broken) else str(problem)

    async def reconcile(self, patience_s: float = 2.0) -> Lost:
        """List once more and hold what the watch told against it; what it has not told by then is stamped as found.

        Args:
            patience_s: how long the watch has to catch up with the list.

        Raises:
            KubeRefused, TargetError: it cannot be listed.
        """
        from_ns = self.last_ns
        listing = await self._list()
        listed_ns = CLIENT.now_ns()
        for _ in range(round(patience_s / _LOOK_S)):
            if not self._book.differs(listing):
                break
            await asyncio.sleep(_LOOK_S)
        return self._compare(listing, Lost(self.kind, from_ns, listed_ns, "the last list", relisted=True))

    async def list_once(self) -> None:
        """List, and take what is there.

        Raises:
            KubeRefused, TargetError: it cannot be listed.
        """
        listing = await self._list()
        self._version = listing.version
        self._compare(listing, Lost(self.kind, 0, CLIENT.now_ns(), "", relisted=True))
        self.ready.set()

    async def _list_again(self, why: str) -> None:
        """A list in place of what the watch may have missed."""
        from_ns = self.last_ns
        listing = await self._list()
        self._version = listing.version
        self.lost.append(self._compare(listing, Lost(self.kind, from_ns, CLIENT.now_ns(), why, relisted=True)))
        self.last_ns = CLIENT.now_ns()
        self._broke_ns = 0

    async def _list(self) -> ObjectList:
        params = {"limit": str(_PAGE), **self._select}
        accept = f"{_JSON};{_PARTIAL.format('List')},{_JSON}" if self.watched.bare else _JSON
        listing = ObjectList(self.kind)
        while True:
            answer = await self._api.ask("GET", self._path, params=params, accept=accept)
            if answer.status == 410 and "continue" in params:  # the pages took longer than the server keeps versions
                params = {"limit": str(_PAGE), **self._select}
                listing = ObjectList(self.kind)
                continue
            if answer.status >= 400:
                raise KubeRefused.answered(answer.status, answer.body, f"GET {self._path}", answer.retry_after_s)
            try:
                onward = listing.add_page(answer.body)
            except ValueError as problem:
                raise Broken(f"the answer to GET {self._path} is no list of {self.kind}: {problem}") from problem
            if onward is None:
                return listing
            params = {**params, "continue": onward}

    def _compare(self, listing: ObjectList, lost: Lost) -> Lost:
        """Take what a list has, and count what nobody had told."""
        appeared, lost.changed, vanished = self._book.compare(listing, lost.to_ns)
        lost.appeared, lost.appeared_names = len(appeared), appeared[:_NAMED]
        lost.vanished, lost.vanished_names = len(vanished), vanished[:_NAMED]
        return lost

    async def _watch(self, why: str) -> None:
        """One watch, from its request to its end.

        Raises:
            _Expired: the server no longer knows the version.
            KubeRefused, Broken: it broke.
        """
        lasts_s = random.randint(*_WATCH_S)
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(lasts_s), **self._select}
        initial = not self._version
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            params["resourceVersion"] = self._version
        accept = f"{_JSON};{_PARTIAL.format('')},{_JSON}" if self.watched.bare else _JSON
        opened = open_lines(self._api.access, self._path, params, silent_s=lasts_s + _SILENT_S, accept=accept)
        try:
            async with opened as lines:
                self._opened = True
                self._went_on(why)
                await self._take_lines(lines, initial=initial)
        except KubeRefused as refused:
            if not initial or refused.status not in (400, 422):
                raise
            self._stream_lists = False  # an older server: it lists first

    def _went_on(self, why: str) -> None:
        """Take note that a watch goes on where another one ended, and since when there was none."""
        now = CLIENT.now_ns()
        self._late_until = 0
        if self._broke_ns and now - self._broke_ns > _LATE_NS:
            self.lost.append(Lost(self.kind, self._broke_ns, now, why, relisted=False))
            self._late_until = now + _CATCH_UP_NS
        self._broke_ns = 0

    async def _take_lines(self, reads: AsyncIterator[tuple[int, bytes]], *, initial: bool) -> None:
        try:
            async for at_ns, lines in reads:
                late = at_ns <= self._late_until
                told = self._book.take_lines(self.kind, lines, at_ns, initial=initial, late=late)
                self.lines += told.taken
                if told.version is not None:
                    self._version = told.version
                if initial and not told.initial:
                    self.ready.set()
                initial = told.initial
                if told.ended is not None:
                    self._broken_off(told.ended, initial=initial)
                self.last_ns = at_ns
        finally:
            if initial:
                # It broke before all objects were told: what had come is no version to go on from.
                self._version = ""
            elif not self._broke_ns:
                self._broke_ns = CLIENT.now_ns()

    def _broken_off(self, ended: tuple[int, str, str] | str, *, initial: bool) -> None:
        """Raise what has ended a watch: an error's code, reason and message, or what is wrong with a line."""
        if isinstance(ended, str):
            raise Broken(f"a line is no object: {ended}")
        code, reason, message = ended
        if initial:
            self._stream_lists = False  # some servers accept the question and cannot answer it
        if code == 410:
            raise _Expired(f"410 {reason}: {message}")
        raise Broken(f"{code} {reason}: {message}")
