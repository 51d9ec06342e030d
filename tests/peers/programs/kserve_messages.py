"""Protobuf messages of the KServe service, read with the classes of ``tritonclient``. A line of JSON in, one out.

In: ``{"stream": false, "calls": [{"asked": [base64, ...], "answered": [...]}]}``. Out: per inference its inputs and the
outputs of each answer; other calls are passed over.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

CONTENTS = {
    "BOOL": "bool_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT32": "uint_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def values(tensor: Any, raw: bytes | None) -> list[Any]:
    """A tensor's elements, from its own typed contents or from the raw ones beside it."""
    if raw is None:
        found = list(getattr(tensor.contents, CONTENTS[tensor.datatype]))
    elif tensor.datatype == "BYTES":
        found = list(deserialize_bytes_tensor(raw))
    else:
        found = np.frombuffer(raw, dtype=triton_to_np_dtype(tensor.datatype)).tolist()
    return [each.decode() if isinstance(each, bytes) else each for each in found]


def tensors(listed: Any, raws: Any) -> dict[str, Any]:
    sources = list(raws) if raws else [None] * len(listed)
    return {
        each.name: {"datatype": each.datatype, "shape": list(each.shape), "data": values(each, raw)}
        for each, raw in zip(listed, sources, strict=True)
    }


def outputs(data: bytes, stream: bool) -> dict[str, Any]:
    """The tensors of one answer."""
    message = (service_pb2.ModelStreamInferResponse if stream else service_pb2.ModelInferResponse).FromString(data)
    if stream:
        assert not message.error_message, message.error_message
        message = message.infer_response
    return tensors(message.outputs, message.raw_output_contents)


def messages(wanted: dict[str, Any]) -> list[Any]:
    found = []
    for call in wanted["calls"]:
        asked, answered = ([base64.b64decode(each) for each in call[side]] for side in ("asked", "answered"))
        request = service_pb2.ModelInferRequest.FromString(asked[0])
        # Questions about a model have its name and version in the same fields, and no tensors.
        if request.inputs:
            inputs = tensors(request.inputs, request.raw_input_contents)
            found.append((inputs, [outputs(each, wanted["stream"]) for each in answered]))
    return found


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(messages(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
