"""gpusize as a client of a KServe server, and what was really said on the way."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import gpusize
from tests.peers.calls import Programs
from tests.peers.kserve_wire import Tensors, grpc_inferences, http_inferences
from tests.peers.sizing import Gpusize
from tests.servers.tap import Tap

if TYPE_CHECKING:
    import polars as pl

__all__ = ["APIS", "KserveServer", "Seen", "address", "is_grpc", "see", "write_inputs"]

APIS = ["kserve-json", "kserve", "kserve-grpc", "kserve-grpc-stream"]


@dataclass(frozen=True)
class KserveServer:
    """Where a KServe server listens on loopback."""

    http_port: int
    grpc_port: int

    @classmethod
    def of_cluster(cls, cluster: gpusize.SimulatedCluster) -> Self:
        """Those of a simulated cluster."""
        return cls(int(urlsplit(cluster.url).port or 0), int(cluster.grpc_url.rpartition(":")[2]))

    def port(self, api: str) -> int:
        """The port for an API of gpusize."""
        return self.grpc_port if is_grpc(api) else self.http_port

    def target(self, api: str, model: str) -> tuple[str, ...]:
        """The options that name it and nothing else."""
        return ("--url", address(self.port(api), api), "--api", api, "--model", model, "--metrics-url", "none")

    def answered(self, model: str) -> int:
        """Requests that the server itself counts as answered well."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/models/{model}/stats") as answer:
            (stats,) = json.load(answer)["model_stats"]
        return int(stats["inference_stats"]["success"]["count"])


@dataclass(frozen=True)
class Seen:
    """A run of one level: gpusize's records, and the tensors of each request and its answers, in the order sent."""

    records: pl.DataFrame
    inferences: list[tuple[Tensors, list[Tensors]]]


def is_grpc(api: str) -> bool:
    return api.startswith("kserve-grpc")


def address(port: int, api: str) -> str:
    return f"{'grpc' if is_grpc(api) else 'http'}://127.0.0.1:{port}"


def write_inputs(path: Path, name: str, rows: list[list[Any]]) -> Path:
    """The rows as perf_analyzer writes its input file."""
    path.write_text(json.dumps({"data": [{name: {"content": row, "shape": [len(row)]}} for row in rows]}))
    return path


def see(
    server: KserveServer,
    api: str,
    model: str,
    path: Path,
    *,
    count: int,
    concurrency: int = 1,
    sizing: Gpusize,
    tapped: Callable[[int], Tap],
    program: Programs,
) -> Seen:
    """Send ``count`` requests through a tap; the one that gpusize sends before it starts is left out."""
    tap = tapped(server.port(api))
    through = KserveServer(tap.port, tap.port)
    load = ("--concurrencies", concurrency, "--count", count)
    records = sizing.measured(*through.target(api, model), "--input", path, *load).records
    tap.close()
    found = grpc_inferences(tap, program, stream=api.endswith("stream")) if is_grpc(api) else http_inferences(tap)
    assert len(found) == count + 1
    return Seen(records, found[1:])
