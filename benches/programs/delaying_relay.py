"""Passes TCP connections on, every byte a while later: a link with a delay, on loopback.

``python -m benches.programs.delaying_relay HOST PORT THERE_MS BACK_MS`` prints its own port and goes on until its
standard input is closed. THERE_MS is the delay towards HOST, BACK_MS the one from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

CHUNK = 1 << 16
AGAIN_S = 0.1
"""Where nobody listens yet."""


async def _later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass on what comes, each piece ``delay_s`` after it came, in order."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def pass_on() -> None:
        while True:
            due_s, piece = await pieces.get()
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    task = asyncio.create_task(pass_on())
    with contextlib.suppress(OSError):
        while piece := await reader.read(CHUNK):
            pieces.put_nowait((loop.time() + delay_s, piece))
    pieces.put_nowait((loop.time() + delay_s, b""))
    with contextlib.suppress(OSError):
        await task


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(AGAIN_S)


async def _serve(host: str, port: int, there_s: float, back_s: float) -> None:
    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await _connected(host, port)
        with contextlib.suppress(asyncio.CancelledError):  # the relay ends before the connection
            await asyncio.gather(_later(reader, to_writer, there_s), _later(to_reader, writer, back_s))

    server = await asyncio.start_server(joined, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def until_closed() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=until_closed, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 1e3))
