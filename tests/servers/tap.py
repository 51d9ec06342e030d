"""A pass-through on loopback that keeps every byte with the time at which it went on: what two parties really said."""

from __future__ import annotations

import bisect
import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self

__all__ = ["Spoken", "Tap", "TappedConnection"]


@dataclass
class Spoken:
    """One direction of a connection: pieces, and when each was about to be passed on (monotonic, ns)."""

    pieces: list[bytes] = field(default_factory=list)
    at_ns: list[int] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def passed_ns(self, offset: int) -> int:
        """When the byte at ``offset`` was passed on: nobody beyond can have had it earlier."""
        ends = list(accumulate(map(len, self.pieces)))
        return self.at_ns[bisect.bisect_right(ends, offset)]


@dataclass
class TappedConnection:
    """Both directions of one connection."""

    asked: Spoken = field(default_factory=Spoken)
    answered: Spoken = field(default_factory=Spoken)


def _end(connection: socket.socket, how: int) -> None:
    """Say that no more comes; the other side may have gone already."""
    with contextlib.suppress(OSError):
        connection.shutdown(how)


class Tap:
    """Listens on a port of its own and connects each client to the server; a context manager.

    Args:
        port: the server's port on loopback.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[TappedConnection] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End all connections and wait for the threads; then everything that was said is in ``connections``.

        Closing twice is closing once.
        """
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(timeout=10)
        self._listener.close()
        for each in self._sockets:
            _end(each, socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(timeout=10)
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            connection = TappedConnection()
            self.connections.append(connection)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(each)
            for source, sink, spoken in ((client, server, connection.asked), (server, client, connection.answered)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink, spoken), daemon=True)
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket, spoken: Spoken) -> None:
        try:
            while piece := source.recv(65_536):
                spoken.at_ns.append(time.monotonic_ns())
                spoken.pieces.append(piece)
                sink.sendall(piece)
        except ConnectionError:
            pass  # to the other side a reset then looks like an end in order
        _end(sink, socket.SHUT_WR)
