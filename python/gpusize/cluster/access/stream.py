"""Watches over a connection of their own: HTTP/1.1 with a chunked body, each read stamped before it is looked at.

httpx2 takes every chunk through several layers of Python, and an API server sends one chunk for each event: that alone
takes more time than everything else we do with it (``make bench-cluster-watch``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from gpusize._core import ChunkedBody
from gpusize.base.errors import TargetError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.clock import CLIENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from gpusize.cluster.access.sign_in import Access

__all__ = ["BodyReader", "Broken", "open_lines"]

_CONNECT_S: Final = 30.0
_MOST_BYTES: Final = 8 << 20
"""Of what has come and waits to be looked at; beyond it the connection is left to fill up."""
_ERROR_BYTES: Final = 1 << 20


class Broken(TargetError):
    """A connection broke off, or what came over it is no watch."""


class BodyReader:
    """From the bytes of one answer to those of its body, whichever way they were cut.

    Attributes:
        status: of HTTP; 0 until the head has come.
        headers: names in lower case.
        ended: whether the body came to its end in order.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._rest = b""
        self._left: int | None = None  # bytes of the body to come; None where only the end of the connection says
        self._chunks: ChunkedBody | None = None

    @property
    def begun(self) -> bool:
        """Whether the head has come."""
        return self.status > 0

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in ``data``, and in what was left over before it.

        Raises:
            Broken: it is no HTTP.
        """
        if not self.begun:
            after = self._head(self._rest + data)
            if after is None:
                self._rest += data
                return b""
            self._rest, data = b"", after
        if self._chunks is not None:
            return self._unchunked(self._chunks, data)
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.ended = self._left == 0
        return data

    def close(self) -> bool:
        """Take note that the connection has ended: without a length that is the body's end. Whether it is."""
        self.ended |= self.begun and self._chunks is None and self._left is None
        return self.ended

    def _head(self, data: bytes) -> bytes | None:
        """Read the head; what comes after it, or None where it is not all there."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > 1 << 16:
                raise Broken("the answer has no head of HTTP")
            return None
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Broken("the answer is not HTTP/1.1")
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        self.status = int(words[1])
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._chunks = ChunkedBody()
        length = self.headers.get("content-length")
        if self._chunks is None and length is not None:
            if not length.isdigit():
                raise Broken("the answer's length is no number")
            self._left = int(length)
            self.ended = self._left == 0
        return data[end + 4 :]

    def _unchunked(self, chunks: ChunkedBody, data: bytes) -> bytes:
        try:
            body = chunks.feed(data)
        except ValueError as problem:
            raise Broken(str(problem)) from None
        self.ended = chunks.ended
        return body


class _Reads(asyncio.Protocol):
    """Stamps what is read, and keeps it until somebody takes it."""

    def __init__(self) -> None:
        self.reads: deque[tuple[int, bytes]] = deque()
        self.held = 0
        self.problem: str | None = None
        self.came = asyncio.Event()
        self._transport: Any = None
        self._paused = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.reads.append((CLIENT.now_ns(), data))
        self.held += len(data)
        if self.held > _MOST_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self.came.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.problem = str(error) if error else "the server closed the connection"
        self.came.set()

    def take(self) -> tuple[int, bytes] | None:
        """The earliest read that nobody has taken."""
        if not self.reads:
            return None
        stamped = self.reads.popleft()
        self.held -= len(stamped[1])
        if self._paused and self.held < _MOST_BYTES // 2:
            self._paused = False
            self._transport.resume_reading()
        return stamped


@contextlib.asynccontextmanager
async def open_lines(
    access: Access, path: str, params: Mapping[str, str], *, silent_s: float, accept: str = "application/json"
) -> AsyncIterator[AsyncIterator[tuple[int, bytes]]]:
    """Ask for a watch; its lines as they come, those of one read together.

    Args:
        access: where the server is, and who asks.
        path: on the server.
        params: of the query.
        silent_s: after so many seconds without a byte the connection is taken for dead.
        accept: what is asked for.

    Yields:
        Pairs: when it was read, in ns by our clock, and the lines that were completed by it, each with its end. They
        end where the server ends the answer in order.

    Raises:
        KubeRefused: the server refused it.
        Broken: no answer came, or it broke off, in the middle of a line for instance; lines until then have come.
    """
    target = _target(access, path, params)
    for tried in range(2):
        headers, flow = await _signed(access, target)
        reads, transport = await _connect(access)
        try:
            transport.write(_request(access, target, headers, accept))
            body, pieces = await _head(reads, silent_s)
            if body.status == 401 and flow is not None and tried == 0 and await _again(access, flow, body, target):
                continue
            if body.status >= 400:
                said = await _rest_of(reads, body, pieces, silent_s)
                wait = body.headers.get("retry-after", "")
                after_s = float(wait) if wait.isdigit() else None
                raise KubeRefused.answered(body.status, said, f"GET {path}", after_s)
            yield _lines(reads, body, pieces, silent_s)
            return
        finally:
            transport.abort()


async def _connect(access: Access) -> tuple[_Reads, asyncio.Transport]:
    split = urlsplit(access.server)
    secure = split.scheme == "https"
    try:
        async with asyncio.timeout(_CONNECT_S):
            transport, reads = await asyncio.get_running_loop().create_connection(
                _Reads,
                split.hostname or "",
                split.port or (443 if secure else 80),
                ssl=access.tls if secure else None,
                server_hostname=split.hostname if secure else None,
            )
    except (OSError, TimeoutError) as problem:
        what = str(problem) or type(problem).__name__
        raise Broken(f"no answer from the API server: {what}", access.server, "check that it runs") from problem
    _keep_alive(transport.get_extra_info("socket"))
    return reads, transport


def _keep_alive(sock: Any) -> None:
    """Let the kernel notice a server that is gone without a word."""
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    ):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)


def _target(access: Access, path: str, params: Mapping[str, str]) -> str:
    query = f"?{urlencode(params)}" if params else ""
    return f"{urlsplit(access.server).path.rstrip('/')}{path}{query}"


def _request(access: Access, target: str, headers: Mapping[str, str], accept: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", f"Host: {urlsplit(access.server).netloc}", f"Accept: {accept}"]
    lines += [
        "Accept-Encoding: identity",
        "User-Agent: gpusize",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _signed(access: Access, target: str) -> tuple[dict[str, str], Any]:
    """The headers that sign a request, and the rest of the sign-in, for a server that refuses them."""
    if access.auth is None:
        return {}, None
    import httpx2

    flow = access.auth.async_auth_flow(httpx2.Request("GET", access.server + target))
    signed = await anext(flow)
    kept = {name: value for name, value in signed.headers.items() if name.lower() in ("authorization", "cookie")}
    return kept, flow


async def _again(access: Access, flow: Any, body: BodyReader, target: str) -> bool:
    """Whether the sign-in has other credentials after these were refused; the next request is signed with them."""
    import httpx2

    refused = httpx2.Response(body.status, request=httpx2.Request("GET", access.server + target))
    try:
        await flow.asend(refused)
    except StopAsyncIteration:
        return False
    await flow.aclose()
    return True


async def _read(reads: _Reads, silent_s: float) -> tuple[int, bytes] | None:
    """The next read; None at the connection's end."""
    while True:
        stamped = reads.take()
        if stamped is not None:
            return stamped
        if reads.problem is not None:
            return None
        reads.came.clear()
        try:
            async with asyncio.timeout(silent_s):
                await reads.came.wait()
        except TimeoutError:
            raise Broken(f"nothing came for {silent_s:.0f} s") from None


