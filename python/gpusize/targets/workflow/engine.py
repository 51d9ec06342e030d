"""Runs a workflow in place of the Rust engine: the same calls, the same records, with Python as the generator.

One thread has an event loop that lives across levels, so that clients which the workflow keeps belong to one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import TargetError, UsageError
from gpusize.base.secrets import without_secrets
from gpusize.base.text import shown
from gpusize.targets.workflow.invoke import work_of
from gpusize.targets.workflow.level import WorkflowLevel
from gpusize.targets.workflow.schedule import Conversations
from gpusize.targets.workflow.trace_ids import NO_VISIT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from gpusize.engine.session import ProbeRecord
    from gpusize.targets.workflow.command import CommandTemplate
    from gpusize.targets.workflow.invoke import Work
    from gpusize.targets.workflow.llm_proxy import LlmProxy
    from gpusize.targets.workflow.record import RecordedRequest
    from gpusize.workload.dataset import Dataset

__all__ = ["WorkflowEngine"]

CLOSE_S: Final = 5.0
MESSAGE_CHARS: Final = 300


class WorkflowEngine:
    """A workflow ready to be loaded, with the interface of ``gpusize.engine.session.Engine``. A context manager.

    Args:
        what: a function of one row, or a command.
        dataset: the rows.
        name: what messages call it.
        timeout_s: bound on one request.
        proxy: times the calls of language models, if there is one; it must be up.
        secrets: words that no message may show.
        clock: what all times of records and schedules are of.
        loop: the event loop; None: a new one. Its time has to pass as the clock's does.
    """

    def __init__(
        self,
        what: Callable[[Any], Any] | CommandTemplate,
        dataset: Dataset,
        *,
        name: str,
        timeout_s: float = 300.0,
        proxy: LlmProxy | None = None,
        secrets: Sequence[str] = (),
        clock: Clock = MACHINE,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._name = name
        self._secrets = secrets
        self._proxy = proxy
        self._residence_ns = 0
        self._conversations: dict[str, Conversations] = {}
        self._levels: list[WorkflowLevel] = []
        self._clock = clock
        self._loop = loop or asyncio.new_event_loop()
        self._queue: asyncio.Queue[WorkflowLevel | None] = asyncio.Queue()
        self._thread = threading.Thread(target=self._drive, name="gpusize-loop", daemon=True)
        self._thread.start()
        try:
            self._work: Work = self._call(_made(what, dataset, timeout_s, proxy, clock))
        except BaseException:
            self.close()
            raise

    def queue(self, plan: Mapping[str, Any], **arrays: bytes) -> WorkflowLevel:
        """Queue one level (a LevelPlan with ``dir``). It starts when the one before it has closed.

        Args:
            plan: the LevelPlan.
            arrays: ``due`` and the like of streams by plan; see docs/reference/engine.md.

        Raises:
            UsageError: the plan has no ``dir`` or is invalid, or the arrays do not fit it.
        """
        if not plan.get("dir"):
            raise UsageError("no folder is given for the records of a workflow", "plan", "give it a dir")
        [load] = plan["load"].values()
        unit = str(load.get("unit") or "request")
        if unit not in self._conversations:
            self._conversations[unit] = Conversations(self._work.dataset.rows, unit)
        level = WorkflowLevel(plan, self._work, self._conversations[unit], self._loop, self._clock, arrays)
        self._levels.append(level)
        self._loop.call_soon_threadsafe(self._queue.put_nowait, level)
        return level

    def probe(self) -> ProbeRecord:
        """Run the first row once, outside every level.

        Raises:
            TargetError: it failed; with its own words, bounded and harmless.
        """
        request = self._call(self._probe())
        values = request.values
        if request.outcome == "ok":
            self._residence_ns = values["end_ns"] - values["sent_ns"]
            return {"outcome": "ok", "status": None, "message": None, "service_ns": self._residence_ns}
        said = shown(without_secrets(" ".join(request.message.split()), self._secrets), MESSAGE_CHARS)
        if request.outcome == "timeout" and said.startswith("no result"):
            raise TargetError(f"the first row got {said}", self._name, "raise --timeout")
        raise TargetError(f"the first row failed: {said or request.outcome}", self._name, "try it on its own first")

    async def _probe(self) -> RecordedRequest:
        request = self._work.request(0, 0, NO_VISIT, 0, lambda _: None)
        running = self._work.start(request)
        done, _ = await asyncio.wait({running}, timeout=self._work.timeout_s)
        if not done:
            request.fail("timeout", f"no result within {self._work.timeout_s:g} s")
            request.end()
            running.cancel()
            await asyncio.wait({running}, timeout=1.0)
        return request

    def close(self) -> None:
        """Cancel what runs and end the event loop; safe to call twice."""
        if self._loop.is_closed():
            return
        for level in self._levels:
            level.stop(0)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, None)
        # A workflow that blocks its loop is left behind: the thread does not keep the process alive.
        self._thread.join(2 * CLOSE_S)
        if self._proxy is not None:
            self._proxy.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine on the loop. Ctrl-C ends the wait, and the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _drive(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._coordinate())
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _coordinate(self) -> None:
        """Levels one after another: one that takes over starts when the one before closed, a burst when it ended."""
        before: tuple[WorkflowLevel, asyncio.Task[None]] | None = None
        running: set[asyncio.Task[None]] = set()
        start_ns: int | None = None
        while (level := await self._queue.get()) is not None:
            closed = level.plan["load"].get("closed")
            if before is not None and closed is not None and (closed.get("start") or "burst") == "burst":
                await asyncio.wait({before[1]})
                start_ns = None
            if before is not None:
                self._residence_ns = before[0].tally.residence_ns or self._residence_ns
            level.residence_hint_ns = self._residence_ns
            task = asyncio.ensure_future(level.run(None if before is None else before[0], start_ns))
            running.add(task)
            task.add_done_callback(running.discard)
            await level.closed.wait()
            before = level, task
            start_ns = None if self._queue.empty() else level.hands_over_ns
        if running:
            await asyncio.wait(running, timeout=CLOSE_S)

    async def _end(self) -> None:
        """Everything of the workflow's that is still there is cancelled, and has a while for it."""
        if hasattr(self, "_work"):
            self._work.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CLOSE_S)
        await self._loop.shutdown_asyncgens()


async def _made(
    what: Callable[[Any], Any] | CommandTemplate,
    dataset: Dataset,
    timeout_s: float,
    proxy: LlmProxy | None,
    clock: Clock,
) -> Work:
    return work_of(what, dataset, timeout_s, proxy, clock)
