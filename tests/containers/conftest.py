"""A real Docker daemon, an image, a place for data, and what a run may not leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which runs of this test have their data."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


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
    """What the runs of this test have left; other tests may run on the same daemon."""

    def found() -> list[str]:
        containers, networks = daemon.labelled(RUN)
        mine = [each for each in (*containers, *networks) if each["Labels"].get(FOLDER, "").startswith(str(work))]
        others = {each["Labels"][RUN] for each in (*containers, *networks)} - {each["Labels"][RUN] for each in mine}
        left = [str(each.get("Names") or each.get("Name")) for each in mine]
        left += [f"cgroup {run}" for run in run_groups() if run not in others]
        return left + [str(folder) for folder in work.iterdir()]

    return found
