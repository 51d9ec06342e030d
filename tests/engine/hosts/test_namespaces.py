"""Four machines as network namespaces: links of 1 and 20 ms, clocks that are apart, the documented commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tests.engine.hosts.clocks_apart import delaying, in_time_of_its_own
from tests.engine.hosts.hosting import WITHIN_S

HOSTS = ((0.0, 0), (1.0, 200_000_000), (20.0, -200_000_000), (1.0, 3_600_000_000_000))
"""Of each: what its link delays every byte, each way, in ms, and how far its clock is ahead, in ns."""
PORT = 7070
SERVER = """
import sys
from gpusize import _core
server = _core.NullServer(sys.argv[1], 0, threads=1)
print(server.port, flush=True)
for _ in sys.stdin:
    print(server.requests, flush=True)
server.stop()
"""
LOAD = "--api generic --no-stream --rates 300,600 --duration 1500ms --process poisson --seed 11 --workers 1 --warmup 0s"
PYTHON = (sys.executable, "-m")
NOISE = ("--no-plots", "--quiet")


@dataclass
class Lab:
    """A hub with the head and the server, and a network for each host.

    Attributes:
        hub: the hub's namespace.
        hosts: those of the hosts.
    """

    hub: str
    hosts: list[str]

    def address(self, host: int) -> str:
        """The hub's address on the link to a host."""
        return f"10.77.{host}.1"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=WITHIN_S)


@pytest.fixture
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    found = Lab(f"gz{os.getpid()}hub", [f"gz{os.getpid()}h{k}" for k in range(len(HOSTS))])
    with ExitStack() as stack:
        for name in (found.hub, *found.hosts):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for k, name in enumerate(found.hosts):
            _ip("-n", found.hub, "link", "add", f"to{k}", "type", "veth", "peer", "name", "up0", "netns", name)
            _ip("-n", found.hub, "addr", "add", f"{found.address(k)}/30", "dev", f"to{k}")
            _ip("-n", name, "addr", "add", f"10.77.{k}.2/30", "dev", "up0")
            _ip("-n", found.hub, "link", "set", f"to{k}", "up")
            _ip("-n", name, "link", "set", "up0", "up")
            _ip("-n", name, "route", "add", "default", "via", found.address(k))
        yield found


@contextmanager
def _started(namespace: str, words: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a namespace; it does not outlive the block."""
    command = ["ip", "netns", "exec", namespace, *words]
    process = subprocess.Popen(
        command,
        text=True,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def _server(lab: Lab) -> Iterator[tuple[str, Callable[[], int]]]:
    with _started(lab.hub, [sys.executable, "-c", SERVER, lab.address(0)]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        stdin, stdout = process.stdin, process.stdout

        def requests() -> int:
            stdin.write("how many\n")
            stdin.flush()
            return int(stdout.readline())

        yield f"http://{lab.address(0)}:{port}/", requests


def _words(url: str, out: Path, *more: str) -> list[str]:
    rows = ["--prompt", "a", "--prompt", "b"]
    return [*PYTHON, "gpusize", "run", "--url", url, *rows, *LOAD.split(), "--out", str(out), *NOISE, *more]


def _levels(out: Path) -> list[tuple[dict[str, object], pl.DataFrame]]:
    """Of each level ``level.json`` and the rows, with due times after the level's start."""
    (run,) = [out] if (out / "run.json").exists() else list(out.iterdir())
    found = []
    for folder in sorted((run / "levels").iterdir()):
        level = json.loads((folder / "level.json").read_text("utf-8"))
        rows = pl.read_parquet(sorted((folder / "records").glob("*.parquet")), glob=False)
        due = pl.col("due_ns") - level["start_ns"]
        found.append((level, rows.select("stream", "seq", "row", due, "outcome").sort("stream", "seq")))
    return found


def test_four_hosts_are_one(lab: Lab, tmp_path: Path) -> None:
    token = os.urandom(16).hex()
    with ExitStack() as stack:
        url, requests = stack.enter_context(_server(lab))
        with _started(lab.hub, _words(url, tmp_path / "alone")) as alone:
            said = alone.communicate(timeout=WITHIN_S)
        assert alone.returncode == 0, said
        before = requests()
        asked = ["--hosts", str(len(HOSTS)), "--listen", f"0.0.0.0:{PORT}"]
        words = _words(url, tmp_path / "together", *asked)
        together = stack.enter_context(_started(lab.hub, words, GPUSIZE_TOKEN=token))
        agents = []
        for k, (delay_ms, ahead_ns) in enumerate(HOSTS):
            link = delaying((lab.address(k), PORT), delay_ms / 1e3)
            relay = stack.enter_context(_started(lab.hosts[k], link))
            assert relay.stdout is not None
            place = f"127.0.0.1:{int(relay.stdout.readline())}"
            agent = [*in_time_of_its_own(ahead_ns), *PYTHON, "gpusize", "agent", "--join", place, "--no-checks"]
            agents.append(stack.enter_context(_started(lab.hosts[k], agent, GPUSIZE_TOKEN=token)))
        said = together.communicate(timeout=2 * WITHIN_S)
        assert together.returncode == 0, said
        assert [each.wait(WITHIN_S) for each in agents] == [0] * len(HOSTS)
        counted = requests() - before
    mine, theirs = _levels(tmp_path / "together"), _levels(tmp_path / "alone")
    assert len(mine) == len(theirs) == 2
    for (level, rows), (_, expected) in zip(mine, theirs, strict=True):
        assert rows.equals(expected), "every stream, number, row and due time, once"
        hosts = level["hosts"]
        assert isinstance(hosts, list)
        assert len({each["host"] for each in hosts}) == len(HOSTS)
        for each in hosts:
            assert abs(each["start_error_ns"]) < 20_000_000, "clocks are hours apart, and the start is common"
        apart_ns = sorted(each["offset_ns"] for each in hosts)
        true_ns = sorted(ahead_ns for _, ahead_ns in HOSTS)
        for told_ns, given_ns in zip(apart_ns, true_ns, strict=True):
            assert abs(told_ns - given_ns) <= max(each["uncertainty_ns"] for each in hosts)
    # Where the path is looked for, and once before the load.
    probes = before - sum(rows.height for _, rows in theirs)
    assert 1 <= probes <= 2
    assert counted == sum(rows.height for _, rows in mine) + probes - 1 + len(HOSTS), "each host asked once before"
