"""The run's own metrics: names and values on the page, and the ways to Prometheus."""

from __future__ import annotations

import http.server
import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.measure.monitor.metrics_page import MetricsPage, PushGateway
from gpusize.measure.monitor.own_metrics import NAMES, registry_of
from gpusize.measure.monitor.run_counts import BUCKETS_S, HISTOGRAMS, RunTally
from gpusize.records.schema import OUTCOMES

MS = 1_000_000
PROGRESS = {
    "state": "running",
    "elapsed_ns": 5_000 * MS,
    "due": 50,
    "sent": 45,
    "ok": 30,
    "failed": {"timeout": 4},
    "in_flight": 8,
    "waiting": 3,
    "connections": 16,
    "connects": 20,
    "cpu_share": 0.25,
}
RAMP = {"kind": "open", "rate": 5.0, "from_rate": 2.0, "to_rate": 8.0, "duration_s": 10.0}


def samples(tally: RunTally) -> dict[tuple[str, str], float]:
    """Every value by name and by its labels' values."""
    page = generate_latest(registry_of(tally)).decode()
    families = text_string_to_metric_families(page)
    return {(s.name, ",".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_all_names_are_on_the_page_and_no_other() -> None:
    tally = RunTally()
    tally.progress("a", 1, {**RAMP, "concurrency": 4}, PROGRESS)
    page = generate_latest(registry_of(tally)).decode()
    assert {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")} == set(NAMES)
    assert "_created" not in page


def test_counters_go_on_over_levels_and_the_outcome_has_the_last_word() -> None:
    tally = RunTally({"run": 'r"1'}, levels=3, workers=2)
    tally.progress("a", 1, RAMP, PROGRESS)
    tally.progress("b", 2, {"kind": "closed", "concurrency": 8}, {**PROGRESS, "elapsed_ns": 0})
    both = samples(tally)
    assert both["gpusize_run_requests_due_total", ""] == 100
    assert both["gpusize_run_requests_in_flight", ""] == 10, "without those that wait"
    assert both["gpusize_run_requests_waiting", ""] == 6
    assert both["gpusize_run_generator_cpu_ratio", ""] == 0.125, "a share of both workers' cores"
    tally.ended("a", {"due": 60, "sent": 59, "outcomes": {"ok": 50, "timeout": 8, "shed": 2}})
    after = samples(tally)
    assert after["gpusize_run_requests_due_total", ""] == 110
    assert after["gpusize_run_requests_completed_total", "ok"] == 80
    assert after["gpusize_run_requests_completed_total", "timeout"] == 12
    assert after["gpusize_run_requests_shed_total", ""] == 2
    assert after["gpusize_run_connects_total", ""] == 40
    assert after["gpusize_run_level", ""] == 2
    assert after["gpusize_run_target_concurrency", ""] == 8
    assert ("gpusize_run_target_requests_per_second", "") not in after
    assert after["gpusize_run_info", 'r"1'] == 1
    assert {labels for name, labels in after if name == "gpusize_run_requests_completed_total"} == set(OUTCOMES)
    assert all(after[key] >= value for key, value in both.items() if key[0].endswith("_total"))


def test_the_target_rate_follows_a_ramp() -> None:
    tally = RunTally()
    tally.progress("a", 1, RAMP, PROGRESS)
    assert samples(tally)["gpusize_run_target_requests_per_second", ""] == 5.0
    tally.progress("a", 1, RAMP, {**PROGRESS, "elapsed_ns": 12_000 * MS})
    assert samples(tally)["gpusize_run_target_requests_per_second", ""] == 8.0


def test_the_target_rate_follows_bursts_and_streams() -> None:
    tally = RunTally()
    bursts = {"rate": 100.0, "length_s": 1.0, "every_s": 3.0}
    setting = {"kind": "open", "rate": 40.0, "process": "poisson", "bursts": bursts, "duration_s": 6.0}
    streams = [
        {"id": 0, "rate": 3.0, "phases": [{"duration_ns": 2000 * MS, "from": 1.0, "to": 5.0}], "repeat": False},
        {"id": 1, "rate": 4.0},
    ]
    added = {"kind": "open", "rate": 7.0, "streams": streams, "duration_s": 2.0}
    for asked, elapsed_ms, rate in (
        (setting, 1900, 10.0),
        (setting, 2500, 100.0),
        (setting, 3100, 10.0),
        (added, 500, 6.0),
    ):
        tally.progress("a", 1, asked, {**PROGRESS, "elapsed_ns": elapsed_ms * MS})
        assert samples(tally)["gpusize_run_target_requests_per_second", ""] == pytest.approx(rate)


def test_histograms_are_cumulative_and_in_seconds() -> None:
    tally = RunTally()
    times = [[9 * MS, 10 * MS, 3], [10 * MS + 1, 11 * MS, 2], [700_000 * MS, 700_000 * MS, 1]]
    tally.seconds([{"second": 0, "cpu_ns": 40 * MS, "times": {"ttft": times, "unknown": times}}, {"second": 1}])
    found = samples(tally)
    assert found["gpusize_run_ttft_seconds_bucket", "0.005"] == 0
    assert found["gpusize_run_ttft_seconds_bucket", "0.01"] == 3, "the bound belongs to its bucket"
    assert found["gpusize_run_ttft_seconds_bucket", "0.025"] == 5
    assert found["gpusize_run_ttft_seconds_bucket", "500.0"] == 5
    assert found["gpusize_run_ttft_seconds_bucket", "+Inf"] == found["gpusize_run_ttft_seconds_count", ""] == 6
    assert found["gpusize_run_ttft_seconds_sum", ""] == pytest.approx(700.0495, rel=1e-6)
    assert found["gpusize_run_generator_cpu_seconds_total", ""] == 0.04
    assert all(low < high for low, high in itertools.pairwise(BUCKETS_S))
    assert set(HISTOGRAMS) <= {"runtime", "service", "ttft", "itl", "lateness", "pacer_late", "no_connection"}


def test_the_page_is_served_until_closed() -> None:
    tally = RunTally(levels=7)
    page = MetricsPage(tally, 0)
    answer = httpx.get(page.url, trust_env=False, timeout=60)
    assert answer.headers["content-type"].startswith("text/plain")
    assert "gpusize_run_levels 7.0" in answer.text
    with pytest.raises(EnvironmentLacks, match="cannot listen on 127"):
        MetricsPage(tally, int(page.url.split(":")[2].split("/")[0]))
    page.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(page.url, trust_env=False)


class Gateway:
    """Takes what is put, and answers with a status of its own choice."""

    def __init__(self, status: int = 200) -> None:
        self.put: list[tuple[str, str]] = []
        self.came = threading.Semaphore(0)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.put.append((self.path, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                outer.came.release()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    found = Gateway()
    yield found
    found.close()


@pytest.fixture
def broken() -> Iterator[Gateway]:
    found = Gateway(500)
    yield found
    found.close()


def test_pushes_come_regularly_and_at_the_end(gateway: Gateway) -> None:
    tally = RunTally(levels=2)
    push = PushGateway(tally, f"{gateway.url}/", instance="host/1", every_s=0.01)
    assert gateway.came.acquire(timeout=60)
    assert gateway.came.acquire(timeout=60)
    tally.finish()
    push.close()
    paths = {path for path, _ in gateway.put}
    assert paths == {"/metrics/job/gpusize/instance@base64/aG9zdC8x"}
    assert "gpusize_run_finished 0.0" in gateway.put[0][1]
    assert "gpusize_run_finished 1.0" in gateway.put[-1][1]


def test_a_gateway_that_fails_is_one_note(broken: Gateway) -> None:
    notes: list[str] = []
    push = PushGateway(RunTally(), broken.url, instance="a", every_s=0.01, note=notes.append)
    for _ in range(3):
        assert broken.came.acquire(timeout=60)
    push.close()
    assert len(notes) == 1
    assert "takes no metrics" in notes[0]
    assert "500" in notes[0]


def test_a_gateway_that_is_not_there_is_one_note() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        notes: list[str] = []
        push = PushGateway(
            RunTally(), f"http://127.0.0.1:{held.getsockname()[1]}", instance="a", note=notes.append, every_s=3600
        )
        push.close()
    assert len(notes) == 1
    assert "refused" in notes[0]


@pytest.mark.parametrize("url", ["gateway:9091", "ftp://gateway", "http://", "", "http://g:9091/?a=b"])
def test_an_address_that_cannot_be_meant(url: str) -> None:
    with pytest.raises(UsageError, match="not an address of a Pushgateway"):
        PushGateway(RunTally(), url, instance="a")
