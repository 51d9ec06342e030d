"""Requests over kept connections at little cost: what a load generator sends must not wait for itself.

A request through a general client costs about five times as much as the rest of a submission. Here h11 reads and writes
HTTP, asyncio the sockets, and nothing else is done: no redirects, no cookies, no compression, no proxies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import h11

__all__ = ["Wire"]

_MOST_HEADERS: Final = 64 * 1024

Headers = Sequence[tuple[bytes, bytes]]


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEADERS)
        self._answer: asyncio.Future[tuple[int, Headers, bytes]] | None = None
        self._head: h11.Response | None = None
        self._body: list[bytes] = []
        self._transport: asyncio.BaseTransport | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, method: bytes, target: bytes, headers: Headers, body: bytes) -> asyncio.Future[Any]:
        """Send a request; the future has status, headers and body of its answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._head, self._body = None, []
        head = self._http.send(h11.Request(method=method, target=target, headers=list(headers)))
        content = self._http.send(h11.Data(data=body)) if body else b""
        end = self._http.send(h11.EndOfMessage())
        cast("asyncio.Transport", self._transport).write(b"".join(part for part in (head, content, end) if part))
        return self._answer

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as problem:
            self._fail(ConnectionError(f"this is no HTTP: {problem}"))

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, problem: Exception | None) -> None:
        self._fail(problem or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """End it at once; what was asked is not answered any more."""
        self.usable = False
        if self._transport is not None:
            cast("asyncio.Transport", self._transport).abort()

    def _read(self) -> None:
        while True:
            event = self._http.next_event()
            kind = type(event)
            if kind is h11.Response:
                self._head = cast("h11.Response", event)
            elif kind is h11.Data:
                self._body.append(bytes(cast("h11.Data", event).data))
            elif kind is h11.EndOfMessage:
                self._end()
                return
            elif kind is h11.ConnectionClosed:
                self._fail(ConnectionError("the server closed the connection"))
                return
            elif event is h11.NEED_DATA or event is h11.PAUSED:
                return

    def _end(self) -> None:
        head = cast("h11.Response", self._head)
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((head.status_code, list(head.headers), b"".join(self._body)))

    def _fail(self, problem: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(problem)


class Wire:
    """Kept connections to one server.

    Args:
        server: its address, ``http://`` or ``https://``.
        tls: checks its certificate and holds ours.
    """

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        url = urlsplit(server)
        self._tls = tls if url.scheme == "https" else None
        self._host = url.hostname or "localhost"
        self._port = url.port or (443 if self._tls else 80)
        self._prefix = url.path.rstrip("/").encode()
        self._host_header = url.netloc.rpartition("@")[2].encode()
        self._idle: list[_Connection] = []

    async def ask(self, method: str, path: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """Send one request and take its answer: status, headers (names in lower case), body.

        Raises:
            OSError: no connection, or it ended before the answer had come.
        """
        connection = self._kept() or await self._open()
        everything = [(b"Host", self._host_header), *headers, (b"Content-Length", b"%d" % len(body))]
        answer = None
        try:
            future = connection.ask(method.encode(), self._prefix + path.encode(), everything, body)
            answer = cast("tuple[int, Headers, bytes]", await future)
        finally:
            if answer is None:
                connection.close()
            elif connection.usable:
                self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _open(self) -> _Connection:
        name = self._host if self._tls is not None else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._tls, server_hostname=name
        )
        return connection
