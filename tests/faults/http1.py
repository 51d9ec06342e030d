"""Faults of HTTP/1.1 below its content: connections, heads, framings and time."""

from __future__ import annotations

from tests.faults.matrix import Fault
from tests.servers.scripted import Close, Read, Reset, Send, Step, Wait, answer, chunked

__all__ = ["FAULTS", "SHORT_NS"]

OK = b"HTTP/1.1 200 OK\r\n"
TWO = b"Content-Length: 2\r\n\r\nok"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SHORT_NS = 2_000_000_000
"""The timeout of faults of time. Servers that are slow on purpose wait until the client gives up.

The requests between those have it too, and must be answered in it however busy the machine is.
"""

SHORT = {"timeout_ns": SHORT_NS}


def _close(*before: bytes) -> list[Step]:
    return [*(Send(each) for each in before), Close()]


def _reset(*before: bytes) -> list[Step]:
    return [*(Send(each) for each in before), Reset()]


def _stay(*before: bytes) -> list[Step]:
    return [*(Send(each) for each in before), Wait()]


CONNECTIONS = [
    Fault("closes without a byte", _close(), "truncated", again=True),
    Fault("resets without a byte", _reset(), "truncated", again=True),
    Fault("closes inside the status line", _close(b"HTTP/1."), "truncated"),
    Fault("resets inside the status line", _reset(b"HTTP/1."), "truncated"),
    Fault("closes inside the head", _close(OK + b"Content-Le"), "truncated"),
    Fault("resets inside the head", _reset(OK + b"Content-Le"), "truncated"),
    Fault("closes after 100 Continue", _close(b"HTTP/1.1 100 Continue\r\n\r\n"), "truncated"),
    Fault("closes in the body", _close(OK + b"Content-Length: 10\r\n\r\nshort"), "truncated"),
    Fault("resets in the body", _reset(OK + b"Content-Length: 10\r\n\r\nshort"), "truncated"),
    Fault("closes in a chunk", _close(OK + CHUNKED + b"a\r\nshort"), "truncated"),
    Fault("resets in a chunk", _reset(OK + CHUNKED + b"a\r\nshort"), "truncated"),
    Fault("closes between chunks", _close(OK + CHUNKED + b"2\r\nok\r\n"), "truncated"),
    Fault("closes after the last chunk's size", _close(OK + CHUNKED + b"2\r\nok\r\n0\r\n"), "truncated"),
    Fault("closes in the trailers", _close(OK + CHUNKED + b"2\r\nok\r\n0\r\nDigest: "), "truncated"),
    Fault("resets a body that ends by close", _reset(OK + b"\r\nuntil the end"), "truncated"),
    Fault("closes after a whole answer without saying so", [Send(answer()), Close()], "ok"),
    Fault("resets after a whole answer", [Send(answer()), Read(), Reset()], "ok"),
    Fault("says close and keeps the connection", _stay(answer(headers=["Connection: close"])), "ok"),
    Fault("sends a second answer that nobody asked for", [Send(answer() + answer(b"extra"))], "ok"),
    Fault("sends more than its length", [Send(OK + b"Content-Length: 2\r\n\r\nokGARBAGE")], "ok"),
]

