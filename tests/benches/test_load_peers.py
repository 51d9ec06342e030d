"""What the load generators beside gpusize are told, what they say, and what is made of it."""

from __future__ import annotations

import http.client
import json
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.frozen import parse_oha_latency, parse_perf_analyzer, parse_wrk_latency
from benches.lib.generators import Said, Taken, parse_k6, parse_locust, parse_oha
from benches.lib.peers import Tools, build_tools, peer_version
from benches.lib.procs import BenchFailed, LineServer, run_measured
from benches.lib.results import Report
from benches.lib.rounds import present, rotate, tell_missing
from benches.lib.slopes import over, slope
from benches.lib.stats import Interval
from benches.sections.load_omission import p99_s
from benches.sections.load_throughput import limit
from scripts.peers import LOAD_PEERS, PEERS, QUEUE_PEERS, REAL_PEERS, SAMPLE_PEERS, TEST_PEERS

CORE = min(os.sched_getaffinity(0))

OHA = {
    "summary": {"total": 2.0, "slowest": 0.021},
    "latencyPercentiles": {"p50": 0.0007, "p99": 0.0058},
    "statusCodeDistribution": {"200": 1000},
    "errorDistribution": {"aborted due to deadline": 64},
}
K6 = {"metrics": {"http_reqs": {"count": 3000, "rate": 1000.0}, "http_req_failed": {"passes": 2, "fails": 2998}}}
LOCUST = """[
    {
        "name": "/",
        "last_request_timestamp": 103.5,
        "start_time": 101.0,
        "num_requests": 250,
        "num_failures": 1
    }
]
"""
WRK = """  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   273.76us  237.80us   2.01s    98.54%
    Req/Sec     1.00k     0.1k     2.00k    98.54%
  Latency Distribution
     50%    0.60ms
     99%  810.00us\x20
  255767 requests in 2.00s, 19.03MB read
"""
PERF_ANALYZER = """    Request count: 5000
    Avg latency: 260 usec (standard deviation 671 usec)
    p99 latency: 2763 usec
"""


def test_ohas_deadline_is_no_error_and_the_rest_is() -> None:
    assert parse_oha(json.dumps(OHA)) == Said(1000, 2.0, 0)
    bad = {**OHA, "statusCodeDistribution": {"200": 998, "503": 2}, "errorDistribution": {"connection refused": 3}}
    assert parse_oha(json.dumps(bad)) == Said(998, 2.0, 5)


def test_ohas_p99() -> None:
    told = parse_oha_latency(json.dumps(OHA))
    assert (told.requests, told.p99_s, told.longest_s) == (1000, 0.0058, 0.021)


def test_k6_counts_failures_as_passes_of_the_check_that_a_request_failed() -> None:
    assert parse_k6(json.dumps(K6), "") == Said(3000, 3.0, 2)


def test_k6_that_sent_nothing_is_no_measurement() -> None:
    nothing = {"metrics": {**K6["metrics"], "http_reqs": {"count": 0, "rate": 0.0}}}
    with pytest.raises(BenchFailed, match="no connection"):
        parse_k6(json.dumps(nothing), "no connection")


def test_locusts_list_stands_among_its_words() -> None:
    assert parse_locust(f"Type Name\n{LOCUST}\nbye\n") == Said(250, 2.5, 1)
    with pytest.raises(BenchFailed, match="no result"):
        parse_locust("[]")


def test_wrks_latencies_have_units() -> None:
    told = parse_wrk_latency(WRK)
    assert (told.requests, told.longest_s) == (255_767, 2.01)
    assert told.p99_s == pytest.approx(0.00081)
    with pytest.raises(BenchFailed, match="no latencies"):
        parse_wrk_latency("255767 requests in 2.00s, 19.03MB read")


def test_perf_analyzers_p99() -> None:
    told = parse_perf_analyzer(PERF_ANALYZER)
    assert (told.requests, told.longest_s) == (5000, None)
    assert told.p99_s == pytest.approx(0.002763)


@pytest.mark.parametrize("seconds, freeze_s, at_s", [(20, 2.0, 9.0), (5, 0.5, 2.0), (20, 2.0, 3.3)])
def test_the_p99_of_a_frozen_server_is_that_of_its_requests(seconds: float, freeze_s: float, at_s: float) -> None:
    due_s = np.arange(0, seconds, 1e-3)
    frozen = (due_s >= at_s) & (due_s < at_s + freeze_s)
    response_s = np.where(frozen, at_s + freeze_s - due_s, 1e-4)
    assert p99_s(seconds, freeze_s) == pytest.approx(float(np.quantile(response_s, 0.99)), abs=2e-3)


