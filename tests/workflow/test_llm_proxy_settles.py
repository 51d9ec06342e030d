"""A call whose client has all of its answer is told before a level that has ended is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx

from gpusize.targets.workflow.proxy.server import Proxy

BODY = b'{"usage":{"completion_tokens":3}}'
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: none\r\nContent-Length: 2\r\n\r\n{}"


class _SlowToPutAway(httpx.AsyncByteStream):
    """An answer that is there at once and takes turns of the event loop to put away, or one that has more to come."""

    def __init__(self, more: asyncio.Event | None) -> None:
        self._more = more

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield BODY[:-1]
        if self._more is not None:
            await self._more.wait()
        yield BODY[-1:]

    async def aclose(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0.001)


class _Upstream(httpx.AsyncBaseTransport):
    def __init__(self, more: asyncio.Event | None) -> None:
        self._more = more

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {"content-type": "application/json", "content-length": str(len(BODY))}
        return httpx.Response(200, headers=headers, stream=_SlowToPutAway(self._more), request=request)


async def _asked(
    more: asyncio.Event | None, wanted: bytes
) -> tuple[list[dict[str, Any]], int, list[dict[str, Any]], int]:
    """Calls that were told, and that were open, when a client had what it ``wanted``, and once they had settled."""
    told: list[dict[str, Any]] = []
    async with httpx.AsyncClient(transport=_Upstream(more)) as client:
        proxy = Proxy("http://127.0.0.1:9", told.append, client)
        server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(ASK)
        await reader.readuntil(wanted)
        before, open_before = list(told), proxy.open
        await proxy.settled()
        after, open_after = list(told), proxy.open
        if more is not None:
            more.set()
            await reader.readuntil(BODY[-1:])
        writer.close()
        server.close()
    return before, open_before, after, open_after


def test_a_call_that_is_being_put_away_is_waited_for() -> None:
    before, open_before, after, open_after = asyncio.run(_asked(None, BODY))
    assert (before, open_before) == ([], 1)
    assert [call["outcome"] for call in after] == ["ok"]
    assert open_after == 0


def test_a_call_that_goes_on_is_not() -> None:
    async def asked() -> tuple[list[dict[str, Any]], int, list[dict[str, Any]], int]:
        return await _asked(asyncio.Event(), BODY[:-1])

    before, open_before, after, open_after = asyncio.run(asked())
    assert (before, open_before, after, open_after) == ([], 1, [], 1)
