"""A plain aiohttp client of an SSE server: ``aiohttp_sse PORT CONNECTIONS SECONDS`` prints counts as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiohttp


async def read_answers(session: aiohttp.ClientSession, url: str, until: float) -> tuple[int, int]:
    """Answers and events with content that one connection read."""
    answers = events = 0
    while time.monotonic() < until:
        async with session.post(url, data=b"1") as response:
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                choices = json.loads(line[6:]).get("choices")
                events += bool(choices and choices[0]["delta"].get("content"))
        answers += 1
    return answers, events


async def main(port: str, connections: str, seconds: str) -> None:
    """All connections at once."""
    until = time.monotonic() + float(seconds)
    connector = aiohttp.TCPConnector(limit=int(connections))
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"http://127.0.0.1:{port}/"
        counts = await asyncio.gather(*(read_answers(session, url, until) for _ in range(int(connections))))
    print(json.dumps({"answers": sum(a for a, _ in counts), "events": sum(e for _, e in counts)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
