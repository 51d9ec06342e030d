"""Programs that use the GPU by a known amount; each says on standard output what it did. They need PyTorch.

programs.py hold BYTES SECONDS         holds a tensor of this size
programs.py duty SHARE SECONDS         kernels for this share of every tenth of a second
programs.py serve                      answers POST with a fixed work of the GPU, one at a time, and prints its port
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

SIZE = 8192
SERVICE_S = 0.05
"""Of a request on the GPU, about."""
PERIOD_S = 0.1


class Work:
    """Matrix products; ``one`` is a single one's time."""

    def __init__(self) -> None:
        self.left = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty_like(self.left)
        for _ in range(20):
            torch.matmul(self.left, self.left, out=self.out)
        self.one = self.run(100) / 100

    def run(self, products: int) -> float:
        """Seconds on the GPU by its own events."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(products):
            torch.matmul(self.left, self.left, out=self.out)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def hold(size: int, seconds: float) -> None:
    held = torch.ones(size, device="cuda", dtype=torch.uint8)
    torch.cuda.synchronize()
    time.sleep(seconds)
    print(json.dumps({"held": held.numel()}))


def duty(share: float, seconds: float) -> None:
    work = Work()
    products = max(1, round(share * PERIOD_S / work.one))
    begun, spent = time.monotonic(), 0.0
    print(json.dumps({"ready": True}), flush=True)
    due = begun
    while due < begun + seconds:
        spent += work.run(products)
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))
    print(json.dumps({"busy_s": spent, "over_s": time.monotonic() - begun}))


def serve() -> None:
    work, turn = Work(), threading.Lock()
    products = round(SERVICE_S / work.one)
    log: list[tuple[float, float]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with turn:
                begun = time.monotonic()
                log.append((begun, work.run(products)))
            self.answer(b'{"text": "done"}')

        def do_GET(self) -> None:
            self.answer(json.dumps(log).encode())

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    {
        "hold": lambda: hold(int(numbers[0]), float(numbers[1])),
        "duty": lambda: duty(float(numbers[0]), float(numbers[1])),
        "serve": serve,
    }[what]()
