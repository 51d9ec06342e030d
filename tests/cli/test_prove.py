"""``gpusize prove`` beside real servers: both verdicts, a server that dies, Ctrl-C and what goes on from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest

import gpusize as package
from gpusize.result import open_run
from tests.cli.conftest import Gpusize
from tests.cli.test_duet import Server, servers, wait_for

__all__ = ["servers"]

SOURCE = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
SHORT = ("--duration", "1s", "--budget", "40s", "--quiet", "--no-plots")

pytestmark = pytest.mark.alone("it measures: on a busy machine levels do not hold their load, and are left out")


@pytest.fixture
def measured(gpusize: Gpusize, servers: Callable[[float], Server]) -> tuple[str, str]:
    """A run of a server whose requests take 80 ms, and its address."""
    server = servers(0.01)
    load = ("--prompt", "x", "--model", "simulated", "--concurrencies", "2", "--count", "20", "--no-stream")
    done = gpusize("run", "--url", server.url, *load, "--gpus", "1", "--slo", "p95 runtime <= 130ms", "--users", "4",
                   "--quiet", "--no-plots")  # fmt: skip
    assert Path("runs").is_dir(), done.err
    return "runs", server.url


def certificate(out: Path) -> dict[str, object]:
    [found] = [json.loads(file.read_text()) for file in out.glob("*/certificate.json")]
    assert isinstance(found, dict)
    return found


def test_a_number_is_proved_and_the_rows_say_the_same(gpusize: Gpusize, measured: tuple[str, str],
                                                      servers: Callable[[float], Server]) -> None:  # fmt: skip
    """Two servers of 80 ms keep 130 ms; the one that stands for fewer takes 160 ms, which does not."""
    runs, url = measured
    slow = servers(0.02)
    done = gpusize("prove", runs, "--gpus", "2", "--users", "8", "--url", url, "--fewer-url", slow.url, *SHORT,
                   "--out", "proof", "--json")  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["state"], told["proved"]) == ("done", True)
    assert (told["asked"]["verdict"], told["fewer"]["verdict"]) == ("kept", "not kept")
    for name in ("asked", "fewer"):
        side = told[name]
        result = open_run(Path("proof") / side["run"])
        whole = [each for each in result.levels if each.meta["stop_reason"] == "duration"]
        rows = pl.concat([each.records.sort("due_ns").collect() for each in whole])
        assert (side["requests"], side["levels"]) == (rows.height, len(whole))
        [slo] = side["judged"]["slos"]
        if not side["left_out"]:
            counted = rows.slice(side["judged"]["warmup"])
            late = ((counted["end_ns"] - counted["due_ns"]) > 130_000_000).sum()
            assert (slo["requests"], slo["missed"]) == (counted.height, late)
        assert result.certificate is not None
        page = (Path("proof") / side["run"] / "report.html").read_text(encoding="utf-8")
        assert "2 GPUs keep p95 runtime &lt;= 130ms, and 1 GPU does not" in page
    again = ("estimate", f"proof/{told['asked']['run']}", "--users", "8", "--slo", "p95 runtime <= 130ms")
    shown = json.loads(gpusize(*again, "--json").out)["certificate"]
    assert (shown["conclusion"], shown["asked"]) == (told["conclusion"], told["asked"])
    assert "Certificate" in gpusize(*again).out
    assert json.loads(gpusize("estimate", runs, *again[2:], "--json").out)["certificate"] is None


def test_a_server_that_dies_proves_nothing(
    measured: tuple[str, str], servers: Callable[[float], Server], tmp_path: Path
) -> None:
    runs, _ = measured
    server = servers(0.01)
    command = [sys.executable, "-m", "gpusize", "prove", runs, "--gpus", "2", "--users", "4", "--url", server.url]
    process = subprocess.Popen([*command, *SHORT, "--slo", "p99.99 runtime <= 130ms", "--out", "proof"], cwd=tmp_path,
                               env=SOURCE, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        wait_for(lambda: len(list((tmp_path / "proof").glob("*/levels/0001"))) > 0, process)
        server.kill()
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 1, err
    assert "undecided: the target failed" in " ".join(out.split())


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(
    gpusize: Gpusize, measured: tuple[str, str], tmp_path: Path
) -> None:
    runs, url = measured
    command = [sys.executable, "-m", "gpusize", "prove", runs, "--gpus", "1", "--users", "8", "--url", url]
    process = subprocess.Popen([*command, *SHORT, "--out", "proof"], cwd=tmp_path, env=SOURCE, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        wait_for(lambda: len(list((tmp_path / "proof").glob("*/levels/0000"))) > 0, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 130, err
    assert "gpusize prove --resume proof/" in err
    before = certificate(tmp_path / "proof")
    assert before["state"] == "interrupted"
    [folder] = (tmp_path / "proof").glob("*/run.json")
    done = gpusize("prove", "--resume", folder.parent, "--no-plots", "--json")
    assert done.code == 0, done.err
    assert re.search(r"^level \d+  8 users", done.err, re.MULTILINE), "it ends as soon as it is sure: there is no total"
    told = json.loads(done.out)
    assert (told["state"], told["asked"]["verdict"], told["question"]) == ("done", "kept", before["question"])
    assert told["asked"]["run"] == folder.parent.name


BAD_INPUT: Mapping[tuple[str, ...], str] = {
    (): "no run is named",
    ("runs",): "the number of GPUs is not said",
    ("runs", "--gpus", "3", "--gpus-per-replica", "2"): "no whole number of replicas of 2",
    ("runs", "--gpus", "2", "--slo", "mean runtime <= 1s"): "is about a mean",
    ("runs", "--gpus", "2", "--alpha", "0.9"): "alpha must be from",
    ("runs", "--gpus", "2", "--budget", "3s"): "has no room for a level of 20 s",
    ("runs", "--gpus", "2", "--fewer-by-load", "--fewer-url", "http://127.0.0.1:1"): "two ways to fewer GPUs",
    ("runs", "--gpus", "1", "--fewer-by-load"): "no smaller number of GPUs",
    ("runs", "--gpus", "2", "--scale-command", "true"): "would not know how many replicas",
    ("runs", "--gpus", "2", "--scale-command", "true {pods}"): "there is no {pods}",
    ("runs", "--gpus", "9999", "--target-gpus", "1"): "which is no whole number",
    ("--resume", "runs"): "there is no proof to resume",
    ("--resume", "runs", "--gpus", "2"): "a resumed proof has its own question",
}


@pytest.mark.usefixtures("measured")
def test_bad_input_is_named_before_anything_is_sent(gpusize: Gpusize) -> None:
    for asked, complaint in BAD_INPUT.items():
        done = gpusize("prove", *asked, "--out", "proof")
        assert done.code == 2, (asked, done.err)
        assert complaint in done.err
        assert not Path("proof").exists()
