"""The HTTP/2 server of the benchmarks, asked by the engine."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benches.lib.host import ROOT
from benches.lib.kserve import GRPC_METADATA, GRPC_RESPONSE, MODEL_INFER, infer_reply, infer_request
from benches.lib.peers import build_tools
from benches.sections.cpu import closed
from gpusize.engine.session import core


@pytest.fixture(scope="module")
def canned_h2() -> str:
    return build_tools().canned_h2


def load(command: list[str], asked: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The client's outcome, and what the server said after its port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        argument = json.dumps({"port": port, "load": closed(6), "stop": {"count": 30}, **asked})
        client = [sys.executable, "-m", "benches.client", argument]
        done = subprocess.run(client, cwd=ROOT, capture_output=True, text=True, check=False)
        server.terminate()
        said = [json.loads(line) for line in server.stdout]
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), said


def test_plain_answers(canned_h2: str) -> None:
    outcome, (head, served) = load([canned_h2, "--port", "0"], {"target": {"transport": "http2", "streams": 3}})
    assert outcome["outcomes"] == {"ok": 30}
    assert outcome["connects"] == 2
    assert (head["method"], head["path"]) == ("GET", "/")
    assert served == {"requests": 30, "broken": 0}


def test_grpc_answers_with_its_message_and_its_status(canned_h2: str, tmp_path: Path) -> None:
    reply = tmp_path / "reply.bin"
    reply.write_bytes(infer_reply())
    asked = {
        "target": {"transport": "grpc", "method": "POST", "path": MODEL_INFER, "response": GRPC_RESPONSE},
        "segments": [{"field": 0}],
        "rows": [base64.b64encode(infer_request()).decode()],
    }
    outcome, (head, served) = load([canned_h2, "--port", "0", "--message", str(reply)], asked)
    assert outcome["outcomes"] == {"ok": 30}
    assert (head["method"], head["path"]) == ("POST", MODEL_INFER)
    assert {tuple(field) for field in head["headers"]} >= set(GRPC_METADATA)
    assert served == {"requests": 30, "broken": 0}


def test_the_messages_are_the_protocols() -> None:
    model, tensor = {"model_name": "double"}, {"name": "x", "datatype": "FP32", "shape": [16]}
    raw = b"\x00\x00\x80\x3f" * 16
    assert core().kserve_encode("ModelInfer", json.dumps({**model, "inputs": [tensor]}), [raw]) == infer_request()
    told = json.loads(core().kserve_decode("ModelInfer", infer_reply()))
    assert (told["model_name"], told["model_version"], told["raw_output_contents"]) == ("double", "1", [64])
    assert told["outputs"][0]["shape"] == [16]
