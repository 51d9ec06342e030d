"""Standard output and standard error that cannot be written: what was measured decides, and the text is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusize.cli import invoke
from tests.cli.conftest import Gpusize

PROGRAM = "from gpusize.cli import main; main()"
SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--model", "m", "--gpus", "2", "--no-plots")
LEVELS = ("--concurrencies", "1,2", "--passes", "2")


def measure(folder: Path, url: str, redirected: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, run.json and standard error of a run under a shell's redirection."""
    words = [sys.executable, "-c", PROGRAM, "run", "--url", url, *SWEEP, *LEVELS, *options]
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    [run] = (folder / "runs").iterdir()
    for file in run.glob("levels/*/level.json"):
        assert json.loads(file.read_text())["state"] == "done"
    assert len(list(run.glob("levels/0*"))) == 2
    return done.returncode, json.loads((run / "run.json").read_text()), done.stderr


@pytest.mark.parametrize(
    "redirected, lost",
    [
        ("2>/dev/full", {"standard error": "No space left on device"}),
        ("2>&-", {"standard error": "it is closed"}),
        (">/dev/full", {"standard output": "No space left on device"}),
        (">&-", {"standard output": "it is closed"}),
    ],
)
def test_measuring_goes_on_and_the_code_says_what_was_measured(
    tmp_path: Path, url: str, redirected: str, lost: dict[str, str]
) -> None:
    code, run, _ = measure(tmp_path, url, redirected)
    assert code == 0
    assert run["lost_output"] == lost


def test_a_measured_no_stays_one(tmp_path: Path, url: str) -> None:
    code, run, _ = measure(tmp_path, url, ">/dev/full 2>/dev/full", "--slo", "p95 runtime <= 1us")
    assert code == 1
    assert set(run["lost_output"]) == {"standard output", "standard error"}


def test_lost_text_is_told_where_it_can_be(tmp_path: Path, url: str) -> None:
    _, _, err = measure(tmp_path, url, ">/dev/full")
    assert err.splitlines()[-1] == (
        "gpusize: standard output cannot be written (No space left on device): its text is lost"
    )


def test_a_reader_that_has_had_enough_is_no_loss(tmp_path: Path, url: str) -> None:
    words = [sys.executable, "-c", PROGRAM, "run", "--url", url, *SWEEP, *LEVELS, "--quiet"]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as out:
        done = subprocess.run(words, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    [run] = (tmp_path / "runs").iterdir()
    assert "lost_output" not in json.loads((run / "run.json").read_text())


def test_a_command_whose_text_is_all_it_gives_fails_with_it(
    gpusize: Gpusize, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpusize("run", "--url", url, *SWEEP, *LEVELS, "--quiet").code == 0
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = invoke(["runs", "verify", "runs"])
        monkeypatch.undo()
    assert code == 3


@pytest.mark.parametrize(
    "argv, code",
    [
        (("estimate", "absent", "--debug"), 2),
        (("run", "--users", "0", "--debug"), 2),
        (("run", "--slo", "p95 runtme <= 1s", "--debug"), 2),
    ],
)
def test_debug_changes_no_exit_code(gpusize: Gpusize, argv: tuple[str, ...], code: int) -> None:
    done = gpusize(*argv)
    assert done.code == code
    assert done.err.startswith("Traceback (most recent call last):")
    plain = gpusize(*argv[:-1])
    assert (plain.code, plain.complaint) == (code, done.complaint)
