"""A real Prometheus scrapes a run's own metrics, its linter finds nothing to say, and a real Pushgateway takes them."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest

from gpusize.measure.monitor.metrics_page import MetricsPage, PushGateway
from gpusize.measure.monitor.own_metrics import registry_of
from gpusize.measure.monitor.run_counts import RunTally
from tests.peers.test_prometheus import CONFIG, free_port, wait_for

pytestmark = pytest.mark.optional_in_ci("Debian packages, and installing them takes root")
MS = 1_000_000


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on the path (apt-get install {package})")
    return found


@contextlib.contextmanager
def child(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    with log.open("w") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield started
        finally:
            started.terminate()
            started.wait()


@pytest.fixture
def tally() -> RunTally:
    tally = RunTally({"run": "r", "target": 'http://h/\\"\n'}, levels=2)
    progress = {"state": "running", "elapsed_ns": 10, "due": 12, "sent": 11, "ok": 9, "failed": {"timeout": 1}}
    setting = {"kind": "open", "rate": 5.0, "concurrency": 3, "duration_s": 9.0}
    tally.progress(1, 1, setting, {**progress, "in_flight": 1, "waiting": 1, "connections": 4, "cpu_share": 0.1})
    tally.seconds([{"second": 0, "cpu_ns": MS, "times": {"ttft": [[90 * MS, 91 * MS, 98], [2000 * MS, 2001 * MS, 2]]}}])
    return tally


def test_the_linter_has_nothing_to_say(tally: RunTally) -> None:
    page = generate_latest(registry_of(tally))
    done = subprocess.run(
        [program("promtool", "prometheus"), "check", "metrics"], input=page, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_prometheus_scrapes_it(tally: RunTally, tmp_path: Path) -> None:
    page = MetricsPage(tally, 0)
    listen = f"127.0.0.1:{free_port()}"
    (tmp_path / "config.yml").write_text(
        CONFIG.format(target=page.url.removeprefix("http://").removesuffix("/metrics"))
    )
    command = [program("prometheus", "prometheus"), f"--config.file={tmp_path}/config.yml"]
    command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={listen}"]
    asked = f"http://{listen}/api/v1/query"

    def value(query: str) -> float:
        """What it has stored; nothing for a moment where a scrape took longer than it may, the test's own timeout
        bounds that."""
        while True:
            answer = httpx.get(asked, params={"query": query}, trust_env=False, timeout=60).json()
            if result := answer["data"]["result"]:
                return float(result[0]["value"][1])
            time.sleep(0.05)

    with child(command, tmp_path / "log") as prometheus:
        wait_for(f"http://{listen}/-/ready", prometheus, lambda answer: answer.status_code == 200)
        wait_for(f"{asked}?query=gpusize_run_level", prometheus, lambda answer: answer.json()["data"]["result"])
        assert value("gpusize_run_requests_completed_total{outcome='ok'}") == 9
        assert value("histogram_quantile(0.5, gpusize_run_ttft_seconds_bucket)") == pytest.approx(0.075, abs=0.026)
        assert value("count(gpusize_run_info{run='r'})") == 1
    page.close()


def test_a_pushgateway_takes_it(tally: RunTally, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    command = [program("prometheus-pushgateway", "prometheus-pushgateway"), f"--web.listen-address={listen}"]
    notes: list[str] = []
    with child(command, tmp_path / "log") as gateway:
        wait_for(f"http://{listen}/-/ready", gateway, lambda answer: answer.status_code == 200)
        push = PushGateway(tally, f"http://{listen}", instance="a/b", note=notes.append)
        tally.finish()
        push.close()
        page = httpx.get(f"http://{listen}/metrics", trust_env=False, timeout=60).text
    assert notes == []
    assert 'gpusize_run_finished{instance="a/b",job="gpusize"} 1' in page
    assert 'gpusize_run_ttft_seconds_bucket{instance="a/b",job="gpusize",le="0.1"} 98' in page


def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "docs" / "dashboards" / "gpusize.json"
    dashboard = json.loads(file.read_text("utf-8"))
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [note["expr"] for note in dashboard["annotations"]["list"]]
    rules = [{"record": f"r:{n}", "expr": text.replace("$__rate_interval", "1m")} for n, text in enumerate(texts)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = [program("promtool", "prometheus"), "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
