"""An HTTP server of 30 ms per answer on a loopback port, which fails as it is told to."""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER_S = 0.03


class Server(ThreadingHTTPServer):
    """Counts what it has in hand."""

    request_queue_size = 256

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", options.port), Handler)
        self.options = options
        self.lock = threading.Lock()
        self.requests = 0
        self.active = 0

    def status(self) -> int:
        """What the request that has just come gets."""
        if self.requests > self.options.fails_after:
            return 500
        return self.options.status if self.active > self.options.at_most else 200


class Handler(BaseHTTPRequestHandler):
    """One request after the other on a connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        """Answer, or fail at once."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.requests += 1
            self.server.active += 1
            status = self.server.status()
        if status == 200:
            time.sleep(ANSWER_S)
        body = json.dumps({"value": "yes"} if status == 200 else {"detail": "no"}).encode()
        with self.server.lock:
            self.server.active -= 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fails-after", type=int, default=10**9, help="requests until it answers 500 for good")
    parser.add_argument("--at-most", type=int, default=10**9, help="requests in hand; more get --status")
    parser.add_argument("--status", type=int, default=429)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-fd", type=int, required=True)
    server = Server(parser.parse_args())
    with os.fdopen(server.options.ready_fd, "w") as ready:
        print(json.dumps({"port": server.server_address[1]}), file=ready)
    server.serve_forever()


if __name__ == "__main__":
    main()
