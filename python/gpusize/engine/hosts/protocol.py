"""Frames between head and agents: a JSON header and byte strings beside it, over one stream.

    2 bytes  "gz"
    2 bytes  number of byte strings, n
    4 bytes  length of the header
    4n bytes length of each byte string
    header   JSON object, its "kind" says what it is
    strings  one after the other

Numbers are big-endian and unsigned. ``docs/reference/hosts-protocol.md`` lists the kinds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
import ssl
import struct
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from gpusize.engine.hosts.tls import SharedTls

__all__ = [
    "CHUNK",
    "PROTOCOL",
    "SMALL",
    "Broken",
    "Frame",
    "Limits",
    "Wire",
    "pack_cells",
    "pack_rows",
    "tuned",
    "unpack_cells",
    "unpack_rows",
]

PROTOCOL: Final = 1
"""Version of the frames; both sides must speak the same."""

CHUNK: Final = 1 << 20
"""Bytes of one piece of a file on its way home: a frame of another kind waits for one piece at most."""

_HEAD: Final = struct.Struct("!2sHI")
_MAGIC: Final = b"gz"


class Broken(OSError):
    """The other side is gone, or what it said is no frame of ours."""


class Limits(NamedTuple):
    """The most that a frame may hold: bytes of the header, byte strings, bytes of each."""

    header: int
    strings: int
    string: int


SMALL: Final = Limits(64 << 10, 0, 0)
"""Before the other side has shown who it is."""
LARGE: Final = Limits(64 << 20, 256, 1 << 30)


class Frame(NamedTuple):
    """One message.

    Attributes:
        kind: what it is.
        fields: the rest of the header.
        strings: byte strings beside it.
    """

    kind: str
    fields: dict[str, Any]
    strings: tuple[bytes, ...] = ()


def tuned(connection: socket.socket) -> socket.socket:
    """A stream without delay for small frames."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Wire:
    """One stream of frames. Any thread may send; one receives.

    Args:
        connection: the stream, connected.
        limits: of what is received.
    """

    def __init__(self, connection: socket.socket, limits: Limits = SMALL) -> None:
        self.limits = limits
        self._socket = connection
        self._lock = threading.Lock()
        self._closed = False

    @property
    def socket(self) -> socket.socket:
        """The stream below, while one thread uses it."""
        return self._socket

    def trust(self) -> None:
        """The other side has shown who it is: it may send more, and several threads may send."""
        self.limits = LARGE
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket = cast("socket.socket", SharedTls(self._socket))

    def send(self, kind: str, strings: Sequence[bytes] = (), **fields: Any) -> None:
        """Send one frame whole.

        Raises:
            Broken: the other side does not take it.
        """
        header = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
        lengths = struct.pack(f"!{len(strings)}I", *map(len, strings))
        first = _HEAD.pack(_MAGIC, len(strings), len(header)) + lengths + header
        try:
            with self._lock:
                self._socket.sendall(first)
                for each in strings:
                    self._socket.sendall(each)
        except (OSError, ValueError) as error:
            raise Broken(f"cannot send: {error}") from None

    def receive(self, first: bytes = b"") -> Frame:
        """The next frame; waits for it.

        Args:
            first: bytes of it that have been taken already; at most those of its head.

        Raises:
            Broken: the stream has ended, or brought something else.
        """
        magic, count, length = _HEAD.unpack(first + self.exactly(_HEAD.size - len(first)))
        if magic != _MAGIC:
            raise Broken("this is not gpusize's protocol")
        if length > self.limits.header or count > self.limits.strings:
            raise Broken("the frame is larger than it may be")
        lengths = struct.unpack(f"!{count}I", self.exactly(4 * count))
        if any(each > self.limits.string for each in lengths):
            raise Broken("the frame is larger than it may be")
        try:
            fields = json.loads(self.exactly(length))
            kind = fields.pop("kind")
        except (ValueError, AttributeError, KeyError, RecursionError):
            raise Broken("the frame's header cannot be read") from None
        return Frame(str(kind), fields, tuple(self.exactly(each) for each in lengths))

    def exactly(self, count: int) -> bytes:
        """So many bytes of the stream.

        Raises:
            Broken: it ended before.
        """
        found = bytearray()
        while len(found) < count:
            try:
                got = self._socket.recv(min(count - len(found), 1 << 20))
            except (OSError, ValueError) as error:
                raise Broken(f"cannot receive: {error}") from None
            if not got:
                raise Broken("the connection was closed")
            found += got
        return bytes(found)

    def readable(self, timeout_s: float) -> bool:
        """Whether something has come, or the stream has ended, within this time."""
        pending = getattr(self._socket, "pending", None)
        if pending is not None and pending():
            return True
        try:
            return bool(select.select([self._socket], [], [], timeout_s)[0])
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """End the stream, also for a thread that waits on it; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._socket.close()


def pack_rows(rows: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Rows of fields as three byte strings or more: fields of each row, length of each field, contents in pieces."""
    counts = array("I", map(len, rows))
    lengths = array("Q", (len(field) for row in rows for field in row))
    pieces, piece, size = [], [], 0
    for field in itertools.chain.from_iterable(rows):
        for at in range(0, len(field), 64 << 20):
            piece.append(field[at : at + (64 << 20)])
            size += len(piece[-1])
            if size >= 64 << 20:
                pieces.append(b"".join(piece))
                piece, size = [], 0
    return [counts.tobytes(), lengths.tobytes(), *pieces, b"".join(piece)]


