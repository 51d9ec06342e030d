"""NVIDIA's perf_analyzer and gpusize against the same simulated cluster: as many requests, with the same tensors."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import gpusize
from tests.peers.calls import Programs
from tests.peers.inferences import KserveServer, see, write_inputs
from tests.peers.sizing import Gpusize
from tests.servers.tap import Tap

Tapped = Callable[[int], Tap]

REQUESTS = 40
ROWS = [[1.5, 2.5, -3.25], [0.5, 7.25], [-1.0]]
MODEL = {
    "name": "double",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    "operation": "double",
    "max_batch_size": 0,
    "base_s": 0.002,
    "per_item_s": 0.0,
}
APIS = {"http": "kserve", "grpc": "kserve-grpc"}


@pytest.fixture
def server(cluster: Callable[..., gpusize.SimulatedCluster]) -> KserveServer:
    served = cluster(tensor_models=[MODEL])
    return KserveServer.of_cluster(served)


def analyze(tool: Path, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Run perf_analyzer; its requests with their tensors."""
    export = folder / "export.json"
    command: list[str | Path] = [
        tool,
        "-m",
        "double",
        *options,
        "--request-count",
        str(REQUESTS),
        "--profile-export-file",
        export,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    (level,) = json.loads(export.read_text())["experiments"]
    requests: list[dict[str, Any]] = level["requests"]
    return requests


def elements(exported: float | list[float]) -> list[float]:
    """perf_analyzer writes a tensor of one element as a bare number."""
    return exported if isinstance(exported, list) else [exported]


def counted(pairs: Iterable[tuple[list[float], list[list[float]]]]) -> Counter[str]:
    """How often which input got which outputs."""
    return Counter(json.dumps(pair) for pair in pairs)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("protocol", APIS)
def test_it_completes_and_agrees(
    protocol: str,
    concurrency: int,
    server: KserveServer,
    perf_analyzer: Path,
    tapped: Tapped,
    sizing: Gpusize,
    program: Programs,
) -> None:
    api = APIS[protocol]
    path = write_inputs(sizing.folder / "inputs.json", "x", ROWS)
    url = f"127.0.0.1:{server.port(api)}"
    options = ("-u", url, "-i", protocol, "--concurrency-range", str(concurrency), "--input-data", str(path))
    theirs = analyze(perf_analyzer, sizing.folder, *options)
    assert len(theirs) == REQUESTS == server.answered("double")
    seen = see(
        server, api, "double", path,
        count=REQUESTS, concurrency=concurrency, sizing=sizing, tapped=tapped, program=program,
    )  # fmt: skip
    assert server.answered("double") == 2 * REQUESTS + 1
    assert seen.records.height == REQUESTS
    if concurrency == 1:
        # With several slots each tool has its own order through the rows.
        asked = [elements(request["request_inputs"]["x"]) for request in theirs]
        assert asked == [inputs["x"]["data"] for inputs, _ in seen.inferences]
    told_them = counted(
        (elements(each["request_inputs"]["x"]), [elements(one["y"]) for one in each["response_outputs"]])
        for each in theirs
    )
    told_us = counted(
        (inputs["x"]["data"], [one["y"]["data"] for one in outputs]) for inputs, outputs in seen.inferences
    )
    assert set(told_us) == set(told_them) == set(counted((row, [[2 * value for value in row]]) for row in ROWS))
    assert told_us.total() == told_them.total() == REQUESTS
