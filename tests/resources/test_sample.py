"""Commands and processes of this machine, sampled."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.command import RunningCommand, start_status
from gpusize.containers.sample import SampleOptions, sample_command, sample_running
from gpusize.observe.usage.find_containers import check_pid, running_container
from gpusize.observe.usage.processes import in_tree_of
from gpusize.observe.usage.sources import source_of
from tests.proc import held, is_back_at
from tests.resources.live_groups import until
from tests.resources.made import MIB

pytestmark = pytest.mark.alone("CPU time of real processes is measured")

BURN = "import time\nwhile time.process_time() < {cpu_s}: pass\n"
HOLD = "held = b'1' * (100 << 20)\n"
OPTIONS = SampleOptions(gpus=False, interval_s=0.005)


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_command_is_sampled_from_its_start_to_its_end():
    made = sample_command(python(HOLD + BURN.format(cpu_s=0.6)), OPTIONS)
    assert made.exit_code == 0
    assert made.usage.cpu.total_s >= 0.6
    # No single thread has more than one core; the clocks of processes have no steps. But for how long a reading took,
    # in which others may have had the CPU, one of them can be off.
    off_s = made.readings.frame["width_ns"].max() / 1e9
    assert made.usage.cpu.mean_cores <= made.usage.cpu.window(0.1).peak_cores <= 1.05 + off_s / 0.1
    assert made.usage.memory.peak_bytes >= 100 * MIB
    assert made.usage.cpu.total_s == pytest.approx(made.readings.facts.totals["cpu_ns"] / 1e9)
    assert made.recommendation.mem_bytes >= made.usage.memory.peak_bytes + 100 * MIB
    assert made.recommendation.cpu_cores >= 0.1


def test_what_its_children_use_is_its_own():
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLD + BURN.format(cpu_s=0.4)!r}])"
    made = sample_command(python(child), OPTIONS)
    assert made.usage.cpu.total_s >= 0.4
    assert made.usage.memory.peak_bytes >= 100 * MIB


def test_children_that_no_reading_saw_are_in_the_kernels_account():
    many = "import subprocess\nfor _ in range(20): subprocess.run(['true'])\n" + BURN.format(cpu_s=0.2)
    made = sample_command(python(many), SampleOptions(gpus=False, interval_s=3600))
    assert made.usage.cpu.total_s >= 0.2
    assert made.usage.readings <= 3


def test_the_shortest_command_has_a_result():
    for _ in range(5):
        made = sample_command(["true"], OPTIONS)
        assert made.exit_code == 0
        assert made.usage.cpu.total_s > 0
        assert made.usage.duration_s > 0
        assert made.document()["recommendation"]["confidence"] == "low"


@pytest.mark.parametrize("ending, status", [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 15)", 143)])
def test_a_failed_command_gets_no_recommendation(ending, status):
    made = sample_command(python(ending), OPTIONS)
    assert made.exit_code == status
    assert made.recommendation.refused == f"it failed: exit code {status}"


def test_commands_that_cannot_be_started(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        RunningCommand([str(tmp_path / "none")])
    with pytest.raises(PermissionError) as denied:
        RunningCommand([str(tmp_path)])
    assert (start_status(missing.value), start_status(denied.value)) == (127, 126)


def test_an_error_of_ours_does_not_leave_the_command_behind():
    with pytest.raises(ZeroDivisionError), RunningCommand(["sleep", "60"]) as command:
        raise ZeroDivisionError
    assert command.status() == 137


def test_nothing_is_left_of_many_commands():
    sample_command(["true"], OPTIONS)
    before = held()
    for _ in range(20):
        sample_command(["true"], OPTIONS)
    # One that stays ends the test by its time limit.
    until(lambda: is_back_at(before))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    child = subprocess.Popen(["sleep", "60"])
    # It has its name a moment after its descriptors were closed, which is what Popen waits for.
    while Path(f"/proc/{child.pid}/comm").read_text() != "sleep\n":
        assert child.poll() is None
    yield child
    child.kill()
    child.wait()


def test_a_running_process_until_it_ends(sleeper):
    source, member = source_of(pid=sleeper.pid)
    assert (source.name, source.kind, member(sleeper.pid), member(1)) == ("sleep", "process", True, False)
    shown = []

    def show(readings) -> None:
        shown.append(len(readings))
        sleeper.kill()

    made = sample_running(source, member, OPTIONS, show=show)
    assert made.exit_code is None
    assert not made.interrupted
    assert "it ran before the first reading: sums begin there" in made.usage.notes
    assert shown[0] > 0


def test_a_running_process_for_a_time_or_until_somebody_asks(sleeper):
    source, member = source_of(pid=sleeper.pid)
    made = sample_running(source, member, SampleOptions(gpus=False, duration_s=0.3))
    assert made.usage.duration_s >= 0.25
    assert not made.interrupted
    switch = StopSwitch()
    switch.ask()
    assert sample_running(source, member, OPTIONS, switch=switch).interrupted


def test_sampling_oneself_is_said():
    source, member = source_of(pid=os.getpid())
    made = sample_running(source, member, SampleOptions(gpus=False, duration_s=0.1))
    assert "gpusize itself is among the processes that were sampled" in made.notes


def test_exactly_one_thing_is_sampled():
    with pytest.raises(UsageError, match="Give one"):
        source_of()
    with pytest.raises(UsageError, match="Give one"):
        source_of(pid=1, cgroup="/")
    with pytest.raises(UsageError, match="no process 0"):
        check_pid(0)
    source, _ = source_of(cgroup="/a/b/")
    assert (source.name, source.path, source.kind) == ("b", "/a/b", "cgroup")


@pytest.mark.parametrize(
    "wrong",
    [{"interval_s": 0.0}, {"policy": "best"}, {"windows_s": (0.0,)}, {"duration_s": 0.0}, {"windows_s": (1e6,)}],
)
def test_options_that_cannot_be_meant(wrong):
    with pytest.raises(UsageError):
        SampleOptions(**wrong)


class Client:
    """The Docker SDK's client, as far as it is asked here."""

    told: ClassVar[dict | Exception] = {}

    def __init__(self, **_options) -> None:
        if isinstance(self.told, Exception):
            raise self.told

    def inspect_container(self, named: str) -> dict:
        import docker

        if named != "box":
            raise docker.errors.NotFound(f"No such container: {named}")
        assert isinstance(self.told, dict)
        return self.told

    def close(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch) -> type[Client]:
    monkeypatch.setattr("docker.APIClient", Client)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    return Client


