"""The package's surface: every public name is there, none is imported before it is used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gpusize

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", gpusize.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(gpusize, name).__doc__
    assert name in dir(gpusize)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        gpusize.rum  # noqa: B018


def test_the_version_is_stated_once_more_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gpusize.__version__


def test_neither_the_package_nor_the_command_line_imports_what_is_heavy() -> None:
    code = (
        "import sys, gpusize, gpusize.cli.app, gpusize.api.run, gpusize.result; gpusize.cli.app.application()\n"
        "heavy = ('polars', 'numpy', 'matplotlib', 'httpx', 'jinja2', 'ruamel', 'gpusize._core')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    source = str(Path(gpusize.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert done.stdout.strip() == "[]"


def test_run_is_the_function_whatever_was_imported_before() -> None:
    from gpusize.api import run

    assert gpusize.run is run.run
    assert callable(gpusize.run)
