"""Metrics that a HorizontalPodAutoscaler asks for: a server of the external metrics API, known to the API server."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx

from tests.servers.kube.objects import create, until
from tests.servers.tls import make_certificates

__all__ = ["Asked", "ExternalMetrics"]

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
PATH = f"/apis/{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question for one metric.

    Attributes:
        metric: its name.
        at_ns: when it was answered, in ns since 1970.
        values: what was answered, in thousandths; None where the answer was an error.
    """

    metric: str
    at_ns: int
    values: list[int] | None


class ExternalMetrics:
    """Answers the HPA controller, and keeps what it has answered. A context manager.

    Args:
        folder: for its certificates.
        tell: the values of a metric, in thousandths, each time that it is asked for; None to fail.
    """

    def __init__(self, folder: Path, tell: Callable[[str], list[int] | None]) -> None:
        folder.mkdir()
        self.asked: list[Asked] = []
        self._tell = tell
        self._lock = threading.Lock()
        certificates = make_certificates(folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates.certificate, certificates.key)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, client: httpx.Client) -> None:
        """Let the API server pass questions on to it. A service by a name of DNS stands for it, as loopback cannot."""
        port = self._server.server_address[1]
        service = {
            "metadata": {"name": "external-metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        }
        create(client, "/api/v1/namespaces/default/services", service)
        named = {
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"name": "external-metrics", "namespace": "default", "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }
        create(client, "/apis/apiregistration.k8s.io/v1/apiservices", named)
        until(lambda: client.get(PATH).status_code, lambda status: status == httpx.codes.OK)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and document for a path."""
        if path == PATH:
            return 200, {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [],
            }
        if not path.startswith(f"{PATH}/namespaces/"):
            return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
        metric = path.rsplit("/", 1)[1]
        # One question at a time: what is told depends on how often a metric was asked for.
        with self._lock:
            values = self._tell(metric)
            self.asked.append(Asked(metric, time.time_ns(), values))
        if values is None:
            return 500, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "no metric"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        items = [{"metricName": metric, "metricLabels": {}, "timestamp": now, "value": f"{value}m"} for value in values]
        return 200, {
            "kind": "ExternalMetricValueList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": items,
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, document = metrics.answer(self.path.partition("?")[0])
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
