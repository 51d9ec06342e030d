"""Agents as actors of a real Ray cluster: they send what one machine sends, and nothing is left of them afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import gpusize
from benches.client import target_spec
from gpusize import _core
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.engine.hosts.gather import gathered
from gpusize.engine.hosts.head import HostsOptions
from gpusize.engine.hosts.on_ray import RAY_LISTEN
from gpusize.engine.hosts.protocol import Wire
from gpusize.engine.session import Engine
from gpusize.workload.load import Load
from tests.engine.hosts.hosting import WITHIN_S, kept, run_levels, schedule_of
from tests.engine.hosts.ray_cluster import NODES, RayCluster, connected, ray_cluster

pytestmark = [
    pytest.mark.nodes("a cluster of three Ray nodes, a dozen processes, and one at a time"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    # Of Ray's own code.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

LARGE = 3_000_000
ROWS = [[bytes([97 + k]) * (LARGE if k == 0 else 1000 * k)] for k in range(7)]
SEGMENTS = [{"field": 0}]
STEADY = Load(rates=[150.0], duration_s=4.0, connections=4, process="constant")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as found:
        yield found


@pytest.fixture
def server() -> Iterator[Any]:
    found = _core.NullServer("127.0.0.1", 0, threads=1)
    yield found
    found.stop()


@contextlib.contextmanager
def bodies() -> Iterator[tuple[int, Counter[bytes]]]:
    """A server that counts what it was sent, by its hash: its port, and the counts."""
    found: Counter[bytes] = Counter()

    class Takes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                found[hashlib.sha256(body).digest()] += 1
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody asks."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    lock = threading.Lock()
    with Server(("127.0.0.1", 0), Takes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], found
        finally:
            server.shutdown()
            thread.join()


def asked(cluster: RayCluster, count: int, wait_s: float = 60.0) -> HostsOptions:
    return HostsOptions(count, RAY_LISTEN, wait_s=wait_s, ray=cluster.address, checks=False)


def until(what: Callable[[], bool]) -> None:
    """Wait for something that comes; the test's own time limit ends it where it does not."""
    while not what():
        time.sleep(0.02)


@pytest.mark.parametrize(
    "load",
    [
        Load(stages="60/s@1s, 60/s..120/s@1s", connections=8, seed=3),
        Load(concurrencies=[5], count=103),
    ],
    ids=["stages", "closed"],
)
def test_the_union_is_the_single_runs(
    load: Load, cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, int] = {}
    original = Wire.send

    def seen(wire: Wire, kind: str, strings: Sequence[bytes] = (), **fields: Any) -> None:
        sent[kind] = sent.get(kind, 0) + sum(map(len, strings))
        original(wire, kind, strings, **fields)

    with bodies() as (port, of_one), Engine(target_spec(port, method="POST"), SEGMENTS, ROWS, workers=1) as one:
        alone = run_levels(one, load, len(ROWS), tmp_path / "alone")
    monkeypatch.setattr(Wire, "send", seen)
    with (
        bodies() as (port, of_many),
        gathered(asked(cluster, NODES)) as head,
        head.engine(target_spec(port, method="POST"), SEGMENTS, ROWS, workers=1) as many,
    ):
        assert len({host.facts["ray_node"] for host in head.hosts}) == NODES
        together = run_levels(many, load, len(ROWS), tmp_path / "together")
    # Rows went through the object store.
    assert sent["open"] == 0
    assert sum(map(len, ROWS[0])) == LARGE
    assert of_many == of_one
    assert of_many.total() == sum(each["sent"] for each in together)
    for visit, (mine, theirs) in enumerate(zip(together, alone, strict=True)):
        rows, expected = kept(tmp_path / "together", mine, visit), kept(tmp_path / "alone", theirs, visit)
        assert mine["hosts_alerts"] == []
        assert (mine["due"], mine["sent"], mine["rows"]) == (theirs["due"], theirs["sent"], theirs["rows"])
        assert mine["outcomes"] == theirs["outcomes"] == {"ok": mine["rows"]}
        same = [schedule_of(each) for each in (rows, expected)]
        if "open" not in load.plans(len(ROWS))[visit]["load"]:
            # Answers decide when the next request of a user is due.
            same = [each.drop("due_ns") for each in same]
        assert same[0].equals(same[1])
        assert rows["host"].n_unique() == NODES
    cluster.is_empty()
    assert cluster.files() == []


def test_an_actor_that_dies_leaves_the_level_to_the_others(cluster: RayCluster, server: Any, tmp_path: Path) -> None:
    (level,) = STEADY.levels(1)
    (tmp_path / "0000" / "records").mkdir(parents=True)
    plan = {**level.plan, "visit": 0, "dir": str(tmp_path / "0000" / "records")}
    with (
        gathered(asked(cluster, NODES)) as head,
        head.engine(target_spec(server.port), [], [[b""]], workers=1) as engine,
    ):
        queued = engine.queue(plan)
        until(lambda: queued.poll()["due"] > 100)
        os.kill(head.hosts[1].facts["pid"], signal.SIGKILL)
        assert queued.wait(WITHIN_S)
        outcome = queued.outcome()
    (alert,) = outcome["hosts_alerts"]
    assert "host 1 " in alert
    assert "33% of the load that was asked for is missing from" in alert
    by_number = {host["host"]: host for host in outcome["hosts"]}
    assert by_number[1]["missing"].startswith("was lost")
    assert 0.3 < by_number[1]["missing_from_s"] < 4.0
    # The others' two thirds of the schedule, whole.
    assert outcome["due"] == outcome["rows"] == 400
    rows = kept(tmp_path, outcome, 0)
    gone = by_number[1]["first_worker"]
    assert rows["seq"].to_list() == [seq for seq in range(600) if seq % 3 != gone]
    cluster.is_empty()


