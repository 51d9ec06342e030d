from __future__ import annotations

import contextlib
import os
import signal
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest

from gpusize.base.errors import EnvironmentLacks, TargetError, UsageError
from gpusize.observe.kubernetes.address import is_kube, parse_kube
from gpusize.observe.kubernetes.port_forward import BACK_OFF_S, STEADY_S, KubeForward, resolve_kube, touched
from gpusize.observe.metrics import Forwards
from tests.samples.kubectl_standin import PROGRAM
from tests.virtual_time import VirtualClock


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + line.split()[1])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the stand-in kubectl on the path, and a server behind it."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        kubectl = tmp_path / "bin/kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(PROGRAM.format(python=sys.executable))
        kubectl.chmod(0o755)
        (tmp_path / "to").write_text(str(server.server_address[1]))
        monkeypatch.setenv("PATH", f"{kubectl.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("FORWARD_DIR", str(tmp_path))
        yield tmp_path
        server.shutdown()
        thread.join()


def pids(folder: Path) -> list[int]:
    return [int(file.name.removeprefix("pid-")) for file in folder.glob("pid-*")]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def ask(url: str) -> str:
    return httpx.get(url, trust_env=False, timeout=30).text


def test_it_forwards_and_stops_what_it_started(cluster: Path):
    url, forward = resolve_kube("kube://ns/my-service:8000/metrics?x=1")
    with forward:
        assert ask(url) == "/metrics?x=1"
        forward.start()
        (pid,) = pids(cluster)
        assert pid == forward.pid
        asked = (cluster / f"pid-{pid}").read_text().splitlines()
    assert asked == [
        "port-forward",
        "--address",
        "127.0.0.1",
        "--namespace",
        "ns",
        "service/my-service",
        f"{forward.port}:8000",
    ]
    assert not is_alive(pid)
    assert forward.down() == []
    forward.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_comes_back_on_the_same_port_and_says_when_it_was_down(cluster: Path, how: signal.Signals):
    url, forward = resolve_kube("kube://ns/s:http")
    with forward:
        before = ask(f"{url}/one")
        first = forward.pid
        assert first is not None
        os.killpg(first, how)
        until(lambda: bool(forward.down()) and forward.wait_until_up(30))
        assert (before, ask(f"{url}/two")) == ("/one", "/two")
        assert forward.pid != first
        assert forward.restarts == 1
        ((from_ns, to_ns),) = forward.down()
        assert from_ns < to_ns
        assert forward.down() == [(from_ns, to_ns)]
    assert not any(is_alive(pid) for pid in pids(cluster))


def until(happens) -> None:
    """Wait for a thread of the forward to get there; the test's own timeout bounds it."""
    pause = threading.Event()
    while not happens():
        pause.wait(0.005)


def test_a_lost_pod_ends_a_kubectl_that_would_live_on(cluster: Path):
    (cluster / "mode").write_text("lose")
    url, forward = resolve_kube("kube://ns/s:80")
    with forward:
        until(lambda: forward.restarts == 1 and forward.wait_until_up(30))
        assert ask(f"{url}/x") == "/x"
        assert len(forward.down()) == 1


def test_a_forward_that_never_comes_up_says_why(cluster: Path):
    (cluster / "mode").write_text("refuse")
    _, forward = resolve_kube("kube://ns/s:80")
    with pytest.raises(TargetError, match=r'kube://ns/s:80.*services "s" not found') as caught:
        forward.start()
    assert "\x1b" not in str(caught.value)
    assert len(pids(cluster)) == 1


def test_it_goes_on_trying_while_the_cluster_refuses(cluster: Path):
    _, forward = resolve_kube("kube://ns/s:80")
    with forward:
        assert forward.pid is not None
        (cluster / "mode").write_text("refuse")
        os.killpg(forward.pid, signal.SIGKILL)
        until(lambda: forward.restarts >= 2)
        assert len(forward.down()) == 1
        (cluster / "mode").write_text("forward")
        assert forward.wait_until_up(60)
        ((from_ns, to_ns),) = forward.down()
        assert to_ns > from_ns


def test_pauses_grow_and_begin_anew_once_it_was_steady(cluster: Path):
    clock, forward_again = VirtualClock(), lambda: (cluster / "mode").write_text("forward")
    with KubeForward(parse_kube("kube://ns/s:80"), clock=clock) as forward:
        assert forward.pid is not None
        (cluster / "mode").write_text("refuse")
        # In the second of the longest pauses.
        clock.at(sum(BACK_OFF_S) + 0.1, forward_again)
        os.killpg(forward.pid, signal.SIGKILL)
        until(lambda: bool(forward.down()) and forward.wait_until_up(30))
        assert clock.waits == [*BACK_OFF_S, BACK_OFF_S[-1]]
        ((from_ns, to_ns),) = forward.down()
        assert to_ns - from_ns == round(sum(clock.waits) * 1e9)
        clock.advance(round(STEADY_S * 1e9) + 1)
        os.killpg(forward.pid, signal.SIGKILL)
        until(lambda: len(forward.down()) == 2 and forward.wait_until_up(30))
        assert clock.waits[len(BACK_OFF_S) + 1 :] == [BACK_OFF_S[0]]


def test_without_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks, match="kubectl"):
        resolve_kube("kube://ns/s:80")


