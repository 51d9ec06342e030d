"""A real Prometheus server scrapes the simulated cluster, and what it stored is pulled."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpusize.engine.session import core
from gpusize.observe.metrics import ServerMetrics, server_metrics
from gpusize.observe.metrics.prometheus_pull import PrometheusServer
from gpusize.records.samples import scan_samples, value_of
from gpusize.targets.simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.optional_in_ci("a Debian package, and installing one takes root")
CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: sim, static_configs: [{{targets: ["{target}"]}}]}}]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, child: subprocess.Popen, good) -> None:
    """Ask until the answer is good; the test's own timeout bounds it."""
    pause = threading.Event()
    while child.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if good(httpx.get(url, trust_env=False, verify=False)):
                return
        pause.wait(0.05)
    raise AssertionError(f"Prometheus ended with {child.returncode}")


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster({"gpus": 2}) as cluster:
        yield cluster


@pytest.fixture
def prometheus(cluster: SimulatedCluster, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus on the path (apt-get install prometheus)")
    (tmp_path / "config.yml").write_text(CONFIG.format(target=cluster.url.removeprefix("http://")))
    listen = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={tmp_path}/config.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen([*command, f"--web.listen-address={listen}"], stdout=log, stderr=log)
        try:
            wait_for(f"http://{listen}/-/ready", child, lambda answer: answer.status_code == 200)
            yield f"http://{listen}", child
        finally:
            child.terminate()
            child.wait()


def stored(answer: httpx.Response) -> float:
    """The counter's newest stored value, of all GPUs."""
    result = answer.json()["data"]["result"]
    return float(result[0]["value"][1]) if result else -1.0


def test_its_figures_are_those_of_the_page(cluster: SimulatedCluster, prometheus, tmp_path: Path):
    url, child = prometheus
    server = PrometheusServer(url, match='job="sim"')
    server.check()
    counter = f"{url}/api/v1/query?query=sum(vllm:generation_tokens_total)"
    wait_for(counter, child, lambda answer: stored(answer) == 0)
    direct, _ = server_metrics([{"url": cluster.url, "api": "openai-chat", "simulated": {}}], interval_s=0.1)
    pulled = ServerMetrics(prometheus=server)
    for each in (direct, pulled):
        each.start()
    start_ns, wall_ns, _ = core().clock_pair()
    # Both see the counter after the start and before the load: nothing is left to interpolation.
    seen = f"{url}/api/v1/query?query=min(timestamp(vllm:generation_tokens_total))"
    wait_for(seen, child, lambda answer: stored(answer) > wall_ns / 1e9)
    direct.boundary()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": False, "max_tokens": 50, "ignore_eos": True}
    for _ in range(4):
        httpx.post(f"{cluster.url}/v1/chat/completions", json=body, trust_env=False, timeout=60).raise_for_status()
    wait_for(counter, child, lambda answer: stored(answer) == 200)
    direct.boundary()
    end_ns = core().monotonic_ns()
    levels = []
    for name, each in (("direct", direct), ("pulled", pulled)):
        (tmp_path / name).mkdir()
        levels.append(each.level(tmp_path / name, start_ns, end_ns)["server"])
        each.stop()
        assert each.notes == []
    for server_rows in levels:
        assert value_of(server_rows, "tokens_out", "delta") == pytest.approx(200)
        assert value_of(server_rows, "request_time") == pytest.approx(value_of(levels[0], "request_time"))
    samples = scan_samples(tmp_path / "pulled").collect()
    assert samples["source"].unique().to_list() == [f"prometheus {url}"]
    labels = samples.filter(metric="vllm:num_requests_running")["labels"].unique().to_list()
    assert all('job="sim"' in text and "instance=" in text for text in labels)
    json.dumps(levels, allow_nan=False)


def test_a_query_that_it_refuses_is_told_in_its_words(prometheus):
    url, _ = prometheus
    with pytest.raises(Exception, match=r"status 400.*error parsing regexp"):
        PrometheusServer(url, keep="(").pull(0, 1, lambda at: at)