async def _head(reads: _Reads, silent_s: float) -> tuple[BodyReader, tuple[int, bytes]]:
    body = BodyReader()
    while True:
        stamped = await _read(reads, min(silent_s, _CONNECT_S))
        if stamped is None:
            raise Broken(f"no answer from the API server: {reads.problem}")
        piece = body.feed(stamped[1])
        if body.begun:
            return body, (stamped[0], piece)


async def _rest_of(reads: _Reads, body: BodyReader, first: tuple[int, bytes], silent_s: float) -> bytes:
    said = first[1]
    with contextlib.suppress(Broken):
        while not body.ended and len(said) < _ERROR_BYTES:
            stamped = await _read(reads, min(silent_s, _CONNECT_S))
            if stamped is None:
                break
            said += body.feed(stamped[1])
    return said


async def _lines(
    reads: _Reads, body: BodyReader, first: tuple[int, bytes], silent_s: float
) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of a body. Other tasks, and further reads, have their turn between two reads."""
    at_ns, piece = first
    rest = b""
    while True:
        if piece:
            come = rest + piece
            end = come.rfind(b"\n") + 1
            lines, rest = come[:end], come[end:]
            if lines:
                yield at_ns, lines
                await asyncio.sleep(0)
        if body.ended:
            if rest:
                raise Broken("the answer ended in the middle of a line")
            return
        stamped = await _read(reads, silent_s)
        if stamped is None:
            if not body.close():
                raise Broken(f"the watch broke off: {reads.problem}")
            piece = b""
            continue
        at_ns = stamped[0]
        piece = body.feed(stamped[1])
