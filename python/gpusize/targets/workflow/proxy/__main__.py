"""The proxy's process. Its words: the origin to pass calls on to, and the port to listen on (0 for any).

It says on standard output when it is up and, one JSON line each, which calls have ended. A line on standard input is
answered after everything that ended before it; when standard input closes, the process ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpusize.base.urls import parse_url
from gpusize.targets.workflow.proxy.calibrate import added_latency_s
from gpusize.targets.workflow.proxy.server import CONNECT_S, Proxy


def _say(content: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(content)}\n")
    sys.stdout.flush()


def _client(*, direct: bool) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    return httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=not direct)


async def _main(origin: str, port: int) -> None:
    async with _client(direct=True) as own:
        added_p50_s, added_p99_s = await added_latency_s(own)
    async with _client(direct=parse_url(origin).is_loopback) as client:
        proxy = Proxy(origin, lambda call: _say({"call": call}), client)
        try:
            server = await asyncio.start_server(proxy.handle, "127.0.0.1", port)
        except OSError as error:
            _say({"error": f"port {port} cannot be opened: {error.strerror}"})
            return
        _say(
            {
                "port": server.sockets[0].getsockname()[1],
                "added_p50_s": round(added_p50_s, 6),
                "added_p99_s": round(added_p99_s, 6),
            }
        )
        questions = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
        while await questions.readline():
            await proxy.settled()
            _say({"open": proxy.open})
        server.close()


if __name__ == "__main__":
    if len(sys.argv) != 3 or urlsplit(sys.argv[1]).scheme not in ("http", "https"):
        sys.exit("usage: python -m gpusize.targets.workflow.proxy ORIGIN PORT")
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