def unpack_rows(strings: Sequence[bytes]) -> list[list[bytes]]:
    """What `pack_rows` has packed.

    Raises:
        Broken: it is something else.
    """
    counts, lengths, pieces = array("I"), array("Q"), [memoryview(each).cast("B") for each in strings[2:]]
    try:
        counts.frombytes(strings[0])
        lengths.frombytes(strings[1])
    except (IndexError, ValueError):
        raise Broken("rows cannot be read") from None
    if sum(counts) != len(lengths) or sum(lengths) != sum(map(len, pieces)):
        raise Broken("rows cannot be read")
    rest = _cut(lengths, pieces)
    return [list(itertools.islice(rest, count)) for count in counts]


def _cut(lengths: Sequence[int], pieces: Sequence[memoryview]) -> Iterator[bytes]:
    """Fields out of pieces, one by one: a copy of all at once would keep the thread that answers pings waiting."""
    number = at = 0
    for length in lengths:
        parts, missing = [], length
        while missing:
            part = pieces[number][at : at + missing]
            parts.append(part)
            missing -= len(part)
            at += len(part)
            if at == len(pieces[number]):
                number, at = number + 1, 0
        yield b"".join(parts)


def pack_cells(times: Mapping[str, Sequence[Sequence[int]]]) -> tuple[list[tuple[str, int]], bytes]:
    """Buckets of several metrics, as names with how many each has, and all their numbers in 8 bytes each."""
    index = [(name, len(buckets)) for name, buckets in times.items()]
    buckets = itertools.chain.from_iterable(times.values())
    flat = array("q", itertools.chain.from_iterable(buckets))
    return index, flat.tobytes()


def unpack_cells(index: Sequence[Sequence[Any]], data: bytes) -> dict[str, list[list[int]]]:
    """What `pack_cells` has packed.

    Raises:
        Broken: it is something else.
    """
    flat = array("q")
    try:
        flat.frombytes(data)
        sizes = [(str(name), int(count)) for name, count in index]
    except (TypeError, ValueError):
        raise Broken("counts of times cannot be read") from None
    if 3 * sum(count for _, count in sizes) != len(flat) or any(count < 0 for _, count in sizes):
        raise Broken("counts of times cannot be read")
    numbers = iter(flat)
    buckets = map(list, zip(numbers, numbers, numbers, strict=True))
    return {name: list(itertools.islice(buckets, count)) for name, count in sizes}
