"""Parent groups as folders, while other runs come and go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpusize.containers.pipeline.cgroups import GroupName, Groups


def test_another_run_that_ends_meanwhile_takes_no_group_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really, ends = os.mkdir, iter(range(3))

    def mkdir(path: Path, *more: Any, **named: Any) -> None:
        really(path, *more, **named)
        # The folder above is empty still: a run that ends just now removes it.
        if Path(path).name == "gpusize" and next(ends, None) is not None:
            Path(path).rmdir()

    monkeypatch.setattr("os.mkdir", mkdir)
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.os.geteuid", lambda: 0)
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.hierarchies", lambda: [(tmp_path, None)])
    groups = Groups("ab12", systemd=False)
    path = f"/gpusize/{GroupName.of('ab12').text}/1"
    assert groups.make(1) == (path, path)
    assert Path(f"{tmp_path}{path}").is_dir()
    assert next(ends, None) is None
    assert groups.remove() == []
    assert list(tmp_path.iterdir()) == []


def test_where_no_group_can_be_made_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpusize").write_text("in the way")
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.os.geteuid", lambda: 0)
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.hierarchies", lambda: [(tmp_path, None)])
    groups = Groups("ab12", systemd=False)
    assert groups.make(1) is None
    assert not groups.possible
