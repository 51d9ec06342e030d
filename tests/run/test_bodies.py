"""Forms, multipart bodies and replicas against servers that decode them with nothing of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import pytest

import gpusize
from gpusize.base.errors import TargetError

ROW = {"question": "Größe & more?", "tags": ["a", "b"], "limit": 3}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Decoder)
        self.seen: list[tuple[dict[str, Any], str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/decode"


class _Decoder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        kind = self.headers["Content-Type"]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if kind.startswith("multipart/"):
            whole = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
            fields: dict[str, Any] = {}
            for part in whole.iter_parts():
                name = str(part.get_param("name", header="content-disposition"))
                fields.setdefault(name, []).append((part.get_filename(), part.get_payload(decode=True)))
        else:
            fields = parse_qs(body.decode())
        cast("_Server", self.server).seen.append((fields, self.path))
        answer = json.dumps({"status": "done" if "question" in fields else "lacking"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name is the base class's
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def measure(target: gpusize.Target, row: dict[str, Any], out: Path) -> gpusize.Result:
    dataset = gpusize.Dataset.from_rows([row], key=".")
    return gpusize.run(target, dataset, gpusize.Load(concurrencies=(2,), count=4), out=out, metrics_url="none")


def test_a_form_arrives_as_it_was_meant(server: _Server, tmp_path: Path) -> None:
    kind = "application/x-www-form-urlencoded"
    rule = {"success_if": {"at": "/status", "is": ["done"]}}
    result = measure(gpusize.Target(server.url, content_type=kind, response=rule), ROW, tmp_path)
    assert set(result.records["outcome"]) == {"ok"}
    assert server.seen == [({"question": ["Größe & more?"], "tags": ["a", "b"], "limit": ["3"]}, "/decode")] * 5


def test_a_files_bytes_arrive_in_a_part(server: _Server, tmp_path: Path) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(bytes(range(256)))
    row = {**ROW, "sound": {"file": str(sound), "content_type": "audio/wav"}}
    result = measure(gpusize.Target(server.url, content_type="multipart/form-data"), row, tmp_path / "out")
    assert set(result.records["outcome"]) == {"ok"}
    fields, _ = server.seen[-1]
    assert fields["question"] == [(None, "Größe & more?".encode())]
    assert fields["sound"] == [("a.wav", bytes(range(256)))]


def test_an_answer_that_breaks_the_success_rule_is_told_before_the_sweep(server: _Server, tmp_path: Path) -> None:
    rule = {"success_if": {"at": "/status", "is": ["done"]}}
    kind = "application/x-www-form-urlencoded"
    with pytest.raises(TargetError, match="success_if"):
        measure(gpusize.Target(server.url, content_type=kind, response=rule), {"other": "x"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_replica_that_is_down_is_told_before_the_sweep(server: _Server, tmp_path: Path) -> None:
    down = "http://127.0.0.1:1/decode"
    kind = "application/x-www-form-urlencoded"
    target = gpusize.Target(server.url, content_type=kind, replicas=(down,))
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:1/decode.*cannot connect"):
        measure(target, ROW, tmp_path / "out")
    assert not (tmp_path / "out").exists()
