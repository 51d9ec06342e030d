"""Faults of HTTP/2 and of gRPC on it, as frames. Codes and rules: RFC 9113; the gRPC protocol over HTTP/2."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    cut,
    data,
    fields,
    frame,
    goaway,
    head,
    reset,
    settings,
    trailers,
)
from tests.faults.http1 import SHORT_NS

__all__ = ["GRPC", "GRPC_TARGET", "HTTP2", "FrameFault", "good_call", "good_grpc"]

CODES = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)
REFUSED = CODES.index("REFUSED_STREAM")
SHORT = {"timeout_ns": SHORT_NS}


@dataclass(frozen=True)
class FrameFault:
    """One row of the matrix: ``frames`` are what the server says on the stream of every third request."""

    does: str
    frames: Callable[[int], Sequence[bytes]]
    outcome: str | frozenset[str]
    says: str = ""
    again: bool = False
    spills: bool = False
    """It ends the connection, so that requests beside it on the same connection may go the same way."""
    first: Sequence[bytes] = (settings(),)
    target: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.does

    @property
    def outcomes(self) -> frozenset[str]:
        return frozenset({self.outcome}) if isinstance(self.outcome, str) else self.outcome

    @property
    def waits(self) -> bool:
        """Whether it is one of time: it lasts for several timeouts, and does nothing meanwhile."""
        return self.outcome == "timeout"


def good_call(stream: int) -> list[bytes]:
    return [head(stream), data(stream, b"good", end=True)]


def _broken(
    does: str, *frames: Callable[[int], bytes], outcome: str | frozenset[str] = "protocol_error", **more: Any
) -> FrameFault:
    return FrameFault(does, lambda stream: [each(stream) for each in frames], outcome, spills=True, **more)


def _raw(kind: int, flags: int, payload: bytes, stream: int | None = None) -> Callable[[int], bytes]:
    return lambda own: frame(kind, flags, own if stream is None else stream, payload)


RESETS = [
    FrameFault(
        f"resets with {name} before the head",
        lambda stream, code=code: [reset(stream, code)],  # type: ignore[misc]
        "truncated",
        name,
        again=code == REFUSED,
    )
    for code, name in enumerate(CODES)
] + [
    FrameFault("resets with an unknown code", lambda s: [reset(s, 0xFFFF)], "truncated"),
    *(
        FrameFault(
            f"resets with {CODES[code]} after the head",
            lambda stream, code=code: [head(stream), reset(stream, code)],  # type: ignore[misc]
            "truncated",
            CODES[code],
            again=code == REFUSED,
        )
        for code in (0, 2, REFUSED, 8, 11)
    ),
    FrameFault(
        "resets with CANCEL in the body", lambda s: [head(s), data(s, b"go"), reset(s, 8)], "truncated", "CANCEL"
    ),
    FrameFault("resets with NO_ERROR after the whole answer", lambda s: [*good_call(s), reset(s, 0)], "ok"),
]

GOAWAYS = [
    FrameFault(
        "says GOAWAY below the request", lambda s: [goaway(max(s - 2, 0))], "truncated", again=True, spills=True
    ),
    FrameFault("says GOAWAY and answers", lambda s: [goaway(s), *good_call(s)], "ok"),
    FrameFault("says GOAWAY and closes", lambda s: [goaway(s), cut], "truncated", spills=True, again=True),
    FrameFault("says GOAWAY after the answer", lambda s: [*good_call(s), goaway(s)], "ok"),
    FrameFault("says GOAWAY twice, then answers", lambda s: [goaway((1 << 31) - 1), goaway(s), *good_call(s)], "ok"),
    FrameFault(
        "says GOAWAY with ENHANCE_YOUR_CALM",
        lambda s: [goaway(s, 11, b"too_many_pings"), cut],
        "truncated",
        spills=True,
        again=True,
    ),
    FrameFault(
        "says GOAWAY inside the body and closes",
        lambda s: [head(s), data(s, b"go"), goaway(s), cut],
        "truncated",
        spills=True,
    ),
]

CUTS = [
    FrameFault("closes without a frame", lambda _: [cut], "truncated", again=True, spills=True),
    FrameFault("closes after the head", lambda s: [head(s), cut], "truncated", spills=True),
    FrameFault("closes in the body", lambda s: [head(s), data(s, b"go"), cut], "truncated", spills=True),
    FrameFault(
        "closes inside a frame", lambda s: [head(s), data(s, b"good", end=True)[:11], cut], "truncated", spills=True
    ),
    FrameFault("closes after the whole answer", lambda s: [*good_call(s), cut], "ok", spills=True),
    FrameFault("closes inside a head", lambda s: [head(s)[:12], cut], "truncated", again=True, spills=True),
]

RULES = [
    _broken("sends DATA before the head", _raw(DATA, 0, b"go")),
    _broken("sends DATA on stream 0", _raw(DATA, 0, b"go", 0)),
    _broken("sends a head on stream 0", _raw(HEADERS, END_HEADERS, fields((":status", "200")), 0)),
    _broken("sends a head on a stream of the future", _raw(HEADERS, END_HEADERS, fields((":status", "200")), 9001)),
    _broken("sends SETTINGS on a stream", _raw(SETTINGS, 0, b"")),
    _broken("sends SETTINGS of 5 bytes", _raw(SETTINGS, 0, b"12345", 0)),
    _broken("sends SETTINGS with an impossible window", lambda _: settings((4, 0xFFFF_FFFF))),
    _broken("sends SETTINGS with an impossible frame size", lambda _: settings((5, 1))),
    _broken("sends PING of 7 bytes", _raw(PING, 0, b"1234567", 0)),
    _broken("sends PING on a stream", _raw(PING, 0, b"12345678")),
    _broken("sends RST_STREAM of 3 bytes", _raw(RST_STREAM, 0, b"123")),
    _broken("sends RST_STREAM on stream 0", _raw(RST_STREAM, 0, b"1234", 0)),
    _broken("sends GOAWAY of 3 bytes", _raw(GOAWAY, 0, b"123", 0)),
    _broken("sends GOAWAY on a stream", _raw(GOAWAY, 0, struct.pack(">II", 0, 0))),
    _broken("sends WINDOW_UPDATE of 0 on the connection", _raw(WINDOW_UPDATE, 0, bytes(4), 0)),
    _broken("sends WINDOW_UPDATE beyond 2^31", _raw(WINDOW_UPDATE, 0, b"\x7f\xff\xff\xff", 0)),
    _broken("sends CONTINUATION without a head", _raw(CONTINUATION, END_HEADERS, b"")),
    _broken(
        "sends a head and no CONTINUATION", _raw(HEADERS, 0, fields((":status", "200"))), _raw(DATA, END_STREAM, b"go")
    ),
    _broken(
        "pushes a promise",
        lambda s: frame(PUSH_PROMISE, END_HEADERS, s, struct.pack(">I", 2) + fields((":method", "GET"))),
    ),
    _broken("sends a frame beyond the limit", _raw(DATA, 0, bytes((1 << 24) - 1))),
    _broken("sends a head that cannot be decompressed", _raw(HEADERS, END_HEADERS, b"\xff\xff\xff\xff\xff")),
    _broken("speaks HTTP/1.1", lambda _: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    _broken("sends zeros", lambda _: bytes(64)),
]

HEADS = [
    FrameFault(
        "has no status",
        lambda s: [frame(HEADERS, END_HEADERS, s, fields(("server", "x"))), data(s, b"", end=True)],
        "protocol_error",
    ),
    FrameFault(
        "has two statuses",
        lambda s: [
            frame(HEADERS, END_HEADERS, s, fields((":status", "200"), (":status", "200"))),
            data(s, b"", end=True),
        ],
        "protocol_error",
    ),
    FrameFault(
        "has a status of letters", lambda s: [head(s, "2x0"), data(s, b"", end=True)], "protocol_error", spills=True
    ),
    FrameFault(
        "has a status after a field",
        lambda s: [frame(HEADERS, END_HEADERS, s, fields(("server", "x"), (":status", "200"))), data(s, b"", end=True)],
        "protocol_error",
    ),
    FrameFault(
        "has a field in capitals",
        lambda s: [head(s, "200", ("Server", "x")), data(s, b"", end=True)],
        "protocol_error",
        spills=True,
    ),
    FrameFault(
        "has a Connection field",
        lambda s: [head(s, "200", ("connection", "close")), data(s, b"", end=True)],
        "protocol_error",
    ),
    FrameFault(
        "has an unknown pseudo-field",
        lambda s: [head(s, "200", (":color", "red")), data(s, b"", end=True)],
        "protocol_error",
        spills=True,
    ),
    FrameFault(
        "has a length that the body exceeds",
        lambda s: [head(s, "200", ("content-length", "2")), data(s, b"good", end=True)],
        "protocol_error",
    ),
    FrameFault(
        "has a length that the body does not reach",
        lambda s: [head(s, "200", ("content-length", "9")), data(s, b"good", end=True)],
        "protocol_error",
    ),
    FrameFault("says 103 first", lambda s: [head(s, "103"), *good_call(s)], "ok"),
    FrameFault("answers without a body", lambda s: [head(s, end=True)], "ok"),
    FrameFault("ends with trailers", lambda s: [head(s), data(s, b"good"), trailers(s, ("digest", "x"))], "ok"),
    FrameFault("pads its data", lambda s: [head(s), frame(DATA, END_STREAM | 8, s, b"\x04good" + bytes(4))], "ok"),
    FrameFault("sends frames of an unknown kind", lambda s: [frame(99, 0, s, b"?"), *good_call(s)], "ok"),
    FrameFault("pings first", lambda s: [frame(PING, 0, 0, b"12345678"), *good_call(s)], "ok"),
    FrameFault("answers 500", lambda s: [head(s, "500"), data(s, b"as said", end=True)], "http_error", "as said"),
    FrameFault("answers 429 without a body", lambda s: [head(s, "429", end=True)], "http_error"),
]

TIMES = [
    FrameFault("says nothing", lambda _: [], "timeout", target=SHORT),
    FrameFault("stops after the head", lambda s: [head(s)], "timeout", target=SHORT),
    FrameFault("stops inside the body", lambda s: [head(s), data(s, b"go")], "timeout", target=SHORT),
    FrameFault("only pings", lambda _: [frame(PING, 0, 0, b"12345678")] * 200, "timeout", target=SHORT),
    FrameFault("floods SETTINGS and answers", lambda s: [*[settings()] * 500, *good_call(s)], "ok"),
    FrameFault("floods PING and answers", lambda s: [*[frame(PING, 0, 0, b"12345678")] * 500, *good_call(s)], "ok"),
    FrameFault(
        "floods empty DATA and answers",
        lambda s: [head(s), *[data(s, b"")] * 500, data(s, b"good", end=True)],
        "ok",
    ),
    FrameFault(
        "has a body beyond the limit",
        lambda s: [head(s), data(s, bytes(8000), end=True)],
        "protocol_error",
        target={"max_body_bytes": 4096},
    ),
]

HTTP2 = [*RESETS, *GOAWAYS, *CUTS, *RULES, *HEADS, *TIMES]

# A ModelInferResponse with one raw output: fields 1 (model_name), 5 (outputs: name, datatype, shape), 6 (raw contents).
_OUTPUT = b"\x0a\x01y\x12\x05INT32\x1a\x01\x01"
REPLY = b"\x0a\x01m" + b"\x2a" + bytes([len(_OUTPUT)]) + _OUTPUT + b"\x32\x04\x01\x00\x00\x00"
EMPTY_REPLY = b"\x0a\x01m"
KIND = ("content-type", "application/grpc")
GRPC_TARGET: dict[str, Any] = {"transport": "grpc", "path": "/inference.GRPCInferenceService/ModelInfer"}


def _message(text: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + struct.pack(">I", len(text)) + text


def good_grpc(stream: int) -> list[bytes]:
    return [head(stream, "200", KIND), data(stream, _message(REPLY)), trailers(stream, ("grpc-status", "0"))]


def _status(code: int, *more: tuple[str, str]) -> Callable[[int], list[bytes]]:
    return lambda s: [head(s, "200", KIND), trailers(s, ("grpc-status", str(code)), *more)]


def _said(text: bytes, *ends: tuple[str, str]) -> Callable[[int], list[bytes]]:
    return lambda s: [head(s, "200", KIND), data(s, text), trailers(s, *(ends or (("grpc-status", "0"),)))]


GRPC = [
    *(
        FrameFault(f"ends with {name}", _status(code, ("grpc-message", "as%20said")), "api_error", "as said")
        for code, name in (
            (1, "CANCELLED"),
            (3, "INVALID_ARGUMENT"),
            (4, "DEADLINE_EXCEEDED"),
            (5, "NOT_FOUND"),
            (7, "PERMISSION_DENIED"),
            (8, "RESOURCE_EXHAUSTED"),
            (12, "UNIMPLEMENTED"),
            (13, "INTERNAL"),
            (14, "UNAVAILABLE"),
            (16, "UNAUTHENTICATED"),
        )
    ),
    FrameFault("ends with a status that is unknown", _status(99), "api_error"),
    FrameFault(
        "ends with trailers alone",
        lambda s: [head(s, "200", KIND, ("grpc-status", "14"), ("grpc-message", "as said"), end=True)],
        "api_error",
        "as said",
    ),
    FrameFault("fails after a reply", _said(_message(REPLY), ("grpc-status", "13")), "api_error"),
    FrameFault("replies nothing and says OK", _status(0), "protocol_error", "0 replies"),
    FrameFault("replies an empty message", _said(_message(b"")), "api_error"),
    FrameFault("replies without outputs", _said(_message(EMPTY_REPLY)), "api_error"),
    FrameFault("replies twice to a unary call", _said(_message(REPLY) * 2), "protocol_error"),
    FrameFault("has no grpc-status", _said(_message(REPLY), ("x", "y")), "truncated"),
    FrameFault(
        "ends without trailers", lambda s: [head(s, "200", KIND), data(s, _message(REPLY), end=True)], "truncated"
    ),
    FrameFault("ends inside a message", _said(_message(REPLY)[:-2]), "truncated"),
    FrameFault("ends inside a message's length", _said(_message(REPLY)[:3]), "truncated"),
    FrameFault("compresses a message", _said(_message(REPLY, compressed=True)), "protocol_error"),
    FrameFault("replies bytes that are not protobuf", _said(_message(b"\xff" * 20)), "protocol_error"),
    FrameFault("announces a message of 4 GiB", _said(b"\x00\xff\xff\xff\xff" + REPLY), "protocol_error"),
    FrameFault(
        "answers a page",
        lambda s: [head(s, "200", ("content-type", "text/html")), data(s, b"<html>", end=True)],
        "protocol_error",
    ),
    FrameFault("answers HTTP 503", lambda s: [head(s, "503"), data(s, b"as said", end=True)], "http_error"),
    FrameFault("resets with REFUSED_STREAM", lambda s: [reset(s, REFUSED)], "truncated", again=True),
    FrameFault("resets with CANCEL", lambda s: [reset(s, 8)], "truncated"),
    FrameFault("resets with INTERNAL_ERROR", lambda s: [reset(s, 2)], "truncated"),
    FrameFault(
        "resets with NO_ERROR after a reply",
        lambda s: [head(s, "200", KIND), data(s, _message(REPLY)), reset(s, 0)],
        "truncated",
    ),
    FrameFault(
        "closes after a reply",
        lambda s: [head(s, "200", KIND), data(s, _message(REPLY)), cut],
        "truncated",
        spills=True,
    ),
    FrameFault(
        "stops after a reply", lambda s: [head(s, "200", KIND), data(s, _message(REPLY))], "timeout", target=SHORT
    ),
]
