"""Reads what a tap kept: HTTP/1.1 exchanges, server-sent events, and the gRPC messages inside HTTP/2 frames."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, cast

from tests.servers.tap import Spoken, Tap

__all__ = ["Event", "Exchange", "events", "exchanges", "grpc_messages"]

EVENT = re.compile(rb"data: (\{.*?\})\r?\n", re.DOTALL)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA_FRAME, PADDED = 0, 0x8


class _Bytes(io.BytesIO):
    """A socket of bytes that stays open, so that the next answer can be read from where the last one ended."""

    def makefile(self, *_: object) -> _Bytes:
        return self

    def close(self) -> None:
        return


@dataclass(frozen=True)
class Exchange:
    """A request and its answer on an HTTP/1.1 connection."""

    path: str
    headers: dict[str, str]
    request: bytes
    status: int
    response_headers: dict[str, str]
    response: bytes

    @property
    def sent(self) -> Any:
        return json.loads(self.request)

    @property
    def got(self) -> Any:
        return json.loads(self.response)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON events of an answer that was a stream."""
        return [json.loads(found[1]) for found in EVENT.finditer(self.response)]


@dataclass(frozen=True)
class Event:
    """A JSON event of a stream, and when its last byte was passed on."""

    content: dict[str, Any]
    passed_ns: int


def exchanges(tap: Tap) -> list[Exchange]:
    """What was said in whole, by connection and then in order."""
    found = []
    for connection in tap.connections:
        asked, answered = _Bytes(connection.asked.data), _Bytes(connection.answered.data)
        while line := asked.readline():
            method, path, _ = line.decode("latin-1").split(" ", 2)
            headers = dict(_headers(asked))
            body = asked.read(int(headers.get("content-length", 0)))
            answer = HTTPResponse(cast("Any", answered), method=method)
            answer.begin()
            told = {name.lower(): value for name, value in answer.getheaders()}
            found.append(Exchange(path, headers, body, answer.status, told, answer.read()))
    return found


def _headers(stream: io.BytesIO) -> Iterator[tuple[str, str]]:
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        yield name.lower(), value.strip()


def events(spoken: Spoken) -> list[Event]:
    """The JSON events of a connection's answers, in order; for servers that write an event in one chunk."""
    data = spoken.data
    return [Event(json.loads(match[1]), spoken.passed_ns(match.end() - 1)) for match in EVENT.finditer(data)]


def grpc_messages(spoken: Spoken) -> dict[int, list[bytes]]:
    """The protobuf messages of each HTTP/2 stream (RFC 9113, section 4.1), by the stream's number."""
    data = spoken.data.removeprefix(PREFACE)
    bodies: dict[int, bytearray] = defaultdict(bytearray)
    at = 0
    while at + 9 <= len(data):
        length, kind, flags = int.from_bytes(data[at : at + 3]), data[at + 3], data[at + 4]
        stream = int.from_bytes(data[at + 5 : at + 9]) & 0x7FFF_FFFF
        payload = data[at + 9 : at + 9 + length]
        at += 9 + length
        if kind == DATA_FRAME:
            pad = payload[0] + 1 if flags & PADDED else 0
            bodies[stream] += payload[1 if pad else 0 : len(payload) - max(pad - 1, 0)]
    return {stream: _unframed(bytes(bodies[stream])) for stream in sorted(bodies)}


def _unframed(body: bytes) -> list[bytes]:
    messages = []
    at = 0
    while at < len(body):
        assert body[at] == 0, "a compressed message"
        length = int.from_bytes(body[at + 1 : at + 5])
        messages.append(body[at + 5 : at + 5 + length])
        at += 5 + length
    return messages