def test_addresses():
    assert is_kube("kube://a/b:1")
    assert not is_kube("http://kube/")
    address = parse_kube("kube://ns/deployment/llm-d.x:http-api/v1")
    assert (address.namespace, address.kind, address.name, address.port, address.path) == (
        "ns",
        "deployment",
        "llm-d.x",
        "http-api",
        "/v1",
    )
    assert str(address) == "kube://ns/deployment/llm-d.x:http-api"
    assert str(parse_kube("kube://ns/s:80/x")) == "kube://ns/s:80"


@pytest.mark.parametrize(
    "url",
    [
        "kube://ns/s",
        "kube://s:80",
        "kube://ns/s:0",
        "kube://ns/s:65536",
        "kube://NS/s:80",
        "kube://ns/--all:80",
        "kube://-n/s:80",
        "kube://ns/secret/s:80",
        "kube://ns/s:80/a b",
        "http://ns/s:80",
    ],
)
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(UsageError, match="kube://namespace/service:port"):
        parse_kube(url)


def test_levels_and_records_touched_are_marked(cluster: Path):
    forward = KubeForward(parse_kube("kube://ns/s:80"))
    watch = Forwards([forward])
    try:
        watch.start()
        watch.boundary()
        assert watch.notes == [
            "kube://ns/s:80: kubectl forwards to one pod of the service, through the cluster's API server"
        ]
        assert forward.pid is not None
        os.killpg(forward.pid, signal.SIGKILL)
        until(lambda: bool(forward.down()) and forward.wait_until_up(30))
        ((from_ns, to_ns),) = forward.down()
        facts = watch.level(cluster, from_ns - 1000, to_ns - 1)
        assert facts["forward_down"] == [[from_ns, to_ns - 1]]
        assert len(facts["alerts"]) == 1
        assert "down 1 times" in facts["alerts"][0]
        assert watch.level(cluster, to_ns + 1, to_ns + 1000) == {}
        assert watch.level(cluster, from_ns - 1000, from_ns - 1) == {}
    finally:
        watch.stop()
    records = pl.DataFrame(
        {"due_ns": [from_ns - 9, from_ns - 9, from_ns + 1, to_ns], "end_ns": [from_ns - 1, from_ns, to_ns, to_ns + 5]}
    )
    assert records.select(touched([(from_ns, to_ns)])).to_series().to_list() == [False, True, True, False]
    assert records.select(touched([]).alias("hit"))["hit"].to_list() == [False]
