"""Parent groups through systemd, by a stand-in of systemctl that writes down what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpusize.containers.pipeline.cgroups import GroupName, Groups, run_slices, stop_slices

PROGRAM = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/log"
case "$*" in
*list-units*)
  echo "gpusize_ab12_7_9.slice loaded active active Slice"
  echo "gpusize_ab12_7_9-1.slice loaded active active" ;;
esac
exit {code}
"""

Stand = Callable[[int], Path]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Puts the stand-in in front of the real one; it exits with the given code."""

    def put(code: int) -> Path:
        program = tmp_path / "systemctl"
        program.write_text(PROGRAM.format(code=code), "utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setattr("gpusize.containers.pipeline.cgroups.os.geteuid", lambda: 0)
        return tmp_path / "log"

    return put


def test_a_slice_is_started_for_each_container_and_stopped_at_the_end(systemctl: Stand) -> None:
    log = systemctl(0)
    groups = Groups("ab12", systemd=True)
    top = f"gpusize_{GroupName.of('ab12').text}"
    assert groups.make(1) == (f"{top}-1.slice", f"/{top}.slice/{top}-1.slice")
    assert groups.make(2) is not None
    assert groups.remove() == []
    assert log.read_text().splitlines() == [
        f"--quiet start {top}-1.slice",
        f"--quiet start {top}-2.slice",
        f"--quiet stop {top}-1.slice {top}-2.slice {top}.slice",
    ]


def test_without_systemd_there_is_no_group_and_nothing_to_remove(systemctl: Stand) -> None:
    systemctl(1)
    groups = Groups("ab12", systemd=True)
    assert groups.make(1) is None
    assert not groups.possible
    assert groups.remove() == []


def test_slices_of_earlier_runs_are_found(systemctl: Stand) -> None:
    systemctl(0)
    assert run_slices() == {GroupName("ab12_7_9"): ["gpusize_ab12_7_9.slice", "gpusize_ab12_7_9-1.slice"]}
    assert stop_slices(["gpusize_ab12.slice"]) == []
    systemctl(5)
    assert run_slices() == {}
    assert stop_slices(["gpusize_ab12.slice"]) == ["gpusize_ab12.slice"]
