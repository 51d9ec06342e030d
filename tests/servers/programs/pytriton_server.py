"""Small numpy models behind a real Triton on CPU. Run by the interpreter of the peer ``triton``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

Tensors = dict[str, Any]

WIDTH = 64
SLEEP_S = 0.020
BATCH_SLEEP_S = 0.050
"""Long beside what a busy machine holds up: members of a batch are told by their ends, 15 ms apart at most."""
MAX_BATCH = 8
SIGMA = 0.6
"""Of the logarithm of varied times, whose median is that of the others."""
EACH_S = 0.004
"""What each member adds to a step."""


def sleeping(requests: list[Tensors]) -> list[Tensors]:
    """Each request by itself, 20 ms of nothing: the service time does not depend on the machine's cores."""
    answers = []
    for request in requests:
        time.sleep(SLEEP_S)
        answers.append({"y": request["x"] * np.float32(2)})
    return answers


def varied(requests: list[Tensors]) -> list[Tensors]:
    """As ``sleeping``, but each request has a time of its own."""
    answers = []
    for request in requests:
        time.sleep(SLEEP_S * np.random.default_rng().lognormal(0.0, SIGMA))
        answers.append({"y": request["x"] * np.float32(2)})
    return answers


@batch
def steps(x: Any) -> Tensors:
    """One step for a whole batch, which takes longer the larger it is."""
    time.sleep(SLEEP_S + EACH_S * len(x))
    return {"y": x * np.float32(2)}


@batch
def batched(x: Any) -> Tensors:
    """One step for a whole batch."""
    time.sleep(BATCH_SLEEP_S)
    return {"y": x * np.float32(2)}


def double(requests: list[Tensors]) -> list[Tensors]:
    """Twice its input, of any length."""
    return [{"y": request["x"] * np.float32(2)} for request in requests]


def echo(requests: list[Tensors]) -> list[Tensors]:
    """Texts as they came, and how many bytes each has."""
    return [
        {"text": request["text"], "bytes": np.array([len(each) for each in request["text"].ravel()], dtype=np.int64)}
        for request in requests
    ]


def count(requests: list[Tensors]) -> Iterator[list[Tensors]]:
    """Decoupled: as many answers as asked for, one after the other."""
    (request,) = requests
    for at in range(int(request["n"].ravel()[0])):
        yield [{"i": np.array([at], dtype=np.int32)}]


def models(instances: list[int]) -> dict[str, dict[str, Any]]:
    """What Triton's ``bind`` takes, by model; ``sleep_1``, ``varied_2`` and the like have so many instances."""
    alone = ModelConfig(batching=False)
    dynamic = ModelConfig(max_batch_size=MAX_BATCH, batcher=DynamicBatcher(max_queue_delay_microseconds=100))
    wide, any_length, one = (WIDTH,), (-1,), (1,)

    def floats(name: str, shape: tuple[int, ...]) -> Tensor:
        return Tensor(name=name, dtype=np.float32, shape=shape)

    def model(infer: Any, inputs: list[Tensor], outputs: list[Tensor], config: ModelConfig = alone) -> dict[str, Any]:
        return {"infer_func": infer, "inputs": inputs, "outputs": outputs, "config": config}

    texts = Tensor(name="text", dtype=np.bytes_, shape=any_length)
    lengths = Tensor(name="bytes", dtype=np.int64, shape=any_length)
    numbers = [Tensor(name=name, dtype=np.int32, shape=one) for name in ("n", "i")]
    return {
        **{f"sleep_{n}": model([sleeping] * n, [floats("x", wide)], [floats("y", wide)]) for n in instances},
        **{f"varied_{n}": model([varied] * n, [floats("x", wide)], [floats("y", wide)]) for n in instances},
        **{f"steps_{n}": model([steps] * n, [floats("x", wide)], [floats("y", wide)], dynamic) for n in instances},
        "batched": model(batched, [floats("x", wide)], [floats("y", wide)], dynamic),
        "double": model(double, [floats("x", any_length)], [floats("y", any_length)]),
        "echo": model(echo, [texts], [texts, lengths]),
        "count": model(count, numbers[:1], numbers[1:], ModelConfig(batching=False, decoupled=True)),
    }


def wait_for_end() -> None:
    """Returns at SIGTERM or Ctrl-C; both must reach the context manager, which ends Triton's own processes."""
    ended = threading.Event()
    handler: Callable[..., None] = lambda *_: ended.set()  # noqa: E731 - a handler is a value here
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)
    ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", type=int, required=True, help="port")
    parser.add_argument("--grpc", type=int, required=True, help="port")
    parser.add_argument("--metrics", type=int, required=True, help="port")
    parser.add_argument("--instances", default="1", help="sleep_N for each of these, as 1,2,4")
    parser.add_argument("--only", default="", help="serve only these models, as double,echo")
    parser.add_argument("--restricted", action="store_true", help="statistics and the like need a token, as by default")
    parser.add_argument("--ready-fd", type=int, required=True)
    options = parser.parse_args()
    config = TritonConfig(
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        http_port=options.http,
        grpc_port=options.grpc,
        metrics_port=options.metrics,
        allow_metrics=True,
        allow_gpu_metrics=False,
        metrics_interval_ms=200,
        exit_timeout_secs=20,
    )
    security = TritonSecurityConfig(restricted_endpoints=None if options.restricted else [])
    with Triton(config=config, security_config=security) as server:
        for name, model in models([int(n) for n in options.instances.split(",")]).items():
            if name in options.only.split(",") or not options.only:
                server.bind(model_name=name, strict=False, **model)
        server.run()
        ports = {"http": options.http, "grpc": options.grpc, "metrics": options.metrics}
        with os.fdopen(options.ready_fd, "w") as ready:
            print(json.dumps(ports), file=ready)
        wait_for_end()


if __name__ == "__main__":
    main()
