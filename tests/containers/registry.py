"""A registry of images with one image, on loopback, as much of one as ``docker pull`` asks for.

Source: the OCI distribution specification, pull; the image manifest, version 2, schema 2.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

__all__ = ["Registry"]

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry:
    """A running registry; a context manager.

    Args:
        tree: the image's one layer, a tar.
        closed: whether it wants a login that nobody has.
    """

    def __init__(self, tree: bytes, *, closed: bool = False) -> None:
        layer = gzip.compress(tree, 1)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": ["PATH=/bin"], "Cmd": ["true"]},
                "rootfs": {"type": "layers", "diff_ids": [_digest(tree)]},
                "history": [{"created": "2026-01-01T00:00:00Z"}],
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(config),
                    "digest": _digest(config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                        "size": len(layer),
                        "digest": _digest(layer),
                    }
                ],
            }
        ).encode()
        blobs = {_digest(each): each for each in (layer, config)}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if closed:
                    self._send(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}')
                elif self.path == "/v2/":
                    self._send(200, b"{}")
                elif "/manifests/" in self.path:
                    self._send(200, manifest, _MANIFEST)
                elif (found := blobs.get(self.path.rpartition("/")[2])) is not None:
                    self._send(200, found, "application/octet-stream")
                else:
                    self._send(404, b"{}")

            do_HEAD = do_GET

            def _send(self, code: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(code)
                if code == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="registry"')
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", _digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
