"""The stream server of the benchmarks and what is made of its stamps."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benches.lib.peers import build_tools
from benches.lib.procs import BenchFailed
from benches.sections.truth import differences_ns, server_stamps


@pytest.fixture(scope="module")
def streams() -> str:
    return build_tools().streams


def ask(port: int, number: int) -> tuple[list[dict], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/", body=str(number))
    body = connection.getresponse().read()
    connection.close()
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line]
    return [json.loads(line) for line in lines[:-1]], lines[-1]


@pytest.mark.parametrize("more", [["--parts", "4"], ["--rate", "1000"]])
def test_an_answer_is_a_whole_stream_however_it_is_written(streams: str, more: list[str]) -> None:
    with subprocess.Popen(
        [streams, "--port", "0", "--events", "16", *more], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port = json.loads(child.stdout.readline())["port"]
        answers = [ask(port, number) for number in range(3)]
        child.terminate()
        said = json.loads(child.stdout.readline())
    assert said == {"requests": 3, "broken": 0}
    for events, end in answers:
        assert end == b"[DONE]"
        assert [event["choices"][0]["delta"]["content"] for event in events[:-1]] == [
            f" token{k:03}" for k in range(16)
        ]
        assert events[-1]["usage"]["completion_tokens"] == 16


def test_the_log_holds_a_time_for_each_event_under_the_requests_number(streams: str, tmp_path: Path) -> None:
    log = tmp_path / "stamps.bin"
    command = [streams, "--port", "0", "--events", "5", "--rate", "2000", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = json.loads(child.stdout.readline())["port"]
        for number in (7, 3):
            ask(port, number)
        child.terminate()
        child.stdout.readline()
    stamps = server_stamps(log)
    assert {number: len(times) for number, times in stamps.items()} == {7: 5, 3: 5}
    assert all((np.diff(times) > 0).all() for times in stamps.values())


def test_differences_need_the_same_events_on_both_sides() -> None:
    records = pl.DataFrame({"seq": [0, 1], "events_ns": [[15, 25], [40]]})
    stamps = {0: np.array([10, 20]), 1: np.array([42])}
    assert differences_ns(records, stamps).tolist() == [5, 5, -2]
    with pytest.raises(BenchFailed, match="request 1"):
        differences_ns(records, {0: np.array([10, 20])})
