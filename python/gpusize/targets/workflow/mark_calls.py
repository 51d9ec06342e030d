"""Marks the calls inside a request, from within the workflow.

    with gpusize.call("llm", name="chat") as call:
        for piece in ask(question):
            call.token()
        call.usage(tokens_in=120, tokens_out=40)

The request is found by a context variable, so it works in tasks, in ``asyncio.to_thread`` and wherever else the context
is handed on. A bare thread starts with an empty context: there, and outside any request, a call is measured for nobody.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar, cast

from gpusize.base.errors import UsageError
from gpusize.base.text import well_formed
from gpusize.engine.session import monotonic_ns

__all__ = ["Call", "RequestCalls", "call", "llm_base_url", "outcome_of", "serving"]

NAME_CHARS: Final = 200

_F = TypeVar("_F", bound=Callable[..., Any])


def outcome_of(error: BaseException) -> str:
    """The outcome that an exception stands for; one that says nothing about the transport is an ``api_error``."""
    import ssl

    try:
        return _outcome_of(error, ssl.SSLError)
    except Exception:  # noqa: BLE001 -- one whose class cannot even be asked for says nothing either
        return "api_error"


def _outcome_of(error: BaseException, of_tls: type[BaseException]) -> str:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return "cancelled"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, of_tls):
        return "tls_error"
    if isinstance(error, ConnectionError):
        return "connect_error"
    return "api_error"


class RequestCalls:
    """The calls of one request, in the order of their starts. May be used from any thread.

    Args:
        clock: nanoseconds; the clock of the request's stamps.
        llm_base_url: where this request finds its language model, when that is not its own configuration.
    """

    def __init__(self, clock: Callable[[], int] = monotonic_ns, llm_base_url: str | None = None) -> None:
        self.clock = clock
        self.llm_base_url = llm_base_url
        self._calls: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def begin(self, kind: str, name: str) -> dict[str, Any]:
        """A new call that starts now: the row of the calls table that it fills."""
        row: dict[str, Any] = {"kind": kind, "name": name, "end_ns": None, "outcome": None}
        with self._lock:
            row["call"] = len(self._calls)
            row["start_ns"] = self.clock()
            self._calls.append(row)
        return row

    def rows(self, outcome: str) -> list[dict[str, Any]]:
        """The calls so far. One that has not ended shares the request's failure; if that went well, it is truncated.

        Args:
            outcome: how the request ended.
        """
        with self._lock:
            calls = [dict(row) for row in self._calls]
        for row in calls:
            if row["outcome"] is None:
                row["outcome"] = "truncated" if outcome == "ok" else outcome
        return calls


_CURRENT: contextvars.ContextVar[RequestCalls | None] = contextvars.ContextVar("gpusize_request", default=None)
_DEFAULT_BASE_URL: list[str | None] = [None]


class Call:
    """One call inside a request; a context manager, plain or asynchronous, and a decorator. Made by ``call``."""

    def __init__(self, kind: str, name: str, request: RequestCalls | None = None) -> None:
        self._kind = kind
        self._name = name
        self._given = request
        self._request: RequestCalls | None = None
        self._row: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._request = self._given or _CURRENT.get()
        self._row = {} if self._request is None else self._request.begin(self._kind, self._name)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._request is None:
            return
        self._row["outcome"] = self._row["outcome"] or ("ok" if error is None else outcome_of(error))
        self._row["end_ns"] = self._request.clock()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: _F) -> _F:
        """As a decorator: each call of ``function`` is one of these."""
        name = self._name or function.__qualname__
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured(*args: Any, **kwargs: Any) -> Any:
                with Call(self._kind, name, self._given):
                    return await function(*args, **kwargs)

            return cast("_F", measured)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with Call(self._kind, name, self._given):
                return function(*args, **kwargs)

        return cast("_F", timed)

    def token(self) -> None:
        """A piece of content is here; the first one is kept."""
        if self._request is not None and "first_token_ns" not in self._row:
            self._row["first_token_ns"] = self._request.clock()

    def usage(self, *, tokens_in: int | None = None, tokens_out: int | None = None) -> None:
        """Set what the server reported.

        Raises:
            UsageError: a count that is no whole number of 0 or more.
        """
        given: dict[str, Any] = {"tokens_in": tokens_in, "tokens_out": tokens_out}
        for name, value in given.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
                raise UsageError(f"{name} is {value!r}", "call", "give a whole number of tokens")
            self._row[name] = value

    def fail(self, outcome: str = "api_error") -> None:
        """Say how the call failed, when it does so without an exception.

        Raises:
            UsageError: ``outcome`` is none of the names in docs/reference/records.md.
        """
        from gpusize.records.schema import OUTCOMES

        if outcome not in OUTCOMES:
            raise UsageError(f"{outcome!r} is not an outcome", "call", f"known are {', '.join(OUTCOMES)}")
        self._row["outcome"] = outcome


def call(kind: str = "llm", *, name: str = "") -> Call:
    """Mark a call inside a request, so that it is timed as a row of the calls table. Outside a request nothing happens.

    Args:
        kind: ``llm`` for what ``llm_latency`` counts, ``tool``, or a word of your own.
        name: which of the workflow's calls it is.

    Raises:
        UsageError: an empty kind, or a kind or name that is no text.
    """
    if not kind:
        raise UsageError("a call without a kind", "call", "name it, as in call('llm')")
    if any(not isinstance(text, str) for text in (kind, name)):
        raise UsageError("kind and name of a call are texts", "call", "write them as in call('tool', name='search')")
    return Call(well_formed(kind)[:NAME_CHARS], well_formed(name)[:NAME_CHARS])


def llm_base_url() -> str | None:
    """The address of the LLM proxy as this request has to use it, for a client's ``base_url``.

    Outside a request the proxy's plain address. None without ``--llm-proxy``, which leaves a client to its own default.
    """
    current = _CURRENT.get()
    own = None if current is None else current.llm_base_url
    return own or _DEFAULT_BASE_URL[0]


class serving:  # noqa: N801 - used like a function
    """While the block runs, calls in this context belong to ``request``."""

    def __init__(self, request: RequestCalls) -> None:
        self._request = request
        self._token: contextvars.Token[RequestCalls | None] | None = None

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._request)

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _CURRENT.reset(token)
        except ValueError:
            # Entered in one context and left in another, which has no value to be put back.
            return


def set_default_base_url(url: str | None) -> None:
    """What ``llm_base_url`` says outside a request, while a proxy is up."""
    _DEFAULT_BASE_URL[0] = url
