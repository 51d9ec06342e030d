"""``gpusize run`` as its users start it, and what it left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpusize

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Gpusize", "Sized"]

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1]), "COLUMNS": "160"}


@dataclass(frozen=True)
class Sized:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its ``--json``."""
        assert self.out, self.err
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed

    @property
    def summary(self) -> list[dict[str, Any]]:
        """One row per level."""
        rows: list[dict[str, Any]] = self.document["summary"]
        return rows

    @property
    def records(self) -> pl.DataFrame:
        """One row per request, by level and schedule."""
        return gpusize.open_run(self.document["path"]).records.sort("visit", "seq")

    @property
    def complaint(self) -> str:
        """The one line on standard error that is not progress."""
        lines = [line for line in self.err.splitlines() if line.startswith("gpusize: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("gpusize: ")


@dataclass(frozen=True)
class Gpusize:
    """Runs ``gpusize run`` in a folder of its own."""

    folder: Path

    def run(self, *argv: str | Path | int) -> Sized:
        """Any outcome."""
        command = [sys.executable, "-m", "gpusize", "run", "--json", "--no-plots", "--out", str(self.folder / "runs")]
        command += map(str, argv)
        done = subprocess.run(
            command, cwd=self.folder, env=SOURCE, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        return Sized(done.returncode, done.stdout, done.stderr)

    def measured(self, *argv: str | Path | int) -> Sized:
        """A run that must have gone well, every request of it."""
        done = self.run(*argv)
        assert done.code == 0, done.err
        assert set(done.records["outcome"].cast(str).to_list()) == {"ok"}, done.document["alerts"]
        return done
