"""Requests and answers of the KServe protocol, for clients and servers of which one side is not under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benches.client import PLAIN_RESPONSE

__all__ = [
    "GRPC_METADATA",
    "GRPC_RESPONSE",
    "MODEL_INFER",
    "binary_body",
    "infer_reply",
    "infer_request",
    "simulated_model",
    "write_inputs",
]

MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
GRPC_RESPONSE: dict[str, Any] = {**PLAIN_RESPONSE, "framing": "kserve"}
GRPC_METADATA = (("content-type", "application/grpc"), ("te", "trailers"))
"""What gpusize sends with every call."""

WIDTH = 16


def simulated_model(service_s: float, instances: int = 1) -> dict[str, Any]:
    """``double`` of the simulated cluster: one tensor of floats in, one out."""
    tensor = {"datatype": "FP32", "shape": [-1]}
    return {
        "name": "double",
        "inputs": [{"name": "x", **tensor}],
        "outputs": [{"name": "y", **tensor}],
        "operation": "double",
        "max_batch_size": 0,
        "instances": instances,
        "base_s": service_s,
        "per_item_s": 0.0,
    }


def write_inputs(path: Path) -> Path:
    """The request's tensor as perf_analyzer's input file."""
    content = {"content": [1.0] * WIDTH, "shape": [WIDTH]}
    path.write_text(json.dumps({"data": [{"x": content}]}), encoding="utf-8")
    return path


def binary_body() -> tuple[list[list[str]], bytes]:
    """Headers and body of an inference over HTTP with the binary extension."""
    raw = _floats()
    tensor = {"name": "x", "shape": [WIDTH], "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    headers = [["Content-Type", "application/octet-stream"], ["Inference-Header-Content-Length", str(len(head))]]
    return headers, head + raw


def infer_request() -> bytes:
    """A ModelInferRequest for ``double``: its name (field 1), one input (5) and that one's bytes (7)."""
    return _field(1, b"double") + _field(5, _tensor(b"x")) + _field(7, _floats())


def infer_reply() -> bytes:
    """The ModelInferResponse to it: name and version (fields 1 and 2), one output (5) and its bytes (6)."""
    return _field(1, b"double") + _field(2, b"1") + _field(5, _tensor(b"y")) + _field(6, _floats())


def _floats() -> bytes:
    return b"\x00\x00\x80\x3f" * WIDTH


def _tensor(name: bytes) -> bytes:
    """Name, datatype and shape; the shape's whole numbers are packed."""
    return _field(1, name) + _field(2, b"FP32") + _field(3, bytes([WIDTH]))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of protobuf, short enough for a length of one byte."""
    if len(content) > 127:
        raise ValueError(f"field {number} holds {len(content)} bytes, at most 127 are written here")
    return bytes([number << 3 | 2, len(content)]) + content
