"""A server that computes: each request takes so many rounds of a hash on its one thread; ``... busy_server ROUNDS``.

It prints its port as a line of JSON. What runs beside it on its core takes time from it, as from any real server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys

from benches.lib.procs import go_first

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def serve(rounds: int) -> None:
    """Answer GET requests for ever, one after the other: the hash holds the loop."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                hashlib.pbkdf2_hmac("sha256", b"gpusize", b"busy", rounds)
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    go_first()
    asyncio.run(serve(int(sys.argv[1])))
