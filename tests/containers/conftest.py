"""A real Docker daemon, an image, a place for data, and what a run may not leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.containers.pipeline.cgroups import run_groups
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.labels import FOLDER, RUN
from tests.containers.engine import IMAGE, daemon_address, import_image

HERE = Path(__file__).parent
LONGEST_S = 600.0
"""Of a test here: each starts containers, some of them dozens, and a busy machine takes seconds for each."""

MEASURING = {f"tests.containers.{name}" for name in ("test_sample", "test_sizing", "test_verify")}
"""Files whose tests measure what containers use, wherever else they are asked for (Podman)."""

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder has that time, unless it says otherwise, and the daemons to itself."""
    once = "one Docker daemon and one Podman for all, whose containers it waits for"
    for item in items:
        if item.path.is_relative_to(HERE):
            measures = isinstance(item, pytest.Function) and item.function.__module__ in MEASURING
            item.add_marker(pytest.mark.alone("measures what containers use") if measures else pytest.mark.waits(once))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """The address of a daemon, which is also in the environment, with the image in it."""
    with daemon_address() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        daemon = Daemon.connect()
        import_image(daemon.client)
        yield address
        daemon.client.remove_image(IMAGE, force=True)
        daemon.close()


@pytest.fixture
def daemon(docker_host: str) -> Iterator[Daemon]:
    """A connection to it."""
    connected = Daemon.connect()
    yield connected
    connected.close()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> Iterator[Path]:
    """The folder in which runs of this test have their data; what a failed test leaves is removed."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    containers, networks = ours(daemon, folder)
    for each in containers:
        daemon.remove_container(each["Id"])
    for each in networks:
        daemon.remove_network(each["Id"])


def ours(daemon: Daemon, work: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Containers and networks of the runs of one test; other tests may run on the same daemon."""
    containers, networks = daemon.labelled(RUN)
    mine = [
        [each for each in some if each["Labels"].get(FOLDER, "").startswith(str(work))]
        for some in (containers, networks)
    ]
    return mine[0], mine[1]


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """An input folder."""
    folder = tmp_path / "payload"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n", "utf-8")
    return folder


Leftovers = Callable[[], list[str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Numbers of this process and of those that the test starts: groups are named after them."""
    pids = {os.getpid()}

    class Noted(subprocess.Popen[Any]):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            pids.add(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return pids


@pytest.fixture
def leftovers(daemon: Daemon, work: Path, started: set[int]) -> Leftovers:
    """What the runs of this test have left, and of no other test that runs on this machine."""

    def found() -> list[str]:
        left = [str(each.get("Names") or each.get("Name")) for some in ours(daemon, work) for each in some]
        left += [f"cgroup {name.text}" for name in run_groups() if name.pid in started]
        return left + [str(folder) for folder in work.iterdir()]

    return found


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, work: Path, docker_host: str) -> Run:
    """Runs ``gpusize`` to its end in a folder of its own."""

    def to_end(*argv: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gpusize", *map(str, argv)],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            env={**SOURCE, "TMPDIR": str(work), "DOCKER_HOST": docker_host, **(env or {})},
            timeout=LONGEST_S,
        )

    return to_end
