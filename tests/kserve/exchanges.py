"""Recorded exchanges with a real server, and a transport of httpx that answers by them."""

import ast
import json
import re
from pathlib import Path
from typing import NamedTuple

import httpx

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kserve"
CONFIG = (FIXTURES / "model_config.json").read_bytes()
STATS = (FIXTURES / "triton_stats.json").read_bytes()

SPEC = {"host": "127.0.0.1", "port": 8000, "tls": None, "headers": [["User-Agent", "gpusize"]]}
"""What a client needs of the engine's TargetSpec."""


class Exchange(NamedTuple):
    method: str
    path: str
    request_headers: dict[str, str]
    request: bytes
    status: int
    headers: dict[str, str]
    body: bytes


def recorded() -> list[Exchange]:
    """All exchanges; long bodies were cut when they were recorded, short ones are whole."""
    text = (FIXTURES / "kserve_http_exchanges.txt").read_text()
    return [exchange(block) for block in text.strip().split("\n\n")]


def exchange(block: str) -> Exchange:
    sides: dict[str, tuple[dict[str, str], bytes]] = {}
    for mark in (">>>", "<<<"):
        lines = [line[4:] for line in block.splitlines() if line.startswith(mark)][1:]
        headers = dict(line.strip().split(": ", 1) for line in lines if re.match(r"\s+[\w-]+: ", line))
        bodies = [line.split("] ", 1)[1] for line in lines if line.strip().startswith("[")]
        sides[mark] = (headers, ast.literal_eval(bodies[0]) if bodies else b"")
    first = block.splitlines()[0].split()
    status = int(next(line for line in block.splitlines() if line.startswith("<<<")).split()[1])
    return Exchange(first[1], first[2], *sides[">>>"], status, *sides["<<<"])


def server(**answers: tuple[int, bytes] | None) -> httpx.MockTransport:
    """A server that answers as recorded.

    Args:
        answers: other answers by the end of the path; None: no such path.
    """
    known = {(one.method, one.path): (one.status, one.body) for one in recorded() if len(one.body) < 400}
    known["GET", "/v2/models/numpy_mlp/config"] = (200, CONFIG)
    known["GET", "/v2/models/stats"] = (200, STATS)
    known["POST", "/v2/repository/index"] = (200, json.dumps([{"name": "numpy_mlp"}, {"name": "other"}]).encode())

    def answer(request: httpx.Request) -> httpx.Response:
        own = answers.get(request.url.path.rsplit("/", 1)[1], known.get((request.method, request.url.path)))
        status, body = own or (404, b'{"error":"no such path"}')
        return httpx.Response(status, content=body)

    return httpx.MockTransport(answer)
