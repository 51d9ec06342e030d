"""A real Docker daemon, an image, a place for data, and what a run may not leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusize.pipeline.daemon import Daemon
from gpusize.pipeline.groups import run_groups
from gpusize.pipeline.session import FOLDER, RUN
from tests.containers.engine import IMAGE, daemon_address, import_image


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
def leftovers(daemon: Daemon, work: Path) -> Leftovers:
    """What the runs of this test have left."""

    def found() -> list[str]:
        every = [each for some in daemon.labelled(RUN) for each in some]
        mine = [each for some in ours(daemon, work) for each in some]
        others = {each["Labels"][RUN] for each in every} - {each["Labels"][RUN] for each in mine}
        left = [str(each.get("Names") or each.get("Name")) for each in mine]
        left += [f"cgroup {run}" for run in run_groups() if run not in others]
        return left + [str(folder) for folder in work.iterdir()]

    return found
