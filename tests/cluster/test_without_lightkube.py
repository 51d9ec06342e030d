"""Without the extra `gpusize[kube]`: what needs a cluster says so, what reads a folder works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.folders import save
from tests.cluster.synthetic import drawn_world

BLOCKED = """
import sys
for name in ("lightkube", "httpx2", "msgspec"):
    sys.modules[name] = None
from gpusize.cli import main
main()
"""
NEED = (
    ("run", "-t", "pod", "-n", "1"),
    ("submit", "-t", "pod", "-n", "1"),
    ("sample",),
    ("clean",),
    ("fake-nodes",),
    ("sweep", "--nodes", "1", "--rates", "1"),
)


def gpusize(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, "cluster", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", NEED, ids=lambda words: words[0])
def test_what_needs_a_cluster_says_what_to_install(words: tuple[str, ...], tmp_path: Path) -> None:
    # A cleaning asks its folder first.
    folder = {"fake-nodes": (), "clean": ("--run", "abcdefgh")}.get(words[0], ("-o", str(tmp_path / "out")))
    done = gpusize(*words, *folder)
    assert done.returncode == 3, done.stderr
    assert "pip install 'gpusize[kube]'" in done.stderr


def test_a_folder_is_reported_and_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    save(drawn_world(1), folder)
    assert gpusize("report", "-o", str(folder)).returncode == 0
    assert gpusize("plot", "-o", str(folder)).returncode == 0
