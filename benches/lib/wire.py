"""What a client really sends: both sides of a comparison must send the same."""

from __future__ import annotations

import socket
import threading
from typing import Self

from benches.lib.procs import BenchFailed

__all__ = ["HeadCatcher", "comparable"]

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"


class HeadCatcher:
    """Answers on loopback like the canned server and keeps the first head; a context manager."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._head: bytes | None = None
        self._caught = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def head(self) -> bytes:
        """The first request head, without its empty line; raises BenchFailed when none came within 10 s."""
        if not self._caught.wait(10) or self._head is None:
            raise BenchFailed("the client sent no request")
        return self._head

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        pending = b""
        with connection:
            try:
                while received := connection.recv(65_536):
                    pending += received
                    while b"\r\n\r\n" in pending:
                        head, pending = pending.split(b"\r\n\r\n", 1)
                        if self._head is None:
                            self._head = head
                            self._caught.set()
                        connection.sendall(RESPONSE)
            except OSError:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def comparable(head: bytes, port: int) -> list[bytes]:
    """A head's lines without the port, header names in lower case, sorted: equal when the requests mean the same."""
    first, *headers = head.replace(f":{port}".encode(), b"").split(b"\r\n")
    split = (line.partition(b":") for line in headers)
    return [first, *sorted(name.lower() + b": " + value.strip() for name, _, value in split)]
