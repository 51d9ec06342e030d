"""What the proxy itself adds to a call: the same small exchange directly and through it, on loopback, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gpusize.targets.workflow.proxy.server import Proxy

if TYPE_CHECKING:
    import httpx

__all__ = ["added_latency_s"]

ROUNDS: Final = 80
WARM: Final = 10
_BODY: Final = b'{"model":"none","choices":[{"message":{"content":"none"}}],"usage":{"prompt_tokens":1}}'
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)
_ASK: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: none\r\nContent-Length: 2\r\n\r\n{}"


async def added_latency_s(client: httpx.AsyncClient) -> tuple[float, float]:
    """Median and 99th percentile of what a call takes longer through the proxy than the median direct one, seconds."""
    upstream = await asyncio.start_server(_serve, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
    proxy = await asyncio.start_server(Proxy(origin, _forget, client).handle, "127.0.0.1", 0)
    try:
        direct = await _times(upstream)
        through = await _times(proxy)
    finally:
        for server in (proxy, upstream):
            server.close()
    middle = direct[len(direct) // 2]
    return max(through[len(through) // 2] - middle, 0.0), max(through[int(0.99 * len(through))] - middle, 0.0)


def _forget(_call: dict[str, Any]) -> None:
    """These calls are nobody's."""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(_ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _times(server: asyncio.Server) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    clock: Callable[[], float] = time.perf_counter
    taken = []
    try:
        for _ in range(WARM + ROUNDS):
            start_s = clock()
            writer.write(_ASK)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(_BODY))
            taken.append(clock() - start_s)
    finally:
        writer.close()
    return sorted(taken[WARM:])
