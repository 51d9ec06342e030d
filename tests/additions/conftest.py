"""A copy of the package in which a test changes files as somebody would who adds something."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpusize

PACKAGE = Path(gpusize.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


class House:
    """The copy; its files are links to ours until they are changed.

    Attributes:
        changed: paths below the package that were added or changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed: list[str] = []
        shutil.copytree(PACKAGE, folder / "gpusize", copy_function=os.symlink)

    def add(self, path: str, text: str) -> None:
        """A new file."""
        self._note(path)
        (self.folder / "gpusize" / path).write_text(text, "utf-8")

    def insert(self, path: str, before: str, text: str) -> None:
        """A text into a file, before another one that stands there once."""
        file = self.folder / "gpusize" / path
        old = file.read_text("utf-8")
        assert old.count(before) == 1, f"{path} has {old.count(before)} times: {before}"
        self._note(path)
        file.unlink()  # the link, not our file
        file.write_text(old.replace(before, text + before), "utf-8")

    def run(self, *args: str, exits: int = 0) -> str:
        """What ``gpusize ARGS`` prints in the folder of the copy, both outputs together."""
        env = {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "200", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gpusize", *args]
        found = subprocess.run(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert found.returncode == exits, found.stdout
        return found.stdout

    def is_documented_as(self, addition: str) -> bool:
        """Whether what was changed is what the table in docs/architecture.md names for an addition, one to three."""
        [row] = [line for line in ARCHITECTURE.read_text("utf-8").splitlines() if line.startswith(f"| {addition} |")]
        named = set(re.findall(r"`([\w/.]+)`", row.split("|")[2]))
        found = {path if path in named else str(Path(path).parent) for path in self.changed}
        return found == named and 1 <= len(self.changed) <= 3

    def _note(self, path: str) -> None:
        if path not in self.changed:
            self.changed.append(path)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """The package in an empty folder."""
    return House(tmp_path)
