"""Commands where matplotlib does not work: all is measured, told and written, but for pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpusize

SOURCE = str(Path(gpusize.__file__).parents[1])
WARNING = (
    "gpusize: pictures are left out, as matplotlib failed (ImportError: libfreetype.so.6: cannot open shared object "
    "file); all else is written. See if it can be imported, and where MPLCONFIGDIR points\n"
)

Broken = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    """Runs ``gpusize`` where the installed matplotlib cannot be loaded."""
    package = tmp_path / "site" / "matplotlib"
    package.mkdir(parents=True)
    said = "libfreetype.so.6: cannot open shared object file"
    (package / "__init__.py").write_text(f"raise ImportError({said!r})\n")

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gpusize", *argv],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), SOURCE])},
            timeout=100,
        )

    return run


def test_a_sample(broken: Broken, tmp_path: Path) -> None:
    done = broken("sample", "--out", "s", "--no-gpu-sample", "--", sys.executable, "-c", "print('mine')")
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert WARNING in done.stderr
    assert "Request " in done.stderr
    assert {"readings.parquet", "sample.json"} <= {each.name for each in (tmp_path / "s").iterdir()}
    assert not (tmp_path / "s" / "usage.png").exists()


def test_a_run_and_its_report(broken: Broken, tmp_path: Path) -> None:
    done = broken("run", "--rates", "50", "--count", "5", "--max-tokens", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == WARNING
    [folder] = (tmp_path / "runs").iterdir()
    assert {"summary.parquet", "report.html"} <= {each.name for each in folder.iterdir()}
    again = broken("report", str(folder))
    assert (again.returncode, again.stderr) == (0, WARNING)
    assert 'role="img"' not in (folder / "report.html").read_text()
