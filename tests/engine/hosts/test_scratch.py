"""Folders of processes that were killed are removed by the next one; those of processes that live are not."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusize.engine.hosts.scratch import scratch

HOLDS = """
import sys
from pathlib import Path
from gpusize.engine.hosts.scratch import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "rows").write_text("much")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with scratch(tmp_path) as mine:
            # It lives.
            assert (theirs / "rows").exists()
        assert not mine.exists()
        other.kill()
        other.wait()
        assert (theirs / "rows").exists()
        with scratch(tmp_path) as mine:
            assert list(tmp_path.iterdir()) == [mine]
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "gpusize-agent-without-lock").mkdir()
    (tmp_path / "another").mkdir()
    with scratch(tmp_path):
        pass
    assert {each.name for each in tmp_path.iterdir()} == {"gpusize-agent-without-lock", "another"}


def test_a_thread_that_writes_a_moment_longer_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = shutil.rmtree, itertools.count()

    def removed(folder: Path, **how: Any) -> None:
        real(folder, **how)
        if next(tries) < 3:
            # As a writer of records does that has not yet heard.
            (folder / "level").mkdir(parents=True)

    monkeypatch.setattr(shutil, "rmtree", removed)
    with scratch(tmp_path) as folder:
        (folder / "level").mkdir()
    assert list(tmp_path.iterdir()) == []
    assert next(tries) == 4
