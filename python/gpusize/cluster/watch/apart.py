"""Watching in a process of its own, so that what submits, or moves pods, makes no watch late.

A watch's times are taken by whoever reads it. In a process whose interpreter is busy they would be late by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base import errors
from gpusize.base.child_process import Child
from gpusize.base.errors import GpusizeError, TargetError
from gpusize.cluster.access.api import connect
from gpusize.cluster.watch.sample import submitted
from gpusize.cluster.watch.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gpusize.cluster.watch.progress import Until

__all__ = ["WatchingApart"]

_MODULE: Final = "gpusize.cluster.watch.apart"
_TELL_S: Final = 1.0
_FINISH: Final = "finish"


class WatchingApart:
    """`gpusize.cluster.watch.watching.Watching` in a process of its own. To be used as ``async with``.

    Args:
        folder: of the test.
        kinds: version and kind of what is submitted, such as ``("batch/v1", "Job")``.
        selector: the run's id, where objects have its label; None to take all of the namespace.
        namespace: where they are; the context's own by default.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        canary: whether to write a Lease of our own, for clock and lag.
        until: how far the workloads are to be for `reached`.

    Attributes:
        told: what it said last: ``pods``, ``ready``, ``ended``, ``lines`` and ``gaps``, as counts.
    """

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[tuple[str, str]],
        selector: str | None,
        *,
        namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        canary: bool = True,
        until: Until | None = None,
    ) -> None:
        self.told: dict[str, int] = {}
        self._asked = {
            "folder": str(folder),
            "kinds": [list(each) for each in kinds],
            "selector": selector,
            "namespace": namespace,
            "kubeconfig": kubeconfig,
            "context": context,
            "canary": canary,
            "until": until,
        }
        self._ready = asyncio.Event()
        self._reached = asyncio.Event()
        self._facts: dict[str, Any] | None = None
        self._problem: GpusizeError | None = None
        self._child: Child | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._child = await asyncio.to_thread(Child, [_MODULE, json.dumps(self._asked)])
        self._hearing = asyncio.create_task(self._hear(self._child))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it end. What it has seen is written down, also without `finish`."""
        if self._child is not None and self._hearing is not None:
            if self._facts is None and self._problem is None:
                self._child.tell(_FINISH)
            with contextlib.suppress(GpusizeError):
                await self._hearing
            await asyncio.to_thread(self._child.end)
            self._child.close()

    async def ready(self) -> None:
        """Until every watch is open.

        Raises:
            UsageError, TargetError, StoreError: it cannot be.
        """
        await self._event(self._ready)

    async def reached(self) -> None:
        """Until all workloads that the folder knows as submitted are as far as ``until`` says.

        Raises:
            TargetError, StoreError: it ended before.
        """
        await self._event(self._reached)

    async def finish(self) -> dict[str, Any]:
        """List everything once more, stamp what no watch had told, and close.

        Returns:
            What ``cluster.json`` has under ``sample``.

        Raises:
            TargetError, StoreError: it ended before.
        """
        if self._child is not None and self._hearing is not None:
            self._child.tell(_FINISH)
            await self._hearing
        self.check()
        return self._facts or {}

    def check(self) -> None:
        """Raise what it has ended with."""
        if self._problem is not None:
            raise self._problem

    async def _event(self, event: asyncio.Event) -> None:
        waits = asyncio.create_task(event.wait())
        ends: list[asyncio.Task[Any]] = [waits, *([self._hearing] if self._hearing is not None else [])]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
        self.check()

    async def _hear(self, child: Child) -> None:
        while (said := await asyncio.to_thread(child.read)) is not None:
            if "problem" in said:
                kind = getattr(errors, said["problem"], TargetError)
                self._problem = kind(said["what"], said["where"], said["todo"])
            elif "facts" in said:
                self._facts = said["facts"]
            elif said.get("state") == "ready":
                self._ready.set()
            elif said.get("state") == "reached":
                self._reached.set()
            else:
                self.told = said
        if self._facts is None and self._problem is None:
            words = await asyncio.to_thread(child.last_words)
            self._problem = TargetError(f"the process that watches ended: {words[-500:]}", _MODULE, None)


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _serve(asked: dict[str, Any]) -> None:
    """Watch until the standard input says so, or closes: whoever asked is gone, and what was seen is kept."""
    folder = Path(asked["folder"])
    kinds = [(str(version), str(kind)) for version, kind in asked["kinds"]]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    over = asyncio.create_task(reader.readline())
    async with (
        connect(asked["kubeconfig"], asked["context"]) as api,
        Watching(
            api, folder, kinds, asked["selector"], namespace=asked["namespace"], canary=asked["canary"]
        ) as watching,
    ):
        await watching.ready()
        _say(state="ready")
        reached = asked["until"] is None
        while not over.done():
            await asyncio.wait({over}, timeout=_TELL_S)
            watching.check()
            progress, feeds = watching.progress, watching.feeds
            _say(
                pods=progress.pods,
                ready=progress.count("ready"),
                ended=progress.count("ended"),
                lines=sum(feed.lines for feed in feeds),
                gaps=sum(each.relisted for feed in feeds for each in feed.lost),
            )
            if not reached:
                still, expected = await asyncio.to_thread(submitted, folder)
                reached = bool(expected) and not still and watching.done(asked["until"], expected)
                if reached:
                    _say(state="reached")
        _say(facts=await watching.finish())


def main() -> None:
    """``python -m gpusize.cluster.watch.apart JSON``."""
    try:
        asyncio.run(_serve(json.loads(sys.argv[1])))
    except GpusizeError as error:
        named = type(error).__name__
        kind = named if hasattr(errors, named) else "TargetError"
        with contextlib.suppress(OSError):
            _say(problem=kind, what=error.what, where=error.where, todo=error.todo)


if __name__ == "__main__":
    main()
