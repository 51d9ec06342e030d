"""The passing through: one connection of a client, its requests to the language model and the answers back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import httpx

from gpusize.targets.workflow.proxy.responses import ResponseReader
from gpusize.targets.workflow.trace_ids import key_of, key_of_traceparent

__all__ = ["Proxy"]

READ_BYTES: Final = 1 << 16
TURN_S: Final = 0.005
TURNS: Final = 50
"""Of the event loop: far more than it takes to put away a call whose client has all of its answer."""
CONNECT_S: Final = 10.0
_ROUTE: Final = re.compile(r"/r/([0-9a-f]{32})(/.*)?")
# Each hop has its own of these; the body is passed on as it is, so it has to come in a form that can be read along.
_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host")
)
_NOT_LLM: Final = ("/embeddings", "/rerank", "/tokenize", "/moderations")


@dataclass
class _Exchange:
    """One request on its way."""

    path: str
    method: str
    key: tuple[int, int, int] | None
    start_ns: int
    facts: dict[str, Any] = field(default_factory=dict)
    outcome: str = "truncated"
    relay_ns: int = 0
    end_ns: int | None = None


class Proxy:
    """Passes requests on to one origin.

    Args:
        origin: scheme, host and port of the language model's server.
        report: is told of every call that has ended.
        client: sends the requests.
    """

    def __init__(self, origin: str, report: Callable[[dict[str, Any]], None], client: httpx.AsyncClient) -> None:
        self._origin = httpx.URL(origin)
        self._report = report
        self._client = client
        self.open = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes."""
        connection = _Connection(reader, writer)
        try:
            while (head := await connection.head()) is not None:
                await self._exchange(connection, head)
                if not connection.again():
                    break
        except (ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # the client has gone, or was never one; what it had begun has been reported
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def settled(self) -> None:
        """Return when every call has ended, or when those that have not go on: their clients wait for more.

        A client may have all of an answer, and its request may be over, before the call has been put away and told.
        """
        for _ in range(TURNS):
            if not self.open:
                return
            await asyncio.sleep(TURN_S)

    async def _exchange(self, connection: _Connection, head: h11.Request) -> None:
        path, key = _route(head)
        exchange = _Exchange(path, head.method.decode("ascii"), key, time.monotonic_ns())
        self.open += 1
        relay = asyncio.ensure_future(self._relay(connection, head, exchange))
        gone = asyncio.ensure_future(connection.gone())
        try:
            await asyncio.wait({relay, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not relay.done():
                raise ConnectionResetError
            relay.result()
        finally:
            for each in (relay, gone):
                each.cancel()
            await asyncio.gather(relay, gone, return_exceptions=True)
            self.open -= 1
            self._tell(exchange)

    async def _relay(self, connection: _Connection, head: h11.Request, exchange: _Exchange) -> None:
        url = self._origin.copy_with(raw_path=exchange.path.encode("ascii"))
        headers = [(name, value) for name, value in head.headers if name not in _HOP and name != b"accept-encoding"]
        headers.append((b"accept-encoding", b"identity"))
        framed = any(name in (b"content-length", b"transfer-encoding") for name, _ in head.headers)
        request = httpx.Request(exchange.method, url, headers=headers, content=connection.body() if framed else None)
        if not framed:
            await connection.skip_body()
        exchange.relay_ns = time.monotonic_ns() - exchange.start_ns
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            exchange.outcome = "timeout" if isinstance(error, httpx.TimeoutException) else "connect_error"
            await connection.refuse(f"the language model's server cannot be reached: {type(error).__name__}")
            return
        try:
            await self._answer(connection, answer, exchange)
        except httpx.HTTPError:
            exchange.outcome = "truncated"
            raise ConnectionResetError from None
        finally:
            await answer.aclose()

    async def _answer(self, connection: _Connection, answer: httpx.Response, exchange: _Exchange) -> None:
        reading = ResponseReader(answer.headers.get("content-type", ""))
        kept = [(name, value) for name, value in answer.headers.raw if name.lower() not in _HOP]
        await connection.send(h11.Response(status_code=answer.status_code, headers=kept, reason=b""))
        exchange.facts["status"] = answer.status_code
        first, now_ns = True, time.monotonic_ns()
        async for piece in answer.aiter_raw():
            now_ns = time.monotonic_ns()
            await connection.send(h11.Data(data=piece))
            if first:
                exchange.relay_ns += time.monotonic_ns() - now_ns
                first = False
            reading.feed(piece, now_ns)
        # A client that was told the length is done with the last piece, any other one with the end of the message.
        exchange.end_ns = now_ns if "content-length" in answer.headers else time.monotonic_ns()
        await connection.send(h11.EndOfMessage())
        reading.end()
        exchange.facts |= {
            "model": reading.model,
            "first_token_ns": reading.first_token_ns,
            "tokens_in": reading.tokens_in,
            "tokens_out": reading.tokens_out,
        }
        good = answer.status_code < 400
        exchange.outcome = ("api_error" if reading.failed else "ok") if good else "http_error"

    def _tell(self, exchange: _Exchange) -> None:
        plain = exchange.path.partition("?")[0]
        if exchange.method != "POST":
            return  # lists of models and health checks are nobody's calls
        self._report(
            {
                "key": exchange.key,
                "kind": "other" if plain.endswith(_NOT_LLM) else "llm",
                "name": exchange.facts.pop("model", None) or plain[-200:],
                "start_ns": exchange.start_ns,
                "end_ns": exchange.end_ns or time.monotonic_ns(),
                "outcome": exchange.outcome,
                "relay_ns": exchange.relay_ns,
                **exchange.facts,
            }
        )


def _route(head: h11.Request) -> tuple[str, tuple[int, int, int] | None]:
    """The path to ask for, and the request that the call belongs to: by the path's prefix, else by traceparent."""
    target = head.target.decode("ascii", "replace")
    found = _ROUTE.fullmatch(target)
    if found is not None:
        return found[2] or "/", key_of(found[1])
    parent = next((value for name, value in head.headers if name == b"traceparent"), b"")
    return target, key_of_traceparent(parent.decode("ascii", "replace"))


class _Connection:
    """A client's connection: h11 for the bytes, asyncio for their coming and going."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=READ_BYTES)
        self._body_read = asyncio.Event()

    async def _event(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(READ_BYTES))

    async def head(self) -> h11.Request | None:
        """The next request, None when there is none any more."""
        self._body_read.clear()
        event = await self._event()
        return event if isinstance(event, h11.Request) else None

    async def body(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it comes."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)
        self._body_read.set()

    async def skip_body(self) -> None:
        """Step over a body that is not there."""
        async for _ in self.body():
            pass

    async def gone(self) -> None:
        """Return when the client has closed its side after its request."""
        await self._body_read.wait()
        while data := await self._reader.read(READ_BYTES):
            # The beginning of its next request: kept until this one has been answered.
            self._http.receive_data(data)

    async def send(self, event: Any) -> None:
        """Send a piece of the answer; waits while the client does not read."""
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def refuse(self, message: str) -> None:
        """An answer of our own, in the shape of the API's errors."""
        body = json.dumps({"error": {"message": f"gpusize: {message}", "type": "proxy_error"}}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        await self.send(h11.Response(status_code=502, headers=headers, reason=b""))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    def again(self) -> bool:
        """Whether the connection can take one more request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True
