"""What importing gpusize gives, what it warns of, and what it must not drag in."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpusize

HEAVY = {"docker", "httpx", "jinja2", "matplotlib", "numpy", "polars", "pynvml", "scipy"}
HEAVY_FOR_HELP = HEAVY | {"asyncio", "attr", "gpusize._core", "markdown_it", "multiprocessing", "pygments", "rich"}
"""What no help needs either; they were 80 ms of the 200 that ``gpusize --help`` took."""
CHECKS_OF_VALUES = {"pydantic"}
"""What the parser of the command line checks values with: help of the program as a whole has none to check."""

IMPORT_CLI = """
import json, sys
import gpusize.cli
print(json.dumps(sorted(sys.modules)))
"""

HELP = """
import contextlib, io, json, sys
import gpusize.cli
sys.argv = ["gpusize", *{arguments!r}]
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    try:
        code = gpusize.cli.main()
    except SystemExit as stop:
        code = stop.code
print(json.dumps([code or 0, shown.getvalue(), sorted(sys.modules)]))
"""

IMPORT_WITH_PROFILE = """
import sys, types, warnings
core = types.ModuleType("gpusize._core")
core.BUILD_PROFILE = {profile!r}
core.monotonic_ns = lambda: 0
sys.modules["gpusize._core"] = core
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import gpusize
    gpusize.monotonic_ns()
    gpusize.monotonic_ns()
    profile = gpusize.build_profile()
print(*[profile, *(f"{{w.category.__name__}}: {{w.message}}" for w in caught)], sep="\\n")
"""


def python(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_exported_name_exists_and_no_public_name_is_left_out() -> None:
    missing = [name for name in gpusize.__all__ if not hasattr(gpusize, name)]
    assert missing == []
    assert len(gpusize.__all__) == len(set(gpusize.__all__))
    ours = {
        name
        for name, value in vars(gpusize).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("gpusize")
    }
    assert ours <= set(gpusize.__all__)


def test_every_exported_function_and_class_is_documented() -> None:
    exported = [getattr(gpusize, name) for name in gpusize.__all__]
    bare = [value.__name__ for value in exported if callable(value) and not value.__doc__]
    assert bare == []


def test_all_errors_are_exported() -> None:
    from gpusize.base import errors

    assert set(errors.__all__) <= set(gpusize.__all__)


def test_versions_agree() -> None:
    assert gpusize.__version__ == importlib.metadata.version("gpusize")


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(gpusize.__file__).with_name("py.typed").exists()


def test_the_tests_run_against_a_release_build() -> None:
    from gpusize import _core

    assert _core.BUILD_PROFILE == gpusize.build_profile() == "release"


def test_a_debug_build_warns_when_it_is_used() -> None:
    profile, *warned = python(IMPORT_WITH_PROFILE.format(profile="debug")).splitlines()
    assert profile == "debug"
    assert len(warned) == 1
    assert warned[0].startswith("RuntimeWarning: ")
    assert "debug" in warned[0]


def test_a_release_build_does_not_warn() -> None:
    assert python(IMPORT_WITH_PROFILE.format(profile="release")).splitlines() == ["release"]


def test_importing_the_command_line_leaves_heavy_packages_alone() -> None:
    loaded = set(json.loads(python(IMPORT_CLI)))
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["estimate", "--help"], ["--version"]])
def test_help_leaves_heavy_packages_alone(arguments: list[str]) -> None:
    code, shown, loaded = json.loads(python(HELP.format(arguments=arguments)))
    assert code == 0
    assert "gpusize" in shown
    whole = arguments[0].startswith("--")
    assert set(loaded) & (HEAVY_FOR_HELP | (CHECKS_OF_VALUES if whole else set())) == set()


def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("gpusize")
    done = subprocess.run([command, "--version"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert gpusize.__version__ in done.stdout
