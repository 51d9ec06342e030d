"""A real run folder: the simulated cluster measured at three concurrencies, made once, copied for each test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpusize.cli import invoke

__all__ = ["Folder", "measured", "original"]


class Folder:
    """A copy of a run folder that a test may damage."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def part(self, level: int, kind: str = "records") -> Path:
        """The first part of a level."""
        return self.path / "levels" / f"{level:04d}" / kind / "part-00000.parquet"

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder."""
        found: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        return found

    def put(self, name: str, content: object) -> None:
        """Write a JSON file anew."""
        (self.path / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that copies are made of."""
    out = tmp_path_factory.mktemp("measured")
    asked = ("--users", "4", "--slo", "p95 runtime <= 5s", "--no-plots", "--quiet", "--seed", "7")
    load = ("--concurrencies", "1,2,4", "--duration", "600ms")
    assert invoke(["run", *load, *asked, "--out", str(out)]) in (0, 1)
    [path] = out.iterdir()
    return path


@pytest.fixture
def measured(original: Path, tmp_path: Path) -> Folder:
    """A copy of it."""
    path = tmp_path / original.name
    shutil.copytree(original, path, symlinks=True)
    return Folder(path)
