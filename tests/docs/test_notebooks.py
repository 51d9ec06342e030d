"""The notebooks of the documentation run as they stand, in a kernel; what they print agrees with their run folders."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gpusize

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
NOTEBOOKS = ("compare-two", "size-a-model-server")
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


@dataclass(frozen=True)
class Executed:
    """A notebook after its run: the folder that it ran in, and the outputs of each code cell."""

    folder: Path
    outputs: list[list[dict[str, Any]]]

    @property
    def printed(self) -> str:
        return "".join(
            "".join(each["text"]) for cell in self.outputs for each in cell if each["output_type"] == "stream"
        )

    def html(self) -> list[str]:
        """The HTML that stands below the cells, in order."""
        every = [each.get("data", {}) for cell in self.outputs for each in cell]
        return ["".join(data["text/html"]) for data in every if "text/html" in data]


def cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((TUTORIALS / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(name: str, folder: Path) -> Executed:
    done = folder / "executed.json"
    python = os.pathsep.join([str(Path(gpusize.__file__).parents[1]), *sys.path[1:]])
    own = {name: str(folder / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    command = [sys.executable, "-c", EXECUTE, str(TUTORIALS / f"{name}.ipynb"), str(folder), str(done)]
    ran = subprocess.run(
        command, env={**os.environ, **own, "PYTHONPATH": python}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    notebook = json.loads(done.read_text("utf-8"))
    return Executed(folder, [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"])


def headline(html: str) -> str:
    found = re.search(r'class="headline[a-z ]*">(.*?)<', html)
    assert found is not None, html[:2000]
    return found[1]


def test_they_are_kept_without_outputs_and_magic_lines() -> None:
    assert sorted(path.stem for path in TUTORIALS.glob("*.ipynb")) == list(NOTEBOOKS)
    for name in NOTEBOOKS:
        for cell in cells(name):
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            assert not re.search(r"^\s*[%!]", "".join(cell["source"]), re.MULTILINE)


@pytest.mark.alone("it measures two simulated servers")
@pytest.mark.realtime("a machine that is busy all the time leaves no level that counts")
def test_a_server_is_sized(tmp_path: Path) -> None:
    done = execute("size-a-model-server", tmp_path)
    run = gpusize.open_run(tmp_path / "sized")
    [progress] = [each for each in done.outputs[0] if each["output_type"] == "display_data"]
    assert re.findall(r"level (\d)/6", "".join(progress["data"]["text/plain"])) == list("123456")
    printed = re.findall(r"level (\d+): (\d+) requests, p95 ([0-9.]+) s", done.printed)
    assert len(printed) == 6
    for visit, requests, p95_s in printed:
        raw = pl.read_parquet(run.path / "levels" / f"{int(visit):04d}" / "records" / "*.parquet")
        ok = raw.filter(pl.col("outcome") == 0)
        taken_s = np.sort((ok["end_ns"] - ok["due_ns"]).to_numpy() / 1e9)
        assert int(requests) == taken_s.size
        at = 0.95 * (taken_s.size - 1)
        assert taken_s[int(at)] - 1e-6 <= float(p95_s) <= taken_s[min(int(at) + 1, taken_s.size - 1)] + 1e-6
    result, more_users, plan = done.html()
    answers = [run.estimate(), run.estimate(users=250)]
    for html, answer in zip((result, more_users), answers, strict=True):
        said = headline(html)
        assert said.startswith(f"{answer.gpus:,} GPU" if answer.gpus is not None else "No GPU count"), said
    shares = re.findall(r"([0-9.]+)% [\u2713\u2717]", result)
    told = run.summary.filter(pl.col("state") == "done")["slo_0_attainment"].to_list()
    assert [float(share) for share in shares] == pytest.approx([100 * share for share in told], abs=0.1)
    rows = gpusize.what_if(run, users=[50, 100, 200, 400], gpu_hour_price="2.5 EUR").frame
    assert all(f">{gpus:,}<" in plan for gpus in rows["gpus"].drop_nulls())
    [picture] = [each for each in done.outputs[2] if "image/png" in each.get("data", {})]
    assert picture["metadata"]["image/png"]["width"] == 806


@pytest.mark.alone("it measures two simulated servers")
@pytest.mark.realtime("a machine that is busy all the time leaves no level that counts")
def test_two_servers_are_compared(tmp_path: Path) -> None:
    done = execute("compare-two", tmp_path)
    found = re.search(r"p50 runtime: ([0-9.]+) ms and ([0-9.]+) ms, ([+-][0-9.]+) %, (\w[\w ]*)", done.printed)
    assert found is not None, done.printed
    a_ms, b_ms, change = (float(each) for each in found.groups()[:3])
    again = gpusize.compare({side: tmp_path / "duet" / side for side in ("old", "new")})
    [median] = [each for each in again.differences if each.figure == "p50 runtime"]
    assert (a_ms, b_ms, change) == pytest.approx((1e3 * median.a, 1e3 * median.b, 100 * median.change), abs=1e-3)
    assert found[4] == median.verdict
    for side, said_ms in (("old", a_ms), ("new", b_ms)):
        raw = pl.read_parquet(tmp_path / "duet" / side / "*" / "levels" / "*" / "records" / "*.parquet")
        ok = raw.filter(pl.col("outcome") == 0)
        assert said_ms == pytest.approx(float(np.median(ok["end_ns"] - ok["due_ns"])) / 1e6, rel=0.2)
    first, *_ = done.html()
    assert headline(first).startswith("new against old:")
    assert len([each for each in done.outputs[0] if each["output_type"] == "display_data"]) == 1, (
        "one view of all visits"
    )