HEADS = [
    Fault("speaks SSH", _stay(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "protocol_error"),
    Fault("speaks TLS", _stay(b"\x15\x03\x01\x00\x02\x02\x16" + b"\x00" * 8 + b"\r\n\r\n"), "protocol_error"),
    Fault("speaks HTTP/2", _stay(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 4 + b"\r\n\r\n"), "protocol_error"),
    Fault("sends zeros", _stay(b"\x00" * 64 + b"\r\n\r\n"), "protocol_error"),
    Fault("speaks HTTP/0.9", _close(b"<html>hello</html>"), "protocol_error"),
    Fault("speaks HTTP/9.9", _stay(b"HTTP/9.9 200 OK\r\n" + TWO), "protocol_error"),
    Fault("spells http in small letters", _stay(b"http/1.1 200 ok\r\n" + TWO), "protocol_error"),
    Fault("has a status of letters", _stay(b"HTTP/1.1 2x0 OK\r\n" + TWO), "protocol_error"),
    Fault("has a status of two digits", _stay(b"HTTP/1.1 20 OK\r\n" + TWO), "protocol_error"),
    Fault("has a status of four digits", _stay(b"HTTP/1.1 2000 OK\r\n" + TWO), "protocol_error"),
    Fault("has a negative status", _stay(b"HTTP/1.1 -20 OK\r\n" + TWO), "protocol_error"),
    Fault("has no status", _stay(b"HTTP/1.1\r\n" + TWO), "protocol_error"),
    Fault("has status 000", _stay(b"HTTP/1.1 000 OK\r\n" + TWO), "protocol_error"),
    Fault("has status 999", _stay(b"HTTP/1.1 999 OK\r\n" + TWO), "protocol_error"),
    Fault("has no reason", [Send(b"HTTP/1.1 200 \r\n" + TWO)], "ok"),
    Fault("has no reason and no blank", [Send(b"HTTP/1.1 200\r\n" + TWO)], "ok"),
    Fault("has a header without a colon", _stay(OK + b"this is none\r\n" + TWO), "protocol_error"),
    Fault("has a header without a name", _stay(OK + b": value\r\n" + TWO), "protocol_error"),
    Fault("has a blank in a header's name", _stay(OK + b"X A: b\r\n" + TWO), "protocol_error"),
    Fault("has a blank before a colon", _stay(OK + b"X-A : b\r\n" + TWO), "protocol_error"),
    Fault("folds a header", [Send(OK + b"X-A: b\r\n c\r\n" + TWO)], "ok"),
    Fault("has NUL in a header", _stay(OK + b"X-A: \x00\r\n" + TWO), "protocol_error"),
    Fault("has a bare CR in a header", _stay(OK + b"X-A: a\rb\r\n" + TWO), "protocol_error"),
    Fault("has bytes beyond ASCII in a header", [Send(OK + b"X-A: \xe4\xff\r\n" + TWO)], "ok"),
    Fault("has a head of 1 MiB", _stay(OK + b"X-A: " + b"a" * (1 << 20) + b"\r\n" + TWO), "protocol_error"),
    Fault("has 5,000 headers", _stay(OK + b"X: a\r\n" * 5000 + TWO), "protocol_error"),
    Fault("never ends its head", _stay(OK + b"X-More: a\r\n" * 20_000), "protocol_error"),
    Fault("switches protocols", _stay(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"), "protocol_error"),
    Fault(
        "says 100, 102 and 103 first",
        [Send(b"".join(b"HTTP/1.1 %d X\r\n\r\n" % n for n in (100, 102, 103)) + OK + TWO)],
        "ok",
    ),
    Fault("says 100 for ever", _stay(b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000), "timeout", target=SHORT),
]

LENGTHS = [
    Fault(
        f"has Content-Length {value!r}",
        _stay(OK + b"Content-Length: " + value.encode() + b"\r\n\r\nok"),
        "protocol_error",
    )
    for value in ("-1", "+2", "2.0", "0x2", "two", "", "2 2", "2,3", "9" * 26, str(1 << 64), "1e1")
] + [
    Fault(
        "has two lengths that differ", _stay(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "protocol_error"
    ),
    Fault("has the same length twice", [Send(OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok")], "ok"),
    Fault("has a length beyond the limit", _stay(OK + b"Content-Length: 9999999999\r\n\r\n"), "protocol_error"),
    Fault(
        "has a length and chunks",
        [Send(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")],
        "ok",
    ),
    Fault("has a coding that is unknown, to the end", _close(OK + b"Transfer-Encoding: gzip\r\n\r\nxx"), "ok"),
    Fault("says chunked twice", [Send(OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n")], "ok"),
    Fault(
        "is nearly chunked, and stays open",
        _stay(OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        "timeout",
        target=SHORT,
    ),
    Fault("has 204 and a body", [Send(b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n")], "ok"),
]


def _chunks(text: bytes) -> list[Step]:
    return _stay(OK + CHUNKED + text)


CHUNKS = [
    Fault("has a chunk size of letters", _chunks(b"xyz\r\nabc\r\n0\r\n\r\n"), "protocol_error"),
    Fault("has a negative chunk size", _chunks(b"-2\r\nok\r\n0\r\n\r\n"), "protocol_error"),
    Fault("has an empty chunk size", _chunks(b"\r\nok\r\n0\r\n\r\n"), "protocol_error"),
    Fault("has a chunk size beyond 64 bits", _chunks(b"f" * 17 + b"\r\nok"), "protocol_error"),
    Fault("announces a chunk beyond the limit and stops", _chunks(b"fffffffff\r\nok"), "timeout", target=SHORT),
    Fault("has a chunk size with a prefix", _chunks(b"0x2\r\nok\r\n0\r\n\r\n"), "protocol_error"),
    Fault("has a chunk longer than its size", _chunks(b"2\r\nokay\r\n0\r\n\r\n"), "protocol_error"),
    Fault("has an endless chunk extension", _chunks(b"2;" + b"x" * 200_000), "protocol_error"),
    Fault("has endless trailers", _chunks(b"2\r\nok\r\n0\r\n" + b"X-A: b\r\n" * 20_000), "protocol_error"),
    Fault("has zeros before a chunk size", [Send(OK + CHUNKED + b"0002\r\nok\r\n0\r\n\r\n")], "ok"),
    Fault(
        "has a chunk extension",
        [Send(answer(chunked([b"ok"], extension=';a="b"'), headers=["Transfer-Encoding: chunked"], length=False))],
        "ok",
    ),
    Fault(
        "has a trailer",
        [Send(answer(chunked([b"ok"], trailer="X: y"), headers=["Transfer-Encoding: chunked"], length=False))],
        "ok",
    ),
    Fault("has no chunk", [Send(answer(chunked([]), headers=["Transfer-Encoding: chunked"], length=False))], "ok"),
    Fault(
        "sends 3,000 chunks of one byte",
        [Send(answer(chunked([b"a"] * 3000), headers=["Transfer-Encoding: chunked"], length=False))],
        "ok",
    ),
]

SIZES = [
    Fault("has a body beyond the limit", _stay(answer(b"a" * 5000)), "protocol_error", target={"max_body_bytes": 4096}),
    Fault(
        "has chunks beyond the limit",
        _stay(answer(chunked([b"a" * 1000] * 5), headers=["Transfer-Encoding: chunked"], length=False)),
        "protocol_error",
        target={"max_body_bytes": 4096},
    ),
    Fault(
        "has a body beyond the limit that ends by close",
        _stay(OK + b"\r\n" + b"a" * 5000),
        "protocol_error",
        target={"max_body_bytes": 4096},
    ),
    Fault("has an empty body", [Send(answer(b""))], "ok"),
    Fault("has a body that ends by close", _close(OK + b"\r\nuntil the end"), "ok"),
    Fault("speaks HTTP/1.0", _close(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), "ok"),
]

TIMES = [
    Fault("says nothing", _stay(), "timeout", target=SHORT),
    Fault("stops inside the head", _stay(OK + b"Content-"), "timeout", target=SHORT),
    Fault("stops after the head", _stay(OK + b"Content-Length: 2\r\n\r\n"), "timeout", target=SHORT),
    Fault("stops inside the body", _stay(OK + b"Content-Length: 2\r\n\r\no"), "timeout", target=SHORT),
    Fault("stops inside a chunk", _stay(OK + CHUNKED + b"5\r\no"), "timeout", target=SHORT),
    Fault("stops before the last chunk", _stay(OK + CHUNKED + b"2\r\nok\r\n"), "timeout", target=SHORT),
    Fault("never ends a body that ends by close", _stay(OK + b"\r\nok"), "timeout", target=SHORT),
    Fault(
        "drips a head, byte by byte",
        [Send(OK + b"X: " + b"a" * 400, piece=1, gap_s=0.01), Wait()],
        "timeout",
        target=SHORT,
    ),
    Fault(
        "drips a body, byte by byte",
        [Send(OK + b"Content-Length: 400\r\n\r\n"), Send(b"a" * 399, piece=1, gap_s=0.01), Wait()],
        "timeout",
        target=SHORT,
    ),
    Fault("sends 100 Continue and stops", _stay(b"HTTP/1.1 100 Continue\r\n\r\n"), "timeout", target=SHORT),
    Fault("pauses inside the head", [Send(OK), Send(TWO, piece=7, gap_s=0.002)], "ok"),
]

STATUSES = [
    Fault(f"answers {status}", [Send(answer(b'{"error": "as said"}', status=f"{status} X"))], "http_error", "as said")
    for status in (300, 301, 307, 400, 401, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529)
] + [
    Fault(
        "answers 500 in chunks",
        [
            Send(
                answer(chunked([b"as ", b"said"]), status="500 X", headers=["Transfer-Encoding: chunked"], length=False)
            )
        ],
        "http_error",
        "as said",
    ),
    Fault("answers 500 and closes", _close(b"HTTP/1.1 500 X\r\n\r\nas said"), "http_error", "as said"),
    Fault("answers 500 without a body", [Send(answer(b"", status="500 X"))], "http_error"),
    Fault("answers 500 and breaks off", _close(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\nas"), "truncated"),
    Fault("answers 500 with 1 MiB", [Send(answer(b"e" * (1 << 20), status="500 X"))], "http_error"),
    Fault(
        "answers 503 with bytes that are not text", [Send(answer(b"\xff\x00\x1b[31m", status="503 X"))], "http_error"
    ),
    Fault("answers 304", [Send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")], "http_error"),
    *(Fault(f"answers {status}", [Send(answer(status=f"{status} X"))], "ok") for status in (200, 201, 202, 206, 299)),
]

FAULTS = [*CONNECTIONS, *HEADS, *LENGTHS, *CHUNKS, *SIZES, *TIMES, *STATUSES]
