"""The simulated cluster as a KServe server, and the messages of the protocol from Python."""

from __future__ import annotations

import json
import socket
import struct
import urllib.request
from typing import Any

import pytest

from gpusize.base.errors import TargetError, UsageError
from gpusize.engine.session import core
from gpusize.targets.simulated.cluster import SimulatedCluster


def infer(url: str, model: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"id": "7", "inputs": inputs}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/{model}/infer", body, timeout=30) as response:
        return dict(json.loads(response.read()))


def test_it_serves_tensors_over_http_and_listens_for_grpc() -> None:
    with SimulatedCluster({"gpus": 1}) as cluster:
        answer = infer(
            cluster.url, "double", [{"name": "INPUT", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2]}]
        )
        assert answer["id"] == "7"
        assert answer["outputs"] == [{"name": "OUTPUT", "datatype": "FP32", "shape": [1, 2], "data": [3.0, -4.0]}]
        host, _, port = cluster.grpc_url.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as stream:
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4))
            # The first frame of an HTTP/2 server is its settings: type 4.
            assert stream.recv(9)[3] == 4


def test_both_ports_can_be_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        http_port, grpc_port = one.getsockname()[1], other.getsockname()[1]
    with SimulatedCluster(port=http_port, grpc_port=grpc_port) as cluster:
        assert (cluster.url, cluster.grpc_url) == (f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}")


def test_requests_are_encoded_and_responses_decoded() -> None:
    request = {"model_name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2]}]}
    raw = struct.pack("<2f", 1.0, 2.0)
    message = core().kserve_encode("ModelInfer", json.dumps(request), [raw])
    assert message == b"\x0a\x01m\x2a\x0c\x0a\x01x\x12\x04FP32\x1a\x01\x02\x3a\x08" + raw
    # A response with the name in field 1 and a raw tensor in field 6.
    response = b"\x0a\x01m\x32\x08" + raw
    shown = json.loads(core().kserve_decode("ModelInfer", response))
    assert (shown["model_name"], shown["raw_output_contents"]) == ("m", [8])
    assert core().kserve_raw_outputs(response) == [raw]


def test_what_cannot_be_encoded_or_decoded() -> None:
    with pytest.raises(UsageError, match="there is no method Infer"):
        core().kserve_encode("Infer", "{}", [])
    with pytest.raises(UsageError, match="unknown field `model`"):
        core().kserve_encode("ModelInfer", '{"model": "m"}', [])
    with pytest.raises(TargetError, match="no ModelMetadata response"):
        core().kserve_decode("ModelMetadata", b"<html>")
