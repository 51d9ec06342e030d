"""A server of HTTP/2 that says exactly the frames it is told to, with RFC 9113 for the layout and nothing checked.

The engine's request heads are compressed and not read here: a request's number stands in its body. Answers' heads are
written without compression, as literals that are never indexed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.listener import Listener

__all__ = ["Call", "FrameServer", "cut", "data", "frame", "goaway", "head", "reset", "settings", "trailers"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1

cut = b"<cut>"
"""Instead of a frame: close the connection, and reset it if there is something unread."""


@dataclass(frozen=True)
class Call:
    """A request that came in whole: on which connection (from 0), as which stream, with which body."""

    connection: int
    stream: int
    body: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _string(text: bytes) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text


def fields(*pairs: tuple[str, str]) -> bytes:
    """Literal fields that are never indexed (RFC 7541, 6.2.3), with new names."""
    return b"".join(
        b"\x10" + _string(name.encode("latin-1")) + _string(value.encode("latin-1")) for name, value in pairs
    )


def head(stream: int, status: str = "200", *pairs: tuple[str, str], end: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, fields((":status", status), *pairs))


def trailers(stream: int, *pairs: tuple[str, str]) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(*pairs))


def data(stream: int, text: bytes, *, end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, text)


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last: int, code: int = 0, debug: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + debug)


def settings(*pairs: tuple[int, int], flags: int = 0) -> bytes:
    return frame(SETTINGS, flags, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


class FrameServer(Listener):
    """``script`` says what follows a whole request, ``first`` what is said before the first one."""

    def __init__(self, script: Callable[[Call], Sequence[bytes]], first: Sequence[bytes]) -> None:
        self.script, self.first = script, first
        super().__init__()

    def serve(self, connection: socket.socket, number: int) -> None:
        with connection.makefile("rb") as stream:
            self._talk(connection, number, stream.read)

    def _talk(self, connection: socket.socket, number: int, read: Callable[[int], bytes]) -> None:
        if read(len(PREFACE)) != PREFACE:
            return
        connection.sendall(b"".join(self.first))
        bodies: dict[int, bytes] = {}
        while len(start := read(9)) == 9:
            size, kind, flags = int.from_bytes(start[:3]), start[3], start[4]
            stream = int.from_bytes(start[5:]) & 0x7FFF_FFFF
            payload = read(size)
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(settings(flags=ACK))
            elif kind == PING and not flags & ACK:
                connection.sendall(frame(PING, ACK, 0, payload))
            elif kind in {HEADERS, DATA}:
                bodies[stream] = bodies.get(stream, b"") + (payload if kind == DATA else b"")
                if flags & END_STREAM and not self._answer(connection, Call(number, stream, bodies.pop(stream))):
                    return

    def _answer(self, connection: socket.socket, call: Call) -> bool:
        said = b""
        for each in self.script(call):
            if each == cut:
                connection.sendall(said)
                return False
            said += each
        connection.sendall(said)
        return True
