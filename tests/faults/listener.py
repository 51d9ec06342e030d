"""A listener on loopback with a thread for each connection: what the servers of faults are made on."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Listener"]


class Listener(ABC):
    """A context manager; ``serve`` is called in a thread of its own with each connection and its number, from 0.

    A client may go away in the middle of an answer: ``OSError`` ends the connection, and no more.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @abstractmethod
    def serve(self, connection: socket.socket, number: int) -> None:
        """Talk to one client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(timeout=10)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(timeout=10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            arguments = (connection, len(self._connections))
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=arguments, daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), connection:
            self.serve(connection, number)
