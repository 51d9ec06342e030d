"""Groups of a run that has ended, while the last process in them is on its way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.containers.pipeline import cgroups
from gpusize.containers.pipeline.cgroups import GroupName, remove_groups

NAME = GroupName("0123456789ab_1_2")


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group with something in it: a folder with a file, which cannot be removed either."""
    file = tmp_path / "gpusize" / NAME.text / "1" / "process"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [(tmp_path, None)])
    return file


def test_a_monitor_that_ends_after_its_container_leaves_no_group(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.time.sleep", lambda _: process.unlink())
    assert remove_groups(NAME) == []
    assert not process.parents[2].exists()


def test_a_group_in_which_something_goes_on_is_told_after_a_while(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.time.sleep", slept.append)
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.time.monotonic", lambda: sum(slept))
    assert remove_groups(NAME) == [f"cgroups /gpusize/{NAME.text}"]
    assert process.exists()
    assert 2 <= sum(slept) <= 5