def test_a_slope_leaves_the_start_up_out() -> None:
    found = slope(1000, 5.0 + 1.0, 4000, 5.0 + 4.0, 333.0)
    assert found.cpu_s == pytest.approx(1e-3)
    assert found.rate == 333.0
    with pytest.raises(BenchFailed, match="the longer run sent 900"):
        slope(1000, 1.0, 900, 2.0, 1.0)


def test_the_ratio_of_what_was_not_paired_has_the_worst_ends() -> None:
    assert over(Interval(2, 1, 3), Interval(10, 8, 20)) == Interval(0.2, 1 / 20, 3 / 8)


def test_every_client_begins_a_round_in_turn() -> None:
    order: list[str] = []

    def turn(name: str) -> int:
        order.append(name)
        return order.count(name)

    found = rotate(3, {name: partial(turn, name) for name in "abc"}, str)
    assert "".join(order) == "abc" + "bca" + "cab"
    assert found == {name: [1, 2, 3] for name in "abc"}


def test_a_missing_peer_is_left_out_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program(name: str) -> str:
        if name == "gone":
            raise BenchFailed("gone is not installed: apt-get install gone")
        return name

    there, missing = present({"here": "here", "gone": "gone"}, program)
    assert (list(there), list(missing)) == (["here"], ["gone"])
    tools = Tools("", "", "", "", "", "")
    tell_missing(Context(Report(), tools, 0, 0, 1, True, tmp_path), missing)
    assert "gone (gone is not installed: apt-get install gone)" in capsys.readouterr().out


def test_a_lower_bound_is_kept_by_the_lower_end() -> None:
    assert Bar("rate", Interval(1.2, 1.0, 1.4), 1.0, at_least=True).ok
    short = Bar("rate", Interval(1.2, 0.99, 1.4), 1.0, at_least=True)
    assert not short.ok
    assert short.line() == "BAR rate 1.2 [0.99,1.4] >=1 short"


def test_the_cpu_of_a_whole_tree_counts_what_was_left_behind(tmp_path: Path) -> None:
    # The command ends as soon as its child has had so much, and never waits for it.
    child = "while time.process_time() < 0.4: pass\npathlib.Path(sys.argv[1]).touch()"
    command = "subprocess.Popen([sys.executable, *sys.argv[2:], sys.argv[1]])\n"
    command += "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    begins = "import pathlib, subprocess, sys, time\n"
    words = [sys.executable, "-c", begins + command, str(tmp_path / "done"), "-c", begins + child]
    assert run_measured([sys.executable, "-m", "benches.programs.whole_tree", "60", *words]).cpu_s >= 0.4


def test_a_tree_that_does_not_end_is_killed_and_counted() -> None:
    sleep = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    tree = [sys.executable, "-m", "benches.programs.whole_tree", "1", sys.executable, "-c", sleep]
    with pytest.raises(BenchFailed, match="ended with 1"):
        run_measured(tree)


def test_the_canned_server_streams_and_counts() -> None:
    with LineServer([build_tools().canned, "--port", "0", "--sse-events", "16"], CORE) as server:
        for body in (b'{"stream": true}', b""):
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("POST", "/v1/chat/completions", body=body)
            response = connection.getresponse()
            events = [json.loads(line[6:]) for line in response.read().split(b"\n") if line.startswith(b"data: {")]
            connection.close()
            assert response.getheader("Content-Type") == "text/event-stream"
            assert [len(event["choices"]) for event in events] == [1] * 16 + [0]
            assert events[-1]["usage"]["completion_tokens"] == 16
        assert server.cpu_s() >= 0
        assert server.stop() == {"requests": 2, "connections": 2}


def test_what_limits_a_rate_is_told() -> None:
    assert limit([Taken(10, 1.0, 0.5, 0.0, 1, 0.99)]) == "server: client 50 %, server 99 %"
    assert limit([Taken(10, 1.0, 0.99, 0.0, 1, 0.4)]).startswith("client: ")
    assert limit([Taken(10, 1.0, 0.4, 0.0, 1, 0.4)]).startswith("neither: ")


def test_load_generators_are_no_part_of_what_the_tests_need() -> None:
    groups = (TEST_PEERS, LOAD_PEERS, SAMPLE_PEERS, REAL_PEERS, QUEUE_PEERS)
    assert set(PEERS) == {name for group in groups for name in group}
    assert len(PEERS) == sum(map(len, groups))
    assert {name: peer_version(name) for name in ("guidellm", "aiperf", "oha", "k6")} == {
        "guidellm": "0.8.1",
        "aiperf": "0.13.0",
        "oha": "1.16.0",
        "k6": "1.8.1",
    }
