"""Documented names of the last release still work, and warn."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from types import ModuleType

import pytest

from gpusize.base.old_names import HOMES


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Imported as for the first time, with its warning."""
    for part in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, part)
    with pytest.warns(DeprecationWarning, match=rf"^{name} is gpusize\.[a-z_.]+ now$"):
        return importlib.import_module(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", HOMES)
def test_an_old_name_hands_on_all_that_the_module_has(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = importlib.import_module(f"gpusize.{HOMES[old]}")
    module = imported(f"gpusize.{old}", monkeypatch)
    names = getattr(new, "__all__", ())
    assert names or old == "interop"
    assert all(getattr(module, name) is getattr(new, name) for name in names)
    assert dir(module) == dir(new)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_inside_an_old_package_is_not_loaded_twice() -> None:
    old = importlib.import_module("gpusize.samples.series")
    new = importlib.import_module("gpusize.observe.metrics.series")
    assert old.Gauge is new.Gauge
    assert importlib.import_module("gpusize.dataset").Dataset is importlib.import_module("gpusize").Dataset


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["gpusize.nothing", "gpusize.samples.nothing", "gpusize.overload.nothing"])
def test_what_never_was_is_still_not_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)


def test_a_command_works_by_its_old_name() -> None:
    old, new = (
        subprocess.run([sys.executable, "-m", name, "--help"], capture_output=True, text=True, check=True).stdout
        for name in ("gpusize.triton", "gpusize.targets.triton")
    )
    assert old == new
    assert "serve" in old


def test_the_warning_names_the_line_that_imports() -> None:
    code = "import warnings\nwarnings.simplefilter('always')\nimport gpusize.scaling\n"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert told.startswith("<string>:3: DeprecationWarning: gpusize.scaling is gpusize.estimate.laws now")


def test_old_names_cost_nothing_until_one_is_asked_for() -> None:
    code = "import json, sys, gpusize; print(json.dumps([name for name in sys.modules if name.startswith('gpusize')]))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == ["gpusize"]


@pytest.mark.parametrize(
    "module, old, new",
    [
        ("containers", "ResourceWatch", "ContainerReader"),
        ("containers.pipeline", "MakeWatch", "MakeReader"),
        ("containers.pipeline", "Watch", "Reader"),
        ("containers.recommend", "verdict_of", "check_recommendation"),
        ("observe.usage.gpus", "GpuWatch", "GpuReader"),
        ("observe.usage.sampler", "ResourceWatch", "ContainerReader"),
    ],
)
def test_a_renamed_name_still_works_and_warns(module: str, old: str, new: str) -> None:
    there = importlib.import_module(f"gpusize.{module}")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{old} is {new} now$"):
        assert getattr(there, old) is getattr(there, new)
    with pytest.raises(AttributeError, match="nothing"):
        _ = there.nothing
