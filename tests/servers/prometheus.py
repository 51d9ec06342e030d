"""A stand-in for a Prometheus server as clusters have it: HTTPS with an authority of its own, and a token."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

from tests.servers.tls import Certificates

__all__ = ["SecuredPrometheus"]


@dataclass
class SecuredPrometheus:
    """Listens on loopback and answers ``/api/v1/query``; a context manager.

    Args:
        certificates: what it shows.
        token: the bearer token that it asks for.
        fails_from: the number of the pull, from 0, from which on it answers 503.

    Attributes:
        pulls: queries for series that it was asked, whatever it answered; the question before the run is none.
        refused: requests without the token.
    """

    certificates: Certificates
    token: str
    fails_from: int = 1 << 30
    pulls: int = 0
    refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates.certificate, self.certificates.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=True)
        # The handshake belongs to the connection's own thread: a client that refuses must not hold the next one.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, authorization: str | None, query: str) -> tuple[int, dict[str, Any]]:
        """Status and document for a query."""
        with self._lock:
            if authorization != f"Bearer {self.token}":
                self.refused += 1
                return 401, {"status": "error", "error": "no token, no series"}
            if query == "vector(1)":
                return 200, {"status": "success", "data": {"resultType": "vector", "result": []}}
            self.pulls += 1
            if self.pulls > self.fails_from:
                return 503, {"status": "error", "error": "shutting down"}
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": []}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        prometheus = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                try:
                    super().handle()
                except (ssl.SSLError, ConnectionError):
                    return  # a client that does not trust the certificate

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, document = prometheus.answer(self.headers.get("Authorization"), form["query"][0])
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler
