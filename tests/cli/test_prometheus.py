"""``gpusize run --prometheus`` against one as clusters have it: HTTPS with an authority of its own, and a token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusize.observe.metrics import server_metrics
from gpusize.observe.metrics.trust import prometheus_trust
from tests.cli.conftest import Gpusize
from tests.servers.prometheus import SecuredPrometheus
from tests.servers.scripted import ScriptedServer
from tests.servers.tls import Certificates, make_certificates

TOKEN = "prom-secret-0123456789"
SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--quiet", "--concurrencies", "1,2", "--passes", "2")
Start = Callable[..., SecuredPrometheus]


@pytest.fixture
def prometheus(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts one, with options of its own; its token is in PROM_TOKEN."""
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    started: list[SecuredPrometheus] = []

    def start(**options: Any) -> SecuredPrometheus:
        started.append(SecuredPrometheus(certificates, TOKEN, **options).__enter__())
        return started[-1]

    yield start
    for each in started:
        each.__exit__()


def test_its_authority_and_token_are_options_of_its_own(
    gpusize: Gpusize, url: str, prometheus: Start, certificates: Certificates
) -> None:
    server = prometheus()
    own = ("--prometheus", server.url, "--prometheus-cacert", certificates.ca, "--prometheus-token-env", "PROM_TOKEN")
    done = gpusize("run", "--url", url, *SWEEP, *own, "--json", "--no-plots")
    assert done.code == 0, done.err
    assert (server.pulls, server.refused) == (2, 0)
    [path] = Path("runs").iterdir()
    [source] = json.loads((path / "run.json").read_text())["sources"]
    assert (source["source"], source["readings"], source["lost"]) == (f"prometheus {server.url}", 2, 0)
    files = [file for file in path.rglob("*") if file.is_file()]
    assert not [file for file in files if TOKEN.encode() in file.read_bytes()]
    # What run.json keeps makes the same run again.
    again = gpusize("run", "--config", path, "--out", "again", "--no-plots")
    assert (again.code, server.pulls) == (0, 4), again.err


@pytest.mark.parametrize(
    "options,what",
    [
        (("--prometheus-token-env", "PROM_TOKEN"), "certificate verify failed"),
        (("--prometheus-insecure",), "answered with status 401: no token, no series"),
    ],
)
def test_one_that_never_answered_ends_the_run_before_the_load(
    gpusize: Gpusize, url: str, chat_server: ScriptedServer, prometheus: Start, options: tuple[str, ...], what: str
) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--prometheus", prometheus().url, *options)
    assert done.code == 3
    assert what in done.complaint
    assert "--prometheus-cacert" in done.complaint
    assert "--prometheus-token-env" in done.complaint
    assert not Path("runs").exists()
    assert len(chat_server.requests) <= 1, "the request before the load, at most"


def test_one_that_fails_while_the_run_goes_on_is_told_by_the_readings_lost(
    gpusize: Gpusize, url: str, prometheus: Start, certificates: Certificates
) -> None:
    server = prometheus(fails_from=1)
    own = ("--prometheus", server.url, "--prometheus-insecure", "--prometheus-token-env", "PROM_TOKEN")
    done = gpusize("run", "--url", url, *SWEEP, *own, "--json", "--no-plots")
    [path] = Path("runs").iterdir()
    told = {
        "source": f"prometheus {server.url}",
        "readings": 1,
        "failures": server.pulls - 1,
        "missed": 0,
        "lost": 1,
        "last_failure": "answered with status 503: shutting down",
    }
    assert json.loads((path / "run.json").read_text())["sources"] == [told]
    document = json.loads(done.out)
    assert document["sources"] == [{"run": path.name, **told}]
    [alert] = document["alerts"]
    assert alert["alerts"] == [f"prometheus {server.url}: no data for this level: {told['last_failure']}"]
    lost = f"prometheus {server.url}: 1 of 2 readings were lost, the last with: {told['last_failure']}"
    assert lost in (path / "report.html").read_text()
    assert lost in " ".join(gpusize("estimate", path, "--users", "1", "--slo", "p95 runtime <= 60s").out.split())


def test_the_targets_authority_is_not_held_against_prometheus(
    tmp_path: Path, prometheus: Start, certificates: Certificates
) -> None:
    server = prometheus()
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    observer, _ = server_metrics(
        [],
        metrics_urls=["none"],
        prometheus=server.url,
        prometheus_headers={"Authorization": "Bearer env:PROM_TOKEN"},
        prometheus_verify=prometheus_trust(str(certificates.ca), insecure=False),
        verify=str(other.ca),
    )
    observer.start()
    observer.stop()
    assert server.refused == 0


@pytest.mark.parametrize(
    "options,what",
    [
        (("--prometheus-cacert", "ca.pem"), "it belongs to a Prometheus server"),
        (("--prometheus", "https://p", "--prometheus-cacert", "none.pem"), "there is no such file"),
        (("--prometheus", "https://p", "--prometheus-cacert", "empty.pem"), "no certificates are in"),
        (("--prometheus", "https://p", "--prometheus-cacert", "empty.pem", "--prometheus-insecure"), "contradict"),
        (("--prometheus", "https://p", "--prometheus-token-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (
            ("--prometheus", "https://p", "--prometheus-token-env", "A", "--prometheus-header", "Authorization: env:B"),
            "both given",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(gpusize: Gpusize, url: str, options: tuple[str, ...], what: str) -> None:
    Path("empty.pem").write_text("")
    done = gpusize("run", "--url", url, *SWEEP, *options)
    assert done.code == 2
    assert what in done.complaint
    assert not Path("runs").exists()
