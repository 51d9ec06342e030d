"""A TLS stream for one thread that reads and others that write: OpenSSL lets one thread at a time use a stream."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Final

__all__ = ["SharedTls"]

_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SharedTls:
    """The methods of a socket that `gpusize.engine.hosts.protocol.Wire` uses, safe for several threads.

    Nobody waits while holding the lock: a thread that reads would keep all others from writing.

    Args:
        stream: the stream, after its handshake.
    """

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        stream.setblocking(False)  # noqa: FBT003 -- the library's own

    def recv(self, count: int) -> bytes:
        """As ``socket.recv``; waits for something to come."""
        while True:
            with self._lock:
                try:
                    return self._stream.recv(count)
                except _AGAIN as again:
                    wants = again
            self._wait(wants)

    def sendall(self, data: bytes) -> None:
        """As ``socket.sendall``."""
        rest = memoryview(data)
        while rest:
            wants: ssl.SSLError | None = None
            with self._lock:
                try:
                    # A record at a time, which OpenSSL takes whole or not at all.
                    sent = self._stream.send(rest[: 16 << 10])
                    rest = rest[sent:]
                except _AGAIN as again:
                    wants = again
            if wants is not None:
                self._wait(wants)

    def _wait(self, wants: ssl.SSLError) -> None:
        reads = [self._stream] if isinstance(wants, ssl.SSLWantReadError) else []
        writes = [] if reads else [self._stream]
        # A stream that is closed meanwhile has no number any more, which select refuses.
        select.select(reads, writes, [], 1.0)

    def shutdown(self, how: int) -> None:
        """End the connection below, without a farewell: another thread may be at work on it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._stream, how)

    def close(self) -> None:
        """As ``socket.close``."""
        with self._lock:
            self._stream.close()

    def fileno(self) -> int:
        """As ``socket.fileno``."""
        return self._stream.fileno()
