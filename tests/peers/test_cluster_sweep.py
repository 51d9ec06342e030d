"""A sweep on the real scheduler: what fits is kept, what does not is the knee, and nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl

from tests.servers.kube import ControlPlane
from tests.servers.kube.objects import items, until


def test_ctrl_c_tells_what_was_measured_and_leaves_nothing(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = start_control_plane()
    out = tmp_path / "sweep"
    command = [sys.executable, "-m", "gpusize", "cluster", "sweep", "--kubeconfig", str(plane.kubeconfig())]
    command += ["-t", "pod", "--nodes", "2", "--rates", "2,3,4,5", "--submit-for", "1s", "-o", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # As soon as the first test is written down its successor's nodes are being made: no test runs at that moment.
    until(lambda: (out / "sweep.parquet").exists() or process.poll() is not None, bool)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "interrupted; what was measured is in" in errors
    assert "2 nodes: " in said
    assert "Traceback" not in errors
    with plane.client() as client:
        assert items(client, "/api/v1/nodes") == []
        assert items(client, "/api/v1/pods") == []


def test_the_knee_lies_where_the_gpus_end(start_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    plane = start_control_plane()
    out = tmp_path / "sweep"
    command = [sys.executable, "-m", "gpusize", "cluster", "sweep", "--kubeconfig", str(plane.kubeconfig())]
    # Two nodes have room for 4 pods of 4 GPUs: all of 3 are placed, and of 9 five never.
    command += ["-t", "pod", "-g", "4", "--nodes", "2,1", "--rates", "9,3", "--process", "constant"]
    command += ["--submit-for", "1s", "--settle", "2s", "--slo", "share scheduled >= 100%", "-o", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "the lowest rate did not keep it" in done.stderr
    found = json.loads(done.stdout)
    tests = [
        (test["nodes"], test["rate"], test["workloads"], test["scheduled"], test["kept"], test["full"])
        for test in found["tests"]
    ]
    assert tests == [(1, 3.0, 3, 2, False, True), (2, 3.0, 3, 3, True, False), (2, 9.0, 9, 4, False, True)]
    assert found["knees"] == [
        {"nodes": 1, "workers": None, "keeps": None, "breaks": 3.0},
        {"nodes": 2, "workers": None, "keeps": 3.0, "breaks": 9.0},
    ]
    assert pl.read_parquet(out / "sweep.parquet")["folder"].to_list() == [
        "nodes1-rate3",
        "nodes2-rate3",
        "nodes2-rate9",
    ]
    with plane.client() as client:
        assert items(client, "/api/v1/nodes") == []
        assert items(client, "/api/v1/pods") == []
