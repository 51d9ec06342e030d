"""``gpusize plan``: rows, files, exit codes, and complaints about invalid options."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import gpusize as package
from gpusize.estimate.plan.types import COLUMNS
from tests.cli.conftest import Gpusize
from tests.whatif.folder import run_folder

SOURCE = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    "other", [("--users", "400", "--think", "exp(30s)"), ("--rate", "40/s"), ("--token-rate", "5000")]
)
def test_only_an_estimate_for_users_shows_counts_of_levels_alone(
    gpusize: Gpusize, run: Path, other: tuple[str, ...]
) -> None:
    """That column is about users in flight: it said 172 GPUs beside an answer of one for users who pause."""
    assert "by level" in gpusize("estimate", run, "--users", "400").out
    assert "by level" not in gpusize("estimate", run, *other).out


def test_a_table_with_what_it_rests_on(gpusize: Gpusize, run: Path) -> None:
    done = gpusize("plan", run, "--users", "40,200", "--failed", "1", "--gpu-hour-price", "2.5 EUR")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("3 GPUs for 40 users, ")
    assert lines[1] == "at p95 runtime <= 8s"
    assert "GPUs that stand it" in done.out
    assert "730 hours" in done.out
    assert "measure two or more together" in done.out
    [row] = [line for line in lines if line.startswith("   40 ")]
    assert "5,475" in row


def test_files_and_one_document(gpusize: Gpusize, run: Path) -> None:
    done = gpusize("plan", run, "--users", "40,200", "--out", "plan", "--plot", "curve.svg", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads(Path("plan/plan.json").read_text())
    assert [row["users"] for row in document["rows"]] == [40, 200]
    assert pl.read_parquet("plan/plan.parquet").columns == list(COLUMNS)
    assert Path("plan/plan.csv").read_text().startswith("step,growth,users,")
    for name in ("plan/plots/plan.png", "plan/plots/plan.svg", "curve.svg"):
        assert Path(name).stat().st_size > 1000


def test_rows_without_an_answer_say_why(gpusize: Gpusize, run: Path) -> None:
    some = gpusize("plan", run, "--users", "100", "--slo-bounds", "300ms,8s")
    assert some.code == 0
    assert "no answer" in some.out
    assert "100 users; 300 ms: a single request in flight already misses" in some.out
    none = gpusize("plan", run, "--users", "100", "--slo-bounds", "300ms", "--plot", "none.png")
    assert none.code == 1
    assert none.complaint.startswith("no row has an answer: a single request in flight already misses")
    assert not Path("none.png").exists()


def test_tokens_per_second_in_both_commands(gpusize: Gpusize, run: Path) -> None:
    planned = json.loads(gpusize("plan", run, "--token-rate", "1000", "--json").out)["rows"]
    asked = gpusize("estimate", run, "--token-rate", "1000", "--method", "twin", "--json")
    [found] = json.loads(asked.out)["estimates"]
    assert planned[0]["gpus"] == found["gpus"]
    assert planned[0]["rate"] == pytest.approx(found["rate"])
    assert "for 1,000 output tokens/s (" in json.loads(asked.out)["answer"]
    for option in ("--rate", "--token-rate"):
        wrong = gpusize("estimate", run, option, "x")
        assert (wrong.code, wrong.complaint.split(". ")[0]) == (2, f'{option}: "x" is not a rate')


@pytest.mark.parametrize(
    "option, value, said",
    [
        ("--users", "5,,6", "--users, column 3: an item is missing"),
        ("--rate", "fast", '--rate, column 1: "fast" is not a rate'),
        ("--token-rate", "x", '--token-rate, column 1: "x" is not a rate'),
        ("--slo-bounds", "2s,3x", '--slo-bounds, column 1: "2s" is not a multiple'),
        ("--growth", "30%/decade", '--growth: "30%/decade" is not a growth'),
        ("--failed", "-1", '--failed: "-1" is not a whole number from 0 to 1000000'),
        ("--gpu-hour-price", "free", '--gpu-hour-price: "free" is not a price'),
        ("--think", "uniform(1s,2s)", "--think: the twin does not simulate uniform pauses"),
        ("--router", "best", "--router: there is no router 'best'"),
        ("--plot", "plan.doc", '--plot, plan.doc: the ending ".doc"'),
    ],
)
def test_what_cannot_be_meant(gpusize: Gpusize, run: Path, option: str, value: str, said: str) -> None:
    done = gpusize("plan", run, option, value)
    assert done.code == 2
    assert done.complaint.startswith(said)
    assert done.out == ""


def test_a_picture_that_cannot_be_written_is_told_at_once(gpusize: Gpusize, run: Path) -> None:
    done = gpusize("plan", run, "--plot", "missing/plan.png")
    assert done.code == 2
    assert done.complaint.startswith("missing: no such folder")


def read_until(terminal: int, words: str) -> str:
    """What was written to a terminal until these words came, or until nobody writes to it any more."""
    text = ""
    while words not in text:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"nothing came after {text!r}"
        try:
            text += os.read(terminal, 4096).decode()
        except OSError:  # as Linux says that the other side is closed
            break
    return text


def test_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    # With first tokens every row is simulated: many rows last long enough to be interrupted.
    run = run_folder(tmp_path, first=True)
    argv = [sys.executable, "-m", "gpusize", "plan", str(run), "--users", ",".join(str(k) for k in range(1000, 1200))]
    terminal, its_side = pty.openpty()
    process = subprocess.Popen(argv, env=SOURCE, stdout=subprocess.PIPE, stderr=its_side, text=True)
    os.close(its_side)
    try:
        assert "1 of 200 rows" in read_until(terminal, "1 of 200 rows")
        process.send_signal(signal.SIGINT)
        # The line on progress is wiped away first.
        assert read_until(terminal, "\n").rsplit("\x1b[K", 1)[1] == "gpusize: interrupted\r\n"
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, "")
    finally:
        process.kill()
        os.close(terminal)
