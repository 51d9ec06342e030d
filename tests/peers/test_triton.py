"""gpusize as a client of a real Triton: sweeps that obey Little's law, tensors that arrive, refusals in plain words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from tests.peers.calls import Programs
from tests.peers.inferences import APIS, KserveServer, address, is_grpc, see, write_inputs
from tests.peers.sizing import Gpusize
from tests.servers.pytriton import PyTriton
from tests.servers.tap import Tap

Tapped = Callable[[int], Tap]

CONCURRENCIES = [1, 2, 4, 8, 16]
PASSES = 10
SLEEP_S = 0.020

VALUES: list[list[Any]] = [[1.0, -2.5, 0.0], [3.25], [0.1, 2.0, 4.0, 1e30]]
TEXTS: list[list[Any]] = [["héllo", ""], ["plain"]]


@pytest.fixture
def server(triton: PyTriton) -> KserveServer:
    return KserveServer(triton.http_port, triton.grpc_port)


def most_in_flight(level: pl.DataFrame) -> int:
    """The largest number of requests between their first write and their last read."""
    steps = pl.concat([level.select(at=at, step=pl.lit(step)) for at, step in (("end_ns", -1), ("sent_ns", 1))])
    return int(steps.sort("at", "step")["step"].cum_sum().max())  # type: ignore[arg-type]


# Instances and protocol have nothing to do with each other: each of one with one of the other.
@pytest.mark.parametrize("api, instances", [*((api, 2) for api in APIS), (APIS[0], 1), (APIS[-1], 4)])
def test_sweeps_obey_littles_law(api: str, instances: int, server: KserveServer, sizing: Gpusize) -> None:
    model = f"sleep_{instances}"
    before = server.answered(model)
    load = ("--concurrencies", ",".join(map(str, CONCURRENCIES)), "--passes", PASSES)
    done = sizing.measured(*server.target(api, model), "--input", "random", *load)
    assert [row["n"] for row in done.summary] == [PASSES * concurrency for concurrency in CONCURRENCIES]
    # One more: gpusize asks once before it starts.
    assert server.answered(model) - before == PASSES * sum(CONCURRENCIES) + 1
    for row in done.summary:
        assert row["little_ratio"] == pytest.approx(1, abs=0.02), row["concurrency"]
    records = done.records
    assert int((records["end_ns"] - records["sent_ns"]).min()) >= SLEEP_S * 1e9  # type: ignore[arg-type]
    levels = records.partition_by("visit", maintain_order=True)
    assert [most_in_flight(level) for level in levels] == CONCURRENCIES


@pytest.mark.parametrize(
    "model, tensor, datatype, rows", [("double", "x", "FP32", VALUES), ("echo", "text", "BYTES", TEXTS)]
)
@pytest.mark.parametrize("api", APIS)
def test_tensors_are_those_of_tritonclient(
    api: str,
    model: str,
    tensor: str,
    datatype: str,
    rows: list[list[Any]],
    server: KserveServer,
    tapped: Tapped,
    sizing: Gpusize,
    program: Programs,
) -> None:
    wanted = [{"name": tensor, "datatype": datatype, "shape": [len(row)], "data": row} for row in rows]
    calls = [{"do": "infer", "model": model, "inputs": [each]} for each in wanted]
    protocol = "grpc" if is_grpc(api) else "http"
    theirs = program("triton_calls.py", {"protocol": protocol, "url": f"127.0.0.1:{server.port(api)}", "calls": calls})
    path = write_inputs(sizing.folder / "inputs.json", tensor, rows)
    seen = see(server, api, model, path, count=len(rows), sizing=sizing, tapped=tapped, program=program)
    assert [outputs for _, outputs in seen.inferences] == [[answer["outputs"]] for answer in theirs]
    assert [inputs[tensor]["shape"] for inputs, _ in seen.inferences] == [[len(row)] for row in rows]
    assert seen.records["row"].to_list() == list(range(len(rows)))


def test_a_decoupled_model_gives_an_event_for_each_answer(
    server: KserveServer, tapped: Tapped, sizing: Gpusize, program: Programs
) -> None:
    counts = [1, 3, 7]
    path = sizing.folder / "inputs.json"
    path.write_text(json.dumps({"data": [{"n": [count]} for count in counts]}))
    seen = see(
        server, "kserve-grpc-stream", "count", path, count=len(counts), sizing=sizing, tapped=tapped, program=program
    )
    assert seen.records["events"].to_list() == counts
    assert [[each["i"]["data"] for each in outputs] for _, outputs in seen.inferences] == [
        [[number] for number in range(count)] for count in counts
    ]


@pytest.mark.parametrize("api", APIS)
def test_an_unknown_model(api: str, server: KserveServer, sizing: Gpusize) -> None:
    done = sizing.run(*server.target(api, "absent"), "--input", "random")
    assert done.code == 3
    assert 'no model "absent"' in done.complaint
    assert not (sizing.folder / "runs").exists()


@pytest.mark.parametrize("api", APIS)
def test_a_shape_that_the_model_does_not_take(api: str, server: KserveServer, sizing: Gpusize) -> None:
    path = write_inputs(sizing.folder / "inputs.json", "x", [[1.0, 2.0, 3.0]])
    done = sizing.run(*server.target(api, "sleep_1"), "--input", path)
    assert done.code == 2
    assert "sleep_1 expects [64]" in done.complaint
    assert not (sizing.folder / "runs").exists()


@pytest.mark.parametrize("api", APIS)
def test_an_input_that_the_model_does_not_have(api: str, server: KserveServer, sizing: Gpusize) -> None:
    path = write_inputs(sizing.folder / "inputs.json", "z", [[1.0]])
    done = sizing.run(*server.target(api, "double"), "--input", path)
    assert done.code == 2
    assert 'double has no input "z"' in done.complaint
    assert not (sizing.folder / "runs").exists()


@pytest.mark.parametrize(
    "body, said",
    [
        (
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]},
            "unexpected shape for input 'x'",
        ),
        ({"inputs": [{"name": "z", "datatype": "FP32", "shape": [1], "data": [1]}]}, "unexpected inference input 'z'"),
    ],
)
def test_the_servers_own_refusals_are_shown(
    body: dict[str, Any], said: str, server: KserveServer, sizing: Gpusize
) -> None:
    url = f"http://127.0.0.1:{server.http_port}/v2/models/sleep_1/infer"
    done = sizing.run(
        "--url", url, "--api", "generic", "--prompt", "x", "--body-template", json.dumps(body), "--no-stream"
    )
    assert done.code == 3
    assert "400" in done.complaint
    assert said in done.complaint


@pytest.mark.parametrize("api", APIS)
def test_restricted_statistics_are_a_note_and_no_failure(
    api: str, restricted_triton: PyTriton, sizing: Gpusize
) -> None:
    server = KserveServer(restricted_triton.http_port, restricted_triton.grpc_port)
    wanted = ("--url", address(server.port(api), api), "--api", api, "--model", "double")
    inputs = ("--input", "random", "--shape", "x:4")
    done = sizing.measured(*wanted, *inputs, "--concurrencies", "1,2", "--count", "20")
    assert [row["n"] for row in done.summary] == [20, 20]
    told = json.dumps([done.err, done.document["warnings"], done.document["alerts"]])
    assert "is restricted" in told
