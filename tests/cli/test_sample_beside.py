"""``gpusize run --sample-pid`` and its kin: what served the load, level by level."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusize import open_run
from tests.cli.conftest import Gpusize, chat
from tests.resources.live_groups import Group, made
from tests.servers.scripted import Script, ScriptedServer

pytestmark = pytest.mark.alone("a load is measured beside a sampler")

Serve = Callable[[Script], ScriptedServer]
LOAD = (
    "--prompt",
    "x",
    "--no-stream",
    "--model",
    "m",
    "--metrics-url",
    "none",
    "--concurrencies",
    "1,2",
    # Long enough for readings in each level, however late the sampler is.
    "--duration",
    "1s",
)


@pytest.fixture
def group() -> Iterator[Group]:
    group = made()
    if group is None:
        pytest.skip("making cgroups is not permitted here (root is needed)")
    try:
        yield group
    finally:
        group.remove()


def test_each_level_tells_what_the_server_used(gpusize: Gpusize, scripted_server: Serve, group: Group, tmp_path: Path):
    url = f"http://127.0.0.1:{scripted_server(chat).port}/v1"
    child = subprocess.Popen(["sleep", "60"])
    group.take(child.pid)
    try:
        beside = ("--sample-pid", str(os.getpid()), "--sample-cgroup", group.path, "--sample-interval", "5ms")
        done = gpusize("run", "--url", url, *LOAD, *beside, "--no-plots", "--quiet")
    finally:
        child.kill()
        child.wait()
    assert done.code == 0, done.err
    assert "Containers and processes" in done.out
    run = open_run(next((tmp_path / "runs").iterdir()))
    table = run.tables["resources"]
    assert table["visit"].to_list() == [0, 0, 1, 1]
    assert table["source"].to_list() == [f"pid {os.getpid()}", f"cgroup {group.path}"] * 2
    # The server runs in this process, as the generator does.
    ours = table.filter(kind="process")
    assert ours["cpu_mean_cores"].min() > 0
    assert ours["mem_peak_bytes"].min() > 10 << 20
    samples = run.samples().collect()
    cpu = samples.filter(metric="container_cpu_usage_seconds_total", source=f"pid {os.getpid()}")
    assert set(cpu["visit"].to_list()) == {0, 1}
    records = run.records
    assert cpu["t_ns"].min() <= records["sent_ns"].min() <= records["end_ns"].max() <= cpu["t_ns"].max()
    # The run can be made again with the same options.
    told = json.loads((run.path / "run.json").read_text())
    assert told["options"]["sample_pid"] == [str(os.getpid())]


def test_what_is_not_there_ends_the_run_before_a_folder_is_made(
    gpusize: Gpusize, scripted_server: Serve, tmp_path: Path
):
    url = f"http://127.0.0.1:{scripted_server(chat).port}/v1"
    done = gpusize("run", "--url", url, *LOAD, "--sample-pid", str(2**22 + 1), "--quiet")
    assert done.code == 2
    assert "there is no process" in done.complaint
    assert not (tmp_path / "runs").exists()
