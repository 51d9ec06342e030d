"""What one request of a workflow does: call a function on the event loop, call it on a thread, or run a command."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
from typing import TYPE_CHECKING, Any

from gpusize.base.clock import Clock
from gpusize.base.text import said
from gpusize.targets.workflow.command import CommandTemplate, run_command
from gpusize.targets.workflow.function import consume, consume_async, is_asynchronous
from gpusize.targets.workflow.mark_calls import outcome_of, serving
from gpusize.targets.workflow.record import RecordedRequest
from gpusize.targets.workflow.threads import Threads
from gpusize.targets.workflow.trace_ids import trace_id, traceparent

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusize.targets.workflow.llm_proxy import LlmProxy
    from gpusize.workload.dataset import Dataset

__all__ = ["CommandWork", "FunctionWork", "ThreadWork", "Work", "work_of"]


class Work:
    """What requests do; subclasses say how in ``perform``. To be used on the engine's event loop.

    Args:
        dataset: the rows.
        timeout_s: bound on one request.
        proxy: where language models are reached, if their calls are timed there.
        clock: the time of the event loop.
    """

    description = ""
    in_threads = False

    def __init__(self, dataset: Dataset, timeout_s: float, proxy: LlmProxy | None, clock: Clock) -> None:
        self.dataset = dataset
        self.timeout_s = timeout_s
        self._proxy = proxy
        self._clock = clock

    @property
    def proxied(self) -> bool:
        """Whether the proxy times the calls of language models."""
        return self._proxy is not None

    def request(
        self, row: int, due_ns: int, visit: int, seq: int, done: Callable[[RecordedRequest], None], stream: int = 0
    ) -> RecordedRequest:
        """A request that is about to begin."""
        base_url = None if self._proxy is None else self._proxy.base_url(trace_id(visit, seq, stream))
        request = RecordedRequest(row, due_ns, self._clock.now_ns, done, base_url)
        request.values |= {"visit": visit, "seq": seq, "stream": stream}
        return request

    def start(self, request: RecordedRequest) -> asyncio.Task[None]:
        """Begin; the task ends without an exception, the request knows how it went."""
        return asyncio.ensure_future(self._guarded(request))

    async def _guarded(self, request: RecordedRequest) -> None:
        with serving(request.calls):
            request.begin()
            try:
                await self.perform(request)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is how this request ended
                _end(request, error)
        request.end()

    async def perform(self, request: RecordedRequest) -> None:
        """Do it; an exception is how it failed."""
        raise NotImplementedError

    def value(self, request: RecordedRequest) -> Any:
        """The request's own copy of what its row sends."""
        value = self.dataset[request.values["row"]].value
        return value if isinstance(value, str) else copy.deepcopy(value)

    def close(self) -> None:
        """Nothing will be started any more."""


def _end(request: RecordedRequest, error: BaseException) -> None:
    if outcome_of(error) == "cancelled":
        # When the run cancels, the request has ended before. So the workflow did this itself, and has no answer.
        request.fail("api_error", said(error))
    request.end(error)


class FunctionWork(Work):
    """Awaits a function on the event loop."""

    description = "an asynchronous function"

    def __init__(
        self, function: Callable[[Any], Any], dataset: Dataset, timeout_s: float, proxy: LlmProxy | None, clock: Clock
    ) -> None:
        super().__init__(dataset, timeout_s, proxy, clock)
        self._function = function

    async def perform(self, request: RecordedRequest) -> None:  # noqa: D102 - as in the base
        await consume_async(self._function(self.value(request)), request)


class ThreadWork(Work):
    """Calls a function that blocks on a thread. One that ran out of time is left to itself."""

    description = "a function on threads"
    in_threads = True

    def __init__(
        self, function: Callable[[Any], Any], dataset: Dataset, timeout_s: float, proxy: LlmProxy | None, clock: Clock
    ) -> None:
        super().__init__(dataset, timeout_s, proxy, clock)
        self._function = function
        self._threads = Threads(asyncio.get_running_loop())

    async def perform(self, request: RecordedRequest) -> None:  # noqa: D102 - as in the base
        call = functools.partial(contextvars.copy_context().run, self._block, request, self.value(request))
        rest = await self._threads.submit(call)
        if rest is not None:
            await consume_async(rest, request)

    def _block(self, request: RecordedRequest, value: Any) -> Any:
        """On the thread, so that its stamps do not wait for the event loop."""
        request.begin()
        try:
            rest = consume(self._function(value), request)
        except BaseException as error:  # noqa: BLE001 - as in `_guarded`
            _end(request, error)
            return None
        if rest is None:
            request.end()
        return rest

    def close(self) -> None:  # noqa: D102 - as in the base
        self._threads.close()


class CommandWork(Work):
    """Runs a command."""

    description = "a command"

    def __init__(
        self, template: CommandTemplate, dataset: Dataset, timeout_s: float, proxy: LlmProxy | None, clock: Clock
    ) -> None:
        super().__init__(dataset, timeout_s, proxy, clock)
        self._template = template

    async def perform(self, request: RecordedRequest) -> None:  # noqa: D102 - as in the base
        values = request.values
        environment = {"TRACEPARENT": traceparent(values["visit"], values["seq"], values["stream"])}
        if request.calls.llm_base_url is not None:
            environment |= dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), request.calls.llm_base_url)
        await run_command(self._template.words(self.dataset[values["row"]]), request, environment)


def work_of(
    what: Callable[[Any], Any] | CommandTemplate,
    dataset: Dataset,
    timeout_s: float,
    proxy: LlmProxy | None,
    clock: Clock,
) -> Work:
    """The work that a function or a command stands for; to be made on the engine's event loop."""
    if isinstance(what, CommandTemplate):
        return CommandWork(what, dataset, timeout_s, proxy, clock)
    kind = FunctionWork if is_asynchronous(what) else ThreadWork
    return kind(what, dataset, timeout_s, proxy, clock)
