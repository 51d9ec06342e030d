"""Calls through ``tritonclient``, HTTP or gRPC, as a user writes them. A line of JSON in, one out.

In: ``{"protocol": "http" | "grpc", "url": "host:port", "calls": [{"do": ..., "model": ..., ...}]}``; what can be done
is in ``Calls``. Out: per call its answer, or ``{"error", "status"}``.
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import (
    InferenceServerException,
    np_to_triton_dtype,
    triton_to_np_dtype,
)

PATIENCE_S = 30


class Calls:
    """What can be asked for; a method each."""

    def __init__(self, protocol: str, url: str) -> None:
        self.http = protocol == "http"
        self.kind = triton_http if self.http else triton_grpc
        self.client = self.kind.InferenceServerClient(url)
        self._json = {} if self.http else {"as_json": True}

    def live(self, **_: Any) -> Any:
        return self.client.is_server_live()

    def ready(self, model: str) -> Any:
        return self.client.is_model_ready(model)

    def server(self, **_: Any) -> Any:
        return self.client.get_server_metadata(**self._json)

    def metadata(self, model: str) -> Any:
        return self.client.get_model_metadata(model, **self._json)

    def config(self, model: str) -> Any:
        answer = self.client.get_model_config(model, **self._json)
        return answer if self.http else answer["config"]

    def statistics(self, model: str) -> Any:
        return self.client.get_inference_statistics(model, **self._json)

    def index(self, **_: Any) -> Any:
        answer = self.client.get_model_repository_index(**self._json)
        return answer if self.http else answer["models"]

    def infer(
        self, model: str, inputs: list[dict[str, Any]], outputs: list[str] | None = None, *, binary: bool = True
    ) -> Any:
        flag = {"binary_data": binary} if self.http else {}
        asked = [self.kind.InferRequestedOutput(name, **flag) for name in outputs] if outputs else None
        answer = self.client.infer(model, [self._tensor(each, flag) for each in inputs], outputs=asked)
        return told(answer, self.http)

    def stream(self, model: str, inputs: list[dict[str, Any]], replies: int) -> Any:
        """Over one ModelStreamInfer; ``replies`` answers are waited for."""
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client.start_stream(callback=lambda result, error: answers.put((result, error)))
        try:
            self.client.async_stream_infer(model, [self._tensor(each, {}) for each in inputs])
            found = [answers.get(timeout=PATIENCE_S) for _ in range(replies)]
        finally:
            self.client.stop_stream()
        return [refused(error) if error else told(result, http=False) for result, error in found]

    def _tensor(self, wanted: dict[str, Any], flag: dict[str, bool]) -> Any:
        kind = triton_to_np_dtype(wanted["datatype"])
        data = [each.encode() for each in wanted["data"]] if wanted["datatype"] == "BYTES" else wanted["data"]
        tensor = self.kind.InferInput(wanted["name"], wanted["shape"], wanted["datatype"])
        tensor.set_data_from_numpy(np.array(data, dtype=kind).reshape(wanted["shape"]), **flag)
        return tensor


def told(answer: Any, http: bool) -> dict[str, Any]:
    """An answer's model and tensors."""
    shown = answer.get_response() if http else answer.get_response(as_json=True)
    tensors = {each["name"]: answer.as_numpy(each["name"]) for each in shown.get("outputs", [])}
    return {"model": shown["model_name"], "outputs": {name: plain(array) for name, array in tensors.items()}}


def plain(array: Any) -> dict[str, Any]:
    values = [each.decode() if isinstance(each, bytes) else each for each in array.ravel().tolist()]
    return {"datatype": np_to_triton_dtype(array.dtype), "shape": list(array.shape), "data": values}


def refused(error: Any) -> dict[str, Any]:
    return {"error": error.message(), "status": error.status()}


def answered(wanted: dict[str, Any]) -> list[Any]:
    calls = Calls(wanted["protocol"], wanted["url"])
    answers = []
    for call in wanted["calls"]:
        try:
            answers.append(getattr(calls, call.pop("do"))(**call))
        except InferenceServerException as error:
            answers.append(refused(error))
    calls.client.close()
    return answers


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
