"""Latencies as the clients of the field see them, and ours, against the simulated cluster at more than 200 ms."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benches.client import PLAIN_RESPONSE
from benches.lib.bars import Bar
from benches.lib.cluster import pinned_cluster
from benches.lib.context import Context
from benches.lib.kserve import (
    GRPC_RESPONSE,
    MODEL_INFER,
    WIDTH,
    binary_body,
    infer_request,
    simulated_model,
    write_inputs,
)
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.lib.records import column
from benches.lib.stats import Interval, bootstrap_median
from benches.lib.turns import alternate, two_sided, whole_range
from benches.sections.cpu import closed
from benches.sections.sse import OPENAI_RESPONSE

__all__ = ["clients"]

BOUND = 0.05
SERVICE_S = 0.22
TOKENS = 11
CLUSTER: dict[str, Any] = {
    "gpus": 1,
    "iteration_base_s": SERVICE_S / TOKENS,
    "iteration_per_sequence_s": 0.0,
    "prefill_per_token_s": 0.0,
    "output_tokens": {"fixed": {"tokens": TOKENS}},
    "tensor_models": [simulated_model(SERVICE_S)],
}
CHAT = {
    "model": "simulated",
    "messages": [{"role": "user", "content": "How many GPUs does it take?"}],
    "stream": True,
}
_P50 = re.compile(r"p50 latency: (\d+) usec")

Turn = Callable[[], float]
"""A turn of some requests, one after the other; the median latency in seconds."""


class _Clients:
    """All the clients, told where the cluster listens."""

    def __init__(self, ctx: Context, url: str, grpc_url: str) -> None:
        self._ctx = ctx
        self._http, self._grpc = (int(urlsplit(each).port or 0) for each in (url, f"//{grpc_url}"))
        self._count = ctx.size(5, 3)

    def chat(self) -> float:
        """Ours, OpenAI."""
        headers = [["Content-Type", "application/json"]]
        target = {"path": "/v1/chat/completions", "headers": headers, "response": OPENAI_RESPONSE}
        return self._ours(self._http, target, json.dumps(CHAT).encode())

    def http(self) -> float:
        """Ours, KServe over HTTP."""
        headers, body = binary_body()
        target = {"path": "/v2/models/double/infer", "headers": headers, "response": PLAIN_RESPONSE}
        return self._ours(self._http, target, body)

    def grpc(self) -> float:
        """Ours, KServe over gRPC."""
        target = {"path": MODEL_INFER, "transport": "grpc", "response": GRPC_RESPONSE}
        return self._ours(self._grpc, target, infer_request())

    def _ours(self, port: int, target: dict[str, Any], body: bytes) -> float:
        folder = self._ctx.fresh_dir("records")
        asked = {
            "port": port,
            "target": {"method": "POST", **target},
            "segments": [{"field": 0}],
            "rows": [base64.b64encode(body).decode()],
            "load": closed(1),
            "stop": {"count": self._count + 1},
            "dir": str(folder),
        }
        self._ctx.run_client(asked)
        # The first request is on a new connection; the peers' first one does not count either.
        latencies_ns = column(folder, "end_ns - sent_ns")[1:]
        return float(median(latencies_ns)) / 1e9

    def openai(self) -> float:
        """The ``openai`` package."""
        return self._program("openai_latency", self._http, self._count)

    def tritonclient(self, protocol: str) -> float:
        """``tritonclient`` over HTTP or gRPC."""
        port = self._http if protocol == "http" else self._grpc
        return self._program("triton_latency", protocol, port, self._count, WIDTH)

    def _program(self, name: str, *words: object) -> float:
        command = [peer_program("clients"), "-m", f"benches.programs.{name}", *map(str, words)]
        return float(median(json.loads(run_measured(pinned(command, self._ctx.client_core)).stdout)))

    def perf_analyzer(self, program: str, protocol: str) -> float:
        """perf_analyzer over HTTP or gRPC."""
        inputs = write_inputs(self._ctx.scratch / "inputs.json")
        port = self._http if protocol == "http" else self._grpc
        words = ["-m", "double", "-i", protocol, "-u", f"127.0.0.1:{port}", "--concurrency-range", "1"]
        words += ["--input-data", str(inputs), "--request-count", str(self._count)]
        said = run_measured(pinned([program, *words], self._ctx.client_core)).stdout
        found = _P50.search(said)
        if found is None:
            raise BenchFailed(f"perf_analyzer told no median:\n{said[-1000:]}")
        return int(found[1]) / 1e6


def clients(ctx: Context) -> None:
    """Each peer in turn, in alternating rounds with us; a bar for each."""
    rows: list[list[object]] = []
    ratios: dict[str, list[float]] = {}
    absent: dict[str, str] = {}
    with pinned_cluster(ctx.server_core, **CLUSTER) as cluster:
        all_of_them = _Clients(ctx, cluster.url, cluster.grpc_url)
        for name, theirs, ours in _pairs(all_of_them, absent):
            peer_s, own_s = alternate(ctx.size(5, 1), theirs, ours, _teller(name))
            ratios[name] = [b / a for a, b in zip(peer_s, own_s, strict=True)]
            shown = [whole_range([each * 1e3 for each in side]) for side in (peer_s, own_s)]
            rows.append([name, *shown, bootstrap_median(ratios[name])])
    rows += [[name, why, "", ""] for name, why in absent.items()]
    note = (
        f"Simulated cluster, {SERVICE_S * 1e3:.0f} ms of service, one request at a time; the median of "
        f"{ctx.size(5, 3)} requests in each of {ctx.size(5, 1)} alternating rounds. Intervals of times are "
        "whole ranges."
    )
    ctx.report.table("latency", ["peer", "peer, ms", "gpusize, ms", "gpusize / peer"], rows, note)
    for name, found in ratios.items():
        two_sided(ctx, f"latency_vs_{name}_error", found, BOUND)
    for name in absent:
        ctx.report.bar(Bar(f"latency_vs_{name}_error", Interval(math.nan, math.nan, math.nan), BOUND))


def _teller(name: str) -> Callable[[float, float], str]:
    return lambda a, b: f"{name} {a * 1e3:.2f} ms, gpusize {b * 1e3:.2f} ms"


def _pairs(each: _Clients, absent: dict[str, str]) -> list[tuple[str, Turn, Turn]]:
    """Peers by name with their turn and ours; perf_analyzer goes to ``absent`` where it could not be had."""
    found: list[tuple[str, Turn, Turn]] = [
        ("openai", each.openai, each.chat),
        ("tritonclient_http", lambda: each.tritonclient("http"), each.http),
        ("tritonclient_grpc", lambda: each.tritonclient("grpc"), each.grpc),
    ]
    try:
        program = peer_program("clients", "perf_analyzer", "perf_analyzer")
    except BenchFailed as missing:
        absent.update({f"perf_analyzer_{protocol}": str(missing) for protocol in ("http", "grpc")})
        return found
    return [
        *found,
        ("perf_analyzer_http", lambda: each.perf_analyzer(program, "http"), each.http),
        ("perf_analyzer_grpc", lambda: each.perf_analyzer(program, "grpc"), each.grpc),
    ]
