"""A server that says exactly the bytes it is told to, in exactly the pieces it is told to.

A script is a function from a request to steps: ``Send`` bytes (in pieces if asked), ``Wait`` for the test, wait until
all was ``Read`` by the client, ``Reset`` or ``Close`` the connection. Without one of the last two the connection stays
open and the next request is answered.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

__all__ = ["Close", "Read", "Request", "Reset", "Script", "ScriptedServer", "Send", "Step", "Wait", "answer", "chunked"]


@dataclass(frozen=True)
class Request:
    """What came in: the ``number``-th request (from 0) of the ``connection``-th connection (from 0)."""

    connection: int
    number: int
    head: bytes
    body: bytes

    @property
    def start_line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            found, _, value = line.partition(b":")
            if found.decode("latin-1").lower() == name.lower():
                return value.decode("latin-1").strip()
        return None


@dataclass(frozen=True)
class Send:
    """Bytes, in pieces of ``piece`` bytes (all at once when None) with a pause of ``gap_s`` between pieces."""

    data: bytes
    piece: int | None = None
    gap_s: float = 0.0

    def pieces(self) -> Iterable[bytes]:
        size = self.piece or max(len(self.data), 1)
        return (self.data[at : at + size] for at in range(0, len(self.data), size))


@dataclass(frozen=True)
class Wait:
    """Say nothing until the test sets the event; without an event, until the server is closed."""

    event: threading.Event | None = None


@dataclass(frozen=True)
class Read:
    """Say nothing until the client has read all that was sent: what comes after it comes in a read of its own."""


@dataclass(frozen=True)
class Reset:
    """Close by RST, as a process that was killed does."""


@dataclass(frozen=True)
class Close:
    """Close in order, by FIN."""


Step = Send | Wait | Read | Reset | Close
Script = Callable[[Request], Iterable[Step]]


def answer(body: bytes = b"ok", *, status: str = "200 OK", headers: Sequence[str] = (), length: bool = True) -> bytes:
    """A whole response; with ``length``, its Content-Length as well."""
    lines = [f"HTTP/1.1 {status}", *headers, *([f"Content-Length: {len(body)}"] if length else [])]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked(chunks: Sequence[bytes], *, extension: str = "", trailer: str = "") -> bytes:
    """The chunked coding of RFC 9112, section 7.1."""
    coded = b"".join(b"%x%s\r\n%s\r\n" % (len(chunk), extension.encode(), chunk) for chunk in chunks)
    return coded + b"0\r\n" + (trailer.encode() + b"\r\n" if trailer else b"") + b"\r\n"


@dataclass
class ScriptedServer:
    """Listens on loopback, a thread for each connection; a context manager.

    ``requests`` holds what came in, in order of arrival; ``closed_by_peer`` the connections that the client ended.
    """

    script: Script
    requests: list[Request] = field(default_factory=list)
    closed_by_peer: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return len(self._sockets)

    def close(self) -> None:
        """Close every connection and wait for the threads."""
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._sockets:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                number = len(self._sockets)
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection, number), daemon=True)
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection:
            try:
                self._talk(connection, number)
            except OSError:
                # The client went away in the middle of an answer: its right, and what some scripts are about.
                self._note_close(number)

    def _talk(self, connection: socket.socket, number: int) -> None:
        pending = b""
        count = 0
        while not self._ended.is_set():
            taken = self._read_request(connection, pending, number, count)
            if taken is None:
                return
            request, pending = taken
            count += 1
            with self._lock:
                self.requests.append(request)
            for step in self.script(request):
                if not self._take(step, connection):
                    return

    def _read_request(
        self, connection: socket.socket, pending: bytes, number: int, count: int
    ) -> tuple[Request, bytes] | None:
        while b"\r\n\r\n" not in pending:
            received = connection.recv(65_536)
            if not received:
                self._note_close(number)
                return None
            pending += received
        head, pending = pending.split(b"\r\n\r\n", 1)
        length = int(Request(number, count, head, b"").header("content-length") or 0)
        while len(pending) < length:
            received = connection.recv(65_536)
            if not received:
                self._note_close(number)
                return None
            pending += received
        return Request(number, count, head, pending[:length]), pending[length:]

    def _take(self, step: Step, connection: socket.socket) -> bool:
        """Do one step; False when the connection is over."""
        if isinstance(step, Send):
            for piece in step.pieces():
                connection.sendall(piece)
                if step.gap_s:
                    time.sleep(step.gap_s)
            return True
        if isinstance(step, Wait):
            (step.event or self._ended).wait()
            return True
        if isinstance(step, Read):
            while not _is_read(connection) and not self._ended.is_set():
                time.sleep(0.001)
            return True
        if isinstance(step, Reset):
            # Linger of zero: close() sends RST and drops what is unsent.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _note_close(self, number: int) -> None:
        if not self._ended.is_set():
            with self._lock:
                self.closed_by_peer.append(number)


def _is_read(connection: socket.socket) -> bool:
    """Whether the client, a process of this machine, has taken all that was sent out of its socket."""
    # First that all has come there, by the acknowledgements: only then does an empty queue of the client say something.
    unacknowledged = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
    if unacknowledged:
        return False
    ours, theirs = (f":{port:04X}" for port in (connection.getsockname()[1], connection.getpeername()[1]))
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        if local.endswith(theirs) and remote.endswith(ours):
            return int(queues.partition(":")[2], 16) == 0
    return True
