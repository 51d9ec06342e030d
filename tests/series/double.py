"""A double of a Prometheus server on loopback: it answers range selectors and fails as it is told to."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

__all__ = ["Asked", "Double", "Fault", "html", "matrix", "refusal", "truncated"]

_RANGE = re.compile(r"(?P<selector>\{.*\})\[(?P<ms>[0-9]+)ms\]\Z", re.DOTALL)
_NAMES = re.compile(r'__name__=(?P<regex>~?)"(?P<names>[^"]*)"')


@dataclass(frozen=True)
class Asked:
    """One question that came."""

    path: str
    form: dict[str, str]

    @property
    def interval(self) -> tuple[int, int]:
        """What a range selector asks for, in ms, open on the left."""
        found = _RANGE.fullmatch(self.form["query"])
        assert found is not None, self.form
        high = round(float(self.form["time"]) * 1e3)
        return high - int(found["ms"]), high


Fault = Callable[[Asked], "tuple[int, dict[str, str], bytes] | None"]
"""Says what is answered instead: status, headers, body; None for the right answer."""


def refusal(
    status: int, error: str = "", headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """An answer as Prometheus refuses."""
    body = json.dumps({"status": "error", "errorType": "execution", "error": error}).encode()
    return status, {"Content-Type": "application/json", **(headers or {})}, body


def html(status: int = 200, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """A page for people, such as a login."""
    return status, {"Content-Type": "text/html", **(headers or {})}, b"<html>log in</html>"


def truncated() -> tuple[int, dict[str, str], bytes]:
    """The connection ends in the middle of the body."""
    return 200, {"Content-Type": "application/json", "Content-Length": "5000"}, b'{"status":"success","data":{"resu'


def matrix(series: list[dict[str, Any]]) -> tuple[int, dict[str, str], bytes]:
    """An answer with series."""
    body = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@dataclass
class Double:
    """Listens on loopback; a context manager.

    Args:
        series: name and labels, as a dict with ``__name__``, and samples: (ms, value as it is sent).
        now_ms: its clock.
        fault: what it does instead of answering.

    Attributes:
        asked: the questions for series.
        times: questions for the time.
    """

    series: list[tuple[dict[str, str], list[tuple[int, str]]]] = field(default_factory=list)
    now_ms: int = 1_700_000_000_000
    fault: Fault | None = None
    asked: list[Asked] = field(default_factory=list)
    times: int = 0
    tokens: list[str | None] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wall_ns(self) -> int:
        """Its clock, for whoever should have the same."""
        return self.now_ms * 1_000_000

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        with self._lock:
            if asked.form["query"] == "time()":
                self.times += 1
                told = self.fault(asked) if self.fault is not None else None
                if told is not None:
                    return told
                value = [self.now_ms / 1e3, f"{self.now_ms / 1e3:.3f}"]
                body = {"status": "success", "data": {"resultType": "scalar", "result": value}}
                return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()
            self.asked.append(asked)
            told = self.fault(asked) if self.fault is not None else None
            return self._series(asked) if told is None else told

    def _series(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        assert asked.path == "/api/v1/query"
        low, high = asked.interval
        found = _NAMES.search(asked.form["query"])
        assert found is not None
        wanted = set(found["names"].split("|"))
        result = []
        for labels, samples in self.series:
            # Closed on the left, as before version 3: the reader has to leave the first one out.
            values = [[ms / 1e3, text] for ms, text in samples if low <= ms <= high]
            if labels["__name__"] in wanted and values:
                result.append({"metric": labels, "values": values})
        return matrix(result)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = {
                    name: value
                    for name, (value, *_) in parse_qs(
                        self.rfile.read(int(self.headers["Content-Length"])).decode()
                    ).items()
                }
                self._answer(Asked(self.path, form))

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                self._answer(Asked(path, {name: value for name, (value, *_) in parse_qs(query).items()}))

            def _answer(self, asked: Asked) -> None:
                double.tokens.append(self.headers.get("Authorization"))
                status, headers, body = double.answer(asked)
                if status == 0:  # it is down
                    self.close_connection = True
                    return
                if status == 405 and self.command == "GET":
                    status, headers, body = (
                        double._series(asked) if "time()" not in str(asked) else (200, headers, body)
                    )
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                if int(headers.get("Content-Length", len(body))) != len(body):
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler
