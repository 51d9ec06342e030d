"""The real servers, tried with their own clients: no fault of theirs may look like gpusize's."""

from __future__ import annotations

import urllib.request

import pytest

from tests.peers.calls import Programs
from tests.servers.pytriton import PyTriton

X = {"name": "x", "datatype": "FP32", "shape": [3], "data": [1.0, -2.5, 0.0]}
TEXTS = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["héllo", ""]}
COUNT = {"name": "n", "datatype": "INT32", "shape": [1], "data": [3]}


def address(server: PyTriton, protocol: str) -> str:
    return f"127.0.0.1:{server.http_port if protocol == 'http' else server.grpc_port}"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_triton_answers_its_own_client(protocol: str, triton: PyTriton, program: Programs) -> None:
    calls = [
        {"do": "live"},
        {"do": "ready", "model": "double"},
        {"do": "ready", "model": "absent"},
        {"do": "metadata", "model": "batched"},
        {"do": "config", "model": "sleep_4"},
        {"do": "infer", "model": "double", "inputs": [X]},
        {"do": "infer", "model": "double", "inputs": [X], "outputs": ["y"], "binary": False},
        {"do": "infer", "model": "echo", "inputs": [TEXTS]},
        {"do": "infer", "model": "sleep_1", "inputs": [X]},
        {"do": "infer", "model": "absent", "inputs": [X]},
        {"do": "statistics", "model": "double"},
    ]
    wanted = {"protocol": protocol, "url": address(triton, protocol), "calls": calls}
    live, ready, absent, metadata, config, *inferred, wrong, unknown, statistics = program("triton_calls.py", wanted)
    assert (live, ready, absent) == (True, True, False)
    assert [int(each) for each in metadata["inputs"][0]["shape"]] == [-1, 64]
    assert [int(group["count"]) for group in config["instance_group"]] == [4]
    doubled = {"datatype": "FP32", "shape": [3], "data": [2.0, -5.0, 0.0]}
    assert [each["outputs"] for each in inferred[:2]] == [{"y": doubled}] * 2
    assert inferred[2]["outputs"]["text"] == {"datatype": "BYTES", "shape": [2], "data": ["héllo", ""]}
    assert inferred[2]["outputs"]["bytes"]["data"] == [6, 0]
    assert "unexpected shape for input 'x'" in wrong["error"]
    assert "unknown model: 'absent'" in unknown["error"]
    assert int(statistics["model_stats"][0]["inference_stats"]["success"]["count"]) >= 2


def test_a_decoupled_model_answers_as_often_as_asked(triton: PyTriton, program: Programs) -> None:
    call = {"do": "stream", "model": "count", "inputs": [COUNT], "replies": 3}
    (replies,) = program("triton_calls.py", {"protocol": "grpc", "url": address(triton, "grpc"), "calls": [call]})
    assert [reply["outputs"]["i"]["data"] for reply in replies] == [[0], [1], [2]]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_restricted_statistics(protocol: str, restricted_triton: PyTriton, program: Programs) -> None:
    calls = [{"do": "statistics", "model": "double"}, {"do": "infer", "model": "double", "inputs": [X]}]
    wanted = {"protocol": protocol, "url": address(restricted_triton, protocol), "calls": calls}
    refused, answered = program("triton_calls.py", wanted)
    assert "is restricted, expecting header" in refused["error"]
    assert answered["outputs"]["y"]["data"] == [2.0, -5.0, 0.0]


def test_triton_tells_its_metrics(triton: PyTriton) -> None:
    with urllib.request.urlopen(triton.metrics_url) as answer:
        text = answer.read().decode()
    assert 'nv_inference_request_success{model="sleep_1",version="1"}' in text
