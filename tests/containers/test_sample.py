"""``gpusize sample`` and ``gpusize run`` beside containers of a real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusize import open_run
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.observe.usage.sources import source_of
from tests.cli.conftest import Done, chat, gpusize, scripted_server
from tests.containers.engine import IMAGE
from tests.proc import is_sampling
from tests.servers.scripted import Script, ScriptedServer

__all__ = ["gpusize", "scripted_server"]

BURN = "while :; do :; done"
MIB = 1 << 20

Start = Callable[..., str]


@pytest.fixture
def start(daemon: Daemon) -> Iterator[Start]:
    """Starts a container of a shell line and gives its name; it is removed with the test."""
    names: list[str] = []

    def run(line: str, **limits: Any) -> str:
        name = f"gpusize-test-{secrets.token_hex(6)}"
        client = daemon.client
        # Whatever becomes of the test, a shell in a loop must not stay: it is ended by its own alarm.
        command = ["sh", "-c", f"(sleep 100; kill $$) & {line}"]
        client.create_container(IMAGE, command, name=name, host_config=client.create_host_config(**limits))
        names.append(name)
        client.start(name)
        return name

    yield run
    for name in names:
        with contextlib.suppress(Exception):
            daemon.client.remove_container(name, force=True)


Gpusize = Callable[..., Done]


def test_a_container_under_limits_tells_them(gpusize: Gpusize, start: Start):
    # So little that it meets its limit also where others leave it a small part of a core.
    name = start(BURN, cpu_period=100_000, cpu_quota=10_000, mem_limit=64 * MIB)
    done = gpusize("sample", "--json", "--no-plots", "--container", name, "--duration", "1500ms")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["name"], told["kind"]) == (name, "cgroup")
    use = told["usage"]
    # A tenth of a core is what it gets, whatever else this machine does.
    assert 0 < use["cpu"]["mean_cores"] < 0.2
    assert use["throttling"]["share"] > 0
    assert "a CPU limit throttled it" in use["cpu"]["lower_bound"]
    assert use["memory"]["limit_bytes"] == 64 * MIB
    assert use["memory"]["peak_from"] in {"kernel", "sampled"}
    assert any("it may need more" in doubt for doubt in told["recommendation"]["doubts"])


def test_sampling_ends_with_the_container(gpusize: Gpusize, start: Start, daemon: Daemon):
    name = start("sleep 1000")

    def end() -> None:
        while not is_sampling(os.getpid()):
            time.sleep(0.01)
        daemon.client.kill(name)

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    done = gpusize("sample", "--no-plots", "--container", name)
    ending.join()
    assert done.code == 0, done.err
    assert done.out.startswith(f"{name}: ")
    done = gpusize("sample", "--container", name)
    assert done.code == 2
    assert "is not running: it is exited" in done.complaint


def test_the_processes_of_a_container_are_its_own(start: Start):
    ours, other = start(BURN), start(BURN)
    (source, member), (neighbour, _) = (source_of(container=each) for each in (ours, other))
    assert source.pid is not None
    assert neighbour.pid is not None
    assert member(source.pid)
    assert not member(neighbour.pid)
    assert not member(1)


def test_a_load_that_meets_a_containers_limit_says_so(
    gpusize: Gpusize,
    scripted_server: Callable[[Script], ScriptedServer],
    start: Start,
    tmp_path: Path,
):
    name = start(BURN, cpu_period=100_000, cpu_quota=10_000)
    url = f"http://127.0.0.1:{scripted_server(chat).port}/v1"
    load = ("--prompt", "x", "--no-stream", "--model", "m", "--metrics-url", "none", "--concurrencies", "1")
    done = gpusize("run", "--url", url, *load, "--duration", "1s", "--sample-container", name, "--no-plots", "--quiet")
    assert done.code == 0, done.err
    assert f"container {name}: its CPU limit throttled it" in done.out
    (row,) = open_run(next((tmp_path / "runs").iterdir())).resources().to_dicts()
    assert row["source"] == f"container {name}"
    assert 0 < row["cpu_mean_cores"] < 0.2
    assert row["throttled_share"] > 0.01
