"""Folders may be called as their owners like: brackets, stars and braces are part of the name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gpusize

SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--model", "m", "--gpus", "2", "--quiet")


@pytest.mark.parametrize("name", ["runs[H200]", "a*b?", "{x,y}"])
def test_a_run_folder_may_have_any_name(gpusize: Gpusize, url: str, name: str) -> None:
    sweep = ("--concurrencies", "1,2", "--passes", "2", "--no-plots")
    done = gpusize("run", "--url", url, *SWEEP, *sweep, "--out", name, "--json")
    assert done.code == 0, done.err
    [path] = Path(name).iterdir()
    [first, second] = json.loads(done.out)["summary"]
    assert (first["n"], second["n"]) == (2, 4)
    assert gpusize("report", path, "--no-plots").code == 0
    again = gpusize("run", "--resume", path, "--quiet", "--json", "--no-plots")
    assert again.code == 0, again.err
    assert json.loads(again.out)["summary"] == [first, second]


def test_an_open_level_under_such_a_name_is_recovered(gpusize: Gpusize, url: str) -> None:
    sweep = ("--concurrencies", "1,2", "--passes", "2", "--no-plots", "--out", "runs[H200]")
    assert gpusize("run", "--url", url, *SWEEP, *sweep).code == 0
    [path] = Path("runs[H200]").iterdir()
    second = path / "levels" / "0001"
    second.rename(path / "levels" / ".0001.open")
    again = gpusize("run", "--resume", path, "--quiet", "--json", "--no-plots")
    assert again.code == 0, again.err
    partial = json.loads((second / "level.json").read_text())
    assert (partial["state"], partial["rows"]) == ("partial", 4)
