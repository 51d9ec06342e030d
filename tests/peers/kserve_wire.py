"""The tensors that went over a tap, read without gpusize's own code: HTTP here, gRPC by ``tritonclient``'s messages."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from tests.peers.calls import Programs
from tests.peers.wire import exchanges, grpc_messages
from tests.servers.tap import Tap

__all__ = ["INFERENCE_LENGTH", "grpc_inferences", "http_inferences", "http_tensors"]

KINDS = {"FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8", "BOOL": "?"}
INFERENCE_LENGTH = "inference-header-content-length"

Tensors = dict[str, Any]


def http_tensors(body: bytes, json_bytes: str | None, member: str) -> Tensors:
    """Datatype, shape and elements by name, of a request's ``inputs`` or an answer's ``outputs``.

    Args:
        body: the whole body.
        json_bytes: the header ``Inference-Header-Content-Length``, None where all is JSON.
        member: ``inputs`` or ``outputs``.
    """
    length = len(body) if json_bytes is None else int(json_bytes)
    head, rest = json.loads(body[:length]), body[length:]
    found = {}
    for each in head[member]:
        size = each.get("parameters", {}).get("binary_data_size")
        if size is None:
            data = _rounded(each["datatype"], _flat(each["data"]))
        else:
            data, rest = _values(each["datatype"], rest[:size]), rest[size:]
        found[each["name"]] = {"datatype": each["datatype"], "shape": each["shape"], "data": data}
    assert not rest, "bytes beyond the last tensor"
    return found


def _flat(data: list[Any]) -> list[Any]:
    return [value for each in data for value in (_flat(each) if isinstance(each, list) else [each])]


def _rounded(datatype: str, values: list[Any]) -> list[Any]:
    """JSON shows 0.1 where the server holds the nearest float32."""
    return values if datatype == "BYTES" else list(np.array(values, dtype=KINDS[datatype]).tolist())


def _values(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        return list(np.frombuffer(raw, dtype=KINDS[datatype]).tolist())
    texts = []
    while raw:
        length = int.from_bytes(raw[:4], "little")
        texts.append(raw[4 : 4 + length].decode())
        raw = raw[4 + length :]
    return texts


def http_inferences(tap: Tap) -> list[tuple[Tensors, list[Tensors]]]:
    """Inputs and outputs of each inference over a closed tap, in order; other calls are passed over."""
    return [
        (
            http_tensors(each.request, each.headers.get(INFERENCE_LENGTH), "inputs"),
            [http_tensors(each.response, each.response_headers.get(INFERENCE_LENGTH), "outputs")],
        )
        for each in exchanges(tap)
        if each.path.endswith("/infer")
    ]


def grpc_inferences(tap: Tap, program: Programs, *, stream: bool) -> list[tuple[Tensors, list[Tensors]]]:
    """As `http_inferences`; with ``stream``, each ModelStreamInfer may have several answers."""
    listed = []
    for connection in tap.connections:
        answered = grpc_messages(connection.answered)
        for number, asked in grpc_messages(connection.asked).items():
            sides = {"asked": asked, "answered": answered.get(number, [])}
            listed.append({side: [base64.b64encode(each).decode() for each in said] for side, said in sides.items()})
    told = program("kserve_messages.py", {"stream": stream, "calls": listed})
    return [(inputs, outputs) for inputs, outputs in told]