def test_more_hosts_than_nodes_are_refused(cluster: RayCluster) -> None:
    notes: list[str] = []
    with pytest.raises(EnvironmentLacks) as caught, gathered(asked(cluster, NODES + 1, wait_s=2.0), notes.append):
        pass
    assert caught.value.what == (
        "the Ray cluster has 3 nodes with a CPU, and 4 hosts are asked for, each on a node of its own"
    )
    assert caught.value.todo is not None
    assert "--hosts 3" in caught.value.todo
    assert any("waiting up to 2 s" in note for note in notes)
    cluster.is_empty()


def test_nodes_that_are_busy_are_waited_for_no_longer_than_asked(cluster: RayCluster) -> None:
    import ray

    with connected(cluster.address):
        taken = ray.util.placement_group([{"CPU": 1}])
        assert taken.wait(30)
        short = pytest.raises(EnvironmentLacks, match=r"not on 3 of them a CPU is free")
        with short, gathered(asked(cluster, NODES, wait_s=1.0)):
            pass
        # It was the program's connection, and still is.
        assert ray.is_initialized()
        another = pytest.raises(UsageError, match="this program is connected to the Ray cluster at")
        with another, gathered(HostsOptions(1, RAY_LISTEN, ray="10.0.0.5:6379")):
            pass
    cluster.is_empty()


OTHER = {
    "none": ("sys.modules['gpusize'] = None", "pip install gpusize"),
    "older": ("sys.path.insert(0, {folder!r})", "install the same version on all nodes"),
}


@pytest.mark.parametrize("kind", OTHER)
def test_a_node_with_another_gpusize_or_none_is_named(kind: str, cluster: RayCluster, tmp_path: Path) -> None:
    code, todo = OTHER[kind]
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{code.format(folder=str(tmp_path))}\n")
    hosts = tmp_path / "gpusize" / "engine" / "hosts"
    hosts.mkdir(parents=True)
    for package in (hosts.parent.parent, hosts.parent, hosts):
        (package / "__init__.py").write_text("__version__ = '0.0.1'\n")
    (hosts / "agent.py").write_text("")
    theirs = {"env_vars": {"PYTHONPATH": str(tmp_path)}}
    with (
        connected(cluster.address, runtime_env=theirs),
        pytest.raises(EnvironmentLacks) as caught,
        gathered(asked(cluster, 1)),
    ):
        pass
    assert todo in str(caught.value.todo)
    assert kind == "none" or "gpusize is 0.0.1 there" in caught.value.what
    cluster.is_empty()


def words(server: Any, *more: str) -> list[str]:
    url = f"http://127.0.0.1:{server.port}/any"
    load = ["--rates", "100", "--duration", "10m", "--connections", "8"]
    return [sys.executable, "-m", "gpusize", "run", "--url", url, "--prompt", "hello", *load, *more]


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGKILL]], ids=["interrupted", "killed"])
def test_nothing_is_left_of_a_run_that_is_ended(
    signals: list[signal.Signals], cluster: RayCluster, server: Any, tmp_path: Path
) -> None:
    # It finds the cluster by itself, as it is on one of its nodes.
    line = words(server, "--ray", "auto", "--hosts", "2", "--out", str(tmp_path / "runs"))
    running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until(lambda: server.requests > 100 or running.poll() is not None)
        assert running.poll() is None, running.communicate()[0]
        assert len(cluster.agents()) == 2
        for each in signals:
            running.send_signal(each)
        said, _ = running.communicate(timeout=WITHIN_S)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == (130 if signals[0] == signal.SIGINT else -signal.SIGKILL), said
    cluster.is_empty()
    before = server.requests
    time.sleep(0.5)
    assert server.requests == before
    if signals[0] == signal.SIGINT:
        assert cluster.files() == []
        (run,) = (tmp_path / "runs").iterdir()
        assert [level.meta["stop_reason"] for level in gpusize.open_run(run).levels] == ["stopped"]


def test_ctrl_c_is_heard_while_nodes_are_waited_for(cluster: RayCluster, server: Any, tmp_path: Path) -> None:
    asks = ["--ray", cluster.address, "--hosts", str(NODES + 1), "--hosts-wait", "10m", "--out", str(tmp_path / "runs")]
    with subprocess.Popen(words(server, *asks), stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        try:
            said = next(line for line in waiting.stderr if "waiting up to" in line)
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(WITHIN_S) == 130
        finally:
            waiting.kill()
    assert "the Ray cluster has 3 nodes with a CPU, and 4 hosts are asked for" in said
    assert not (tmp_path / "runs").exists()
    cluster.is_empty()


def test_it_runs_from_python_and_a_node_that_dies_is_a_host_that_is_lost(
    cluster: RayCluster, server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last one: afterwards the cluster has a node less.
    lost: list[bool] = []

    def progress(event: Any) -> None:
        if not lost and server.requests > 150:
            lost.append(True)
            cluster.cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)

    result = gpusize.run(
        gpusize.Target(f"http://127.0.0.1:{server.port}/any"),
        gpusize.Dataset.from_prompt("hello"),
        gpusize.Load(rates=[100.0], duration_s=6.0, connections=6, process="constant"),
        hosts=NODES,
        ray=cluster.address,
        progress=progress,
        out=tmp_path,
    )
    (level,) = result.levels
    assert sum("missing" in host for host in level.meta["hosts"]) == 1
    assert any("33% of the load that was asked for is missing" in alert for alert in level.meta["alerts"])
    assert level.meta["rows"] == 400
    assert all(host["rate_per_s"] > 0 and "findings" in host for host in result.meta["hosts"])
    cluster.is_empty()
    # Results go there, as JSON where that is asked for.
    assert capsys.readouterr().out == ""
