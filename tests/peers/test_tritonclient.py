"""``tritonclient`` and the simulated cluster: it is served as by Triton, and sees the tensors that gpusize sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpusize
from tests.peers.calls import Programs
from tests.peers.inferences import APIS, KserveServer, is_grpc, see, write_inputs
from tests.peers.sizing import Gpusize
from tests.servers.tap import Tap

Tapped = Callable[[int], Tap]


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


QUICK = {"base_s": 0.0005, "per_item_s": 0.0}
MODELS: list[dict[str, Any]] = [
    {
        "name": "double",
        "inputs": [tensor("x", "FP32", -1)],
        "outputs": [tensor("y", "FP32", -1)],
        "operation": "double",
    },
    {
        "name": "echo",
        "inputs": [tensor("text", "BYTES", -1), tensor("n", "INT64", 2)],
        "outputs": [tensor("text_out", "BYTES", -1), tensor("n_out", "INT64", 2)],
        "operation": "copy",
    },
    {
        "name": "batched",
        "inputs": [tensor("x", "FP32", 4)],
        "outputs": [tensor("y", "FP32", 4)],
        "operation": "double",
        "max_batch_size": 8,
        "dynamic_batching": True,
        "instances": 3,
    },
    {
        "name": "count",
        "inputs": [tensor("n", "INT32", 1)],
        "outputs": [tensor("i", "INT32", 1)],
        "operation": "copy",
        "decoupled_replies": 3,
    },
]
UNBATCHED = {"max_batch_size": 0, "dynamic_batching": False, **QUICK}

X = {**tensor("x", "FP32", 3), "data": [1.0, -2.5, 0.1]}
ECHO = [{**tensor("text", "BYTES", 2), "data": ["héllo", ""]}, {**tensor("n", "INT64", 2), "data": [-1, 2**53 + 1]}]


@pytest.fixture
def server(cluster: Callable[..., gpusize.SimulatedCluster]) -> KserveServer:
    """A simulated cluster with four models."""
    served = cluster(tensor_models=[{**UNBATCHED, **model} for model in MODELS])
    return KserveServer.of_cluster(served)


def ask(program: Programs, server: KserveServer, protocol: str, *calls: dict[str, Any]) -> list[Any]:
    port = server.http_port if protocol == "http" else server.grpc_port
    answers: list[Any] = program(
        "triton_calls.py", {"protocol": protocol, "url": f"127.0.0.1:{port}", "calls": list(calls)}
    )
    return answers


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_it_says_of_itself(protocol: str, server: KserveServer, program: Programs) -> None:
    live, ready, absent, itself, metadata, config, index = ask(
        program,
        server,
        protocol,
        {"do": "live"},
        {"do": "ready", "model": "batched"},
        {"do": "ready", "model": "absent"},
        {"do": "server"},
        {"do": "metadata", "model": "batched"},
        {"do": "config", "model": "batched"},
        {"do": "index"},
    )
    assert (live, ready, absent) == (True, True, False)
    assert "statistics" in itself["extensions"]
    for member, name in (("inputs", "x"), ("outputs", "y")):
        (told,) = metadata[member]
        assert (told["name"], told["datatype"], [int(size) for size in told["shape"]]) == (name, "FP32", [-1, 4])
    assert int(config["max_batch_size"]) == 8
    assert sum(int(group["count"]) for group in config["instance_group"]) == 3
    assert "dynamic_batching" in config
    assert {model["name"] for model in index} == {str(model["name"]) for model in MODELS}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_inferences_and_their_statistics(protocol: str, server: KserveServer, program: Programs) -> None:
    batch = {**tensor("x", "FP32", 2, 4), "data": [float(each) for each in range(8)]}
    plain, doubled, echoed, batched, batches = ask(
        program,
        server,
        protocol,
        {"do": "infer", "model": "double", "inputs": [X], "outputs": ["y"], "binary": False},
        {"do": "infer", "model": "double", "inputs": [X]},
        {"do": "infer", "model": "echo", "inputs": ECHO},
        {"do": "infer", "model": "batched", "inputs": [batch]},
        {"do": "statistics", "model": "batched"},
    )
    assert plain == doubled
    (y,) = doubled["outputs"].values()
    assert (y["datatype"], y["shape"]) == ("FP32", [3])
    assert y["data"] == pytest.approx([2.0, -5.0, 0.2])
    assert echoed["outputs"]["text_out"] == {"datatype": "BYTES", "shape": [2], "data": ["héllo", ""]}
    assert echoed["outputs"]["n_out"] == {"datatype": "INT64", "shape": [2], "data": [-1, 2**53 + 1]}
    assert batched["outputs"]["y"] == {"datatype": "FP32", "shape": [2, 4], "data": [2.0 * each for each in range(8)]}
    (stats,) = batches["model_stats"]
    assert (int(stats["inference_count"]), int(stats["execution_count"])) == (2, 1)
    assert int(stats["inference_stats"]["success"]["count"]) == 1
    assert [int(each["batch_size"]) for each in stats["batch_stats"]] == [2]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_refusals(protocol: str, server: KserveServer, program: Programs) -> None:
    wide = {**tensor("x", "FP32", 9, 4), "data": [0.0] * 36}
    unknown, name, datatype, shape, batch = ask(
        program,
        server,
        protocol,
        {"do": "infer", "model": "absent", "inputs": [X]},
        {"do": "infer", "model": "double", "inputs": [{**X, "name": "z"}]},
        {"do": "infer", "model": "double", "inputs": [{**X, "datatype": "FP64"}]},
        {"do": "infer", "model": "batched", "inputs": [X]},
        {"do": "infer", "model": "batched", "inputs": [wide]},
    )
    statuses = ("404", "400") if protocol == "http" else ("StatusCode.NOT_FOUND", "StatusCode.INVALID_ARGUMENT")
    assert (unknown["status"], name["status"]) == statuses
    assert "absent" in unknown["error"]
    assert "'z'" in name["error"]
    assert "FP64" in datatype["error"]
    assert "'x'" in shape["error"]
    assert "8" in batch["error"]


def test_a_decoupled_model_over_a_stream(server: KserveServer, program: Programs) -> None:
    n = {**tensor("n", "INT32", 1), "data": [7]}
    (replies,) = ask(program, server, "grpc", {"do": "stream", "model": "count", "inputs": [n], "replies": 3})
    assert [reply["outputs"]["i"]["data"] for reply in replies] == [[7]] * 3


@pytest.mark.parametrize("api", APIS)
def test_gpusize_sees_the_same(
    api: str, server: KserveServer, tapped: Tapped, sizing: Gpusize, program: Programs
) -> None:
    rows = [[1.0, -2.5, 0.1], [3.25], [1e-30, 2.0]]
    wanted = [{**tensor("x", "FP32", len(row)), "data": row} for row in rows]
    protocol = "grpc" if is_grpc(api) else "http"
    theirs = ask(program, server, protocol, *({"do": "infer", "model": "double", "inputs": [each]} for each in wanted))
    path = write_inputs(sizing.folder / "inputs.json", "x", rows)
    before = server.answered("double")
    seen = see(server, api, "double", path, count=12, concurrency=3, sizing=sizing, tapped=tapped, program=program)
    assert server.answered("double") - before == len(seen.inferences) + 1
    by_shape = {tuple(answer["outputs"]["y"]["shape"]): answer["outputs"] for answer in theirs}
    assert len(by_shape) == len(rows)
    for inputs, outputs in seen.inferences:
        assert outputs == [by_shape[tuple(inputs["x"]["shape"])]]
    assert sorted(seen.records["row"].to_list()) == sorted(list(range(3)) * 4)


def test_gpusize_counts_the_replies_of_a_decoupled_model(
    server: KserveServer, tapped: Tapped, sizing: Gpusize, program: Programs
) -> None:
    path = write_inputs(sizing.folder / "inputs.json", "n", [[7]])
    seen = see(server, "kserve-grpc-stream", "count", path, count=5, sizing=sizing, tapped=tapped, program=program)
    assert seen.records["events"].to_list() == [3] * 5
    assert [[each["i"]["data"] for each in outputs] for _, outputs in seen.inferences] == [[[7]] * 3] * 5