def state(pid: int, *, running: bool = True) -> dict:
    status = "running" if running else "exited"
    return {
        "Id": "abc" * 20,
        "Name": "/box",
        "Config": {"Image": "local/box:1"},
        "State": {"Running": running, "Pid": pid, "Status": status},
    }


def test_a_container_by_its_name(client, monkeypatch):
    monkeypatch.setattr(client, "told", state(os.getpid()))
    found = running_container("box")
    assert (found.name, found.image, found.pid) == ("box", "local/box:1", os.getpid())
    source, _ = source_of(container="box")
    assert (source.name, source.kind, source.pid) == ("box", "cgroup", os.getpid())


def test_containers_that_cannot_be_sampled(client, monkeypatch):
    with pytest.raises(UsageError, match="no such container"):
        running_container("other")
    monkeypatch.setattr(client, "told", state(0, running=False))
    with pytest.raises(UsageError, match="is not running: it is exited"):
        running_container("box")
    monkeypatch.setattr(client, "told", state(2**22 + 1))
    with pytest.raises(EnvironmentLacks, match="not visible from here"):
        running_container("box")


def test_a_daemon_that_does_not_answer_as_one(client, monkeypatch):
    import docker

    monkeypatch.setattr(client, "told", docker.errors.DockerException("Error while fetching server API version"))
    with pytest.raises(EnvironmentLacks, match="does not answer: Error while") as caught:
        running_container("box")
    assert caught.value.where == "tcp://127.0.0.1:1"


def test_no_daemon(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EnvironmentLacks, match="there is no Docker daemon"):
        running_container("box")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/deaf.sock")
        with pytest.raises(EnvironmentLacks, match="there is no Docker daemon"):
            running_container("box")


def test_podmans_socket_is_named_where_nobody_else_listens(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "podman").mkdir()
    with socket.socket(socket.AF_UNIX) as podman:
        podman.bind(str(tmp_path / "podman" / "podman.sock"))
        with pytest.raises(
            EnvironmentLacks, match=r"Podman's socket is there: set DOCKER_HOST=unix:///.*/podman\.sock"
        ):
            running_container("box")


def test_a_socket_that_may_not_be_used(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    monkeypatch.setattr(socket.socket, "connect", refused)
    with pytest.raises(EnvironmentLacks, match="no permission on the socket") as caught:
        running_container("box")
    assert "group that owns it" in (caught.value.todo or "")


def refused(_socket, _address) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_tree_is_told_from_the_outside():
    child = subprocess.Popen(["sleep", "5"])
    try:
        assert in_tree_of(os.getpid())(child.pid)
    finally:
        child.kill()
        child.wait()
