"""A TLS server that breaks the rules, and its faults. Real TLS by Python's ssl; what lies below it is said as bytes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.http1 import SHORT_NS
from tests.faults.listener import Listener
from tests.servers.tls import Certificates, sign

__all__ = ["FAULTS", "TlsFault", "TlsServer"]

SHORT = {"connect_timeout_ns": SHORT_NS, "timeout_ns": SHORT_NS}
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"

Talk = Callable[["TlsServer", socket.socket], None]


@dataclass(frozen=True)
class TlsFault:
    """What the server does with each connection, and what every request's row says then."""

    does: str
    talk: Talk
    outcome: str
    says: str = ""
    target: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.does

    @property
    def waits(self) -> bool:
        """Whether it is one of time: each request waits for its timeout."""
        return self.outcome == "timeout"


class TlsServer(Listener):
    """``requests`` are those that came in whole."""

    def __init__(self, talk: Talk, certificates: Certificates) -> None:
        self.talk, self.certificates = talk, certificates
        self.requests: list[bytes] = []
        super().__init__()

    def serve(self, connection: socket.socket, number: int) -> None:
        self.talk(self, connection)

    def context(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate or self.certificates.certificate, key or self.certificates.key)
        return context

    def read_request(self, connection: socket.socket) -> bool:
        got = b""
        while b"}" not in got:
            piece = connection.recv(65_536)
            if not piece:
                return False
            got += piece
        self.requests.append(got)
        return True


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _says(text: bytes) -> Talk:
    def talk(server: TlsServer, connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(text)
        server.ended.wait()

    return talk


def _closes(server: TlsServer, connection: socket.socket) -> None:
    connection.recv(4096)


def _resets(server: TlsServer, connection: socket.socket) -> None:
    connection.recv(1)
    _reset(connection)


def _silent(server: TlsServer, connection: socket.socket) -> None:
    server.ended.wait()


def _half_hello(server: TlsServer, connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x16\x03\x03\x00\x7a\x02\x00\x00")


def _with_context(change: Callable[[ssl.SSLContext], None]) -> Talk:
    def talk(server: TlsServer, connection: socket.socket) -> None:
        context = server.context()
        change(context)
        _answers(server, context.wrap_socket(connection, server_side=True))

    return talk


def _named(name: str, *more: str) -> Talk:
    def talk(server: TlsServer, connection: socket.socket) -> None:
        certificate, key = sign(server.certificates, name, *more)
        _answers(server, server.context(certificate, key).wrap_socket(connection, server_side=True))

    return talk


def _answers(server: TlsServer, secured: ssl.SSLSocket) -> None:
    with secured:
        while server.read_request(secured):
            secured.sendall(GOOD)


def _without_shared_cipher(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA")


def _after_handshake(said: bytes, then: Callable[[TlsServer, ssl.SSLSocket], None]) -> Talk:
    def talk(server: TlsServer, connection: socket.socket) -> None:
        with server.context().wrap_socket(connection, server_side=True) as secured:
            if server.read_request(secured):
                secured.sendall(said)
                then(server, secured)

    return talk


def _drops(server: TlsServer, secured: ssl.SSLSocket) -> None:
    """Close the TCP connection without the alert that TLS closes with."""
    raw = socket.socket(fileno=secured.detach())
    raw.shutdown(socket.SHUT_WR)
    raw.close()


def _resets_inside(server: TlsServer, secured: ssl.SSLSocket) -> None:
    _reset(socket.socket(fileno=secured.detach()))


def _ends_in_order(server: TlsServer, secured: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError), secured.unwrap():
        return


def _garbles(server: TlsServer, secured: ssl.SSLSocket) -> None:
    raw = socket.socket(fileno=secured.detach())
    raw.sendall(b"\x17\x03\x03\x00\x20" + b"\x00" * 32)
    server.ended.wait()
    raw.close()


def _waits(server: TlsServer, secured: ssl.SSLSocket) -> None:
    server.ended.wait()


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nbegun"

FAULTS = [
    TlsFault("speaks HTTP in the clear", _says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), "tls_error"),
    TlsFault("sends zeros", _says(bytes(64)), "tls_error"),
    TlsFault("closes at the hello", _closes, "tls_error"),
    TlsFault("resets at the hello", _resets, "tls_error"),
    TlsFault("says nothing to the hello", _silent, "timeout", target=SHORT),
    TlsFault("closes inside its hello", _half_hello, "tls_error"),
    TlsFault("sends an alert: handshake failure", _says(b"\x15\x03\x03\x00\x02\x02\x28"), "tls_error"),
    TlsFault("sends an alert: unrecognized name", _says(b"\x15\x03\x03\x00\x02\x02\x70"), "tls_error"),
    TlsFault("sends an alert: protocol version", _says(b"\x15\x03\x01\x00\x02\x02\x46"), "tls_error"),
    TlsFault("shares no cipher", _with_context(_without_shared_cipher), "tls_error"),
    TlsFault("has a certificate for another name", _named("elsewhere.example"), "tls_error"),
    TlsFault("has a certificate that has expired", _named("localhost", "expired"), "tls_error", "expired"),
    TlsFault("has a certificate that signed itself", _named("localhost", "itself"), "tls_error"),
    TlsFault("closes in the body without an alert", _after_handshake(BEGUN, _drops), "truncated"),
    TlsFault("closes in the body in order", _after_handshake(BEGUN, _ends_in_order), "truncated"),
    TlsFault("resets in the body", _after_handshake(BEGUN, _resets_inside), "truncated"),
    TlsFault("ends a body by closing without an alert", _after_handshake(TO_THE_END, _drops), "truncated"),
    TlsFault("ends a body by closing in order", _after_handshake(TO_THE_END, _ends_in_order), "ok"),
    TlsFault(
        "sends a record that cannot be decrypted", _after_handshake(BEGUN, _garbles), "truncated", "cannot decrypt"
    ),
    TlsFault("stops in the body", _after_handshake(BEGUN, _waits), "timeout", target={"timeout_ns": SHORT_NS}),
]
