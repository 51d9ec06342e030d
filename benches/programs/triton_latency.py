"""Inferences through ``tritonclient``: ``triton_latency http|grpc PORT COUNT WIDTH`` prints seconds as JSON."""

from __future__ import annotations

import importlib
import json
import sys
import time

import numpy as np


def main(protocol: str, port: str, count: str, width: str) -> None:
    """One call to connect, which does not count, then the others."""
    library = importlib.import_module(f"tritonclient.{protocol}")
    client = library.InferenceServerClient(f"127.0.0.1:{port}")
    tensor = library.InferInput("x", [int(width)], "FP32")
    tensor.set_data_from_numpy(np.ones(int(width), dtype=np.float32))
    latencies_s = []
    for _ in range(int(count) + 1):
        start_s = time.perf_counter()
        answer = client.infer("double", [tensor]).as_numpy("y")
        latencies_s.append(time.perf_counter() - start_s)
        if (answer != 2).any():
            raise SystemExit(f"a wrong answer: {answer}")
    client.close()
    print(json.dumps(latencies_s[1:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
