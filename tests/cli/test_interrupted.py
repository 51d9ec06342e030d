"""Ctrl-C, a kill and a full disk: whatever was measured by then is safe."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gpusize
from tests.cli.conftest import chat
from tests.servers.scripted import Request, Script, ScriptedServer, Step, Wait
from tests.store.test_full_disk import run_on_tiny_disk

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}
SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--model", "m", "--quiet", "--no-plots")

Start = Callable[..., subprocess.Popen[str]]


class Stage:
    """A server that answers so many requests, then holds the next ones back until it is let go.

    ``held`` is set when so many are held back at once: all that the client sends by then.
    """

    def __init__(self, start: Callable[[Script], ScriptedServer], answers: int, hold: int) -> None:
        self.held = threading.Event()
        self.go_on = threading.Event()
        # Requests of several connections come at once: each takes a number of its own.
        self._numbers = itertools.count(1)
        self._answers = answers
        self._hold = hold
        self.server = start(self._script)
        self.url = f"http://127.0.0.1:{self.server.port}/v1"

    def _script(self, request: Request) -> Sequence[Step]:
        number = next(self._numbers)
        if self.go_on.is_set() or number <= self._answers:
            return chat(request)
        if number >= self._answers + self._hold:
            self.held.set()
        return [Wait(self.go_on), *chat(request)]


@pytest.fixture
def staged(scripted_server: Callable[[Script], ScriptedServer]) -> Iterator[Callable[..., Stage]]:
    """Makes a stage; at the test's end it lets everything go, so that its threads can end."""
    made: list[Stage] = []

    def make(answers: int, hold: int = 1) -> Stage:
        made.append(Stage(scripted_server, answers, hold))
        return made[-1]

    yield make
    for stage in made:
        stage.go_on.set()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command line as a process; what still runs at the test's end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpusize", *map(str, argv)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=SOURCE, text=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def levels(folder: Path) -> list[dict[str, Any]]:
    [path] = (folder / "runs").iterdir()
    return [json.loads(file.read_text()) for file in sorted(path.glob("levels/[0-9]*/level.json"))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_in_order(
    start: Start, tmp_path: Path, staged: Callable[..., Stage], number: signal.Signals
) -> None:
    # The probe, and two rounds of the level. As all four slots wait, they have the eight answers.
    stage = staged(9, hold=4)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "4,8", "--duration", "1h", "--drain", "100ms")
    assert stage.held.wait(60)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what was measured is kept in runs/" in err
    assert "gpusize run --resume runs/" in err
    [level] = levels(tmp_path)
    assert level["state"] == "cancelled"
    assert level["outcomes"] == {"ok": 8, "cancelled": 4}
    [path] = (tmp_path / "runs").iterdir()
    assert pl.read_parquet(path / "levels" / "0000" / "records" / "*.parquet").height == level["rows"]
    assert [entry.name for entry in (path / "levels").iterdir()] == ["0000"]
    assert (path / "report.html").is_file()


def test_a_target_that_never_answers_does_not_hold_the_user(
    start: Start, tmp_path: Path, staged: Callable[..., Stage]
) -> None:
    stage = staged(0)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "1")
    assert stage.held.wait(60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not (tmp_path / "runs").exists()


def test_requests_in_flight_may_still_end_within_the_drain(
    start: Start, tmp_path: Path, staged: Callable[..., Stage]
) -> None:
    stage = staged(1, hold=2)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "2", "--passes", "999999", "--drain", "1h")
    assert stage.held.wait(60)
    process.send_signal(signal.SIGINT)
    stage.go_on.set()
    process.communicate(timeout=60)
    assert process.returncode == 130
    [level] = levels(tmp_path)
    assert level["state"] == "cancelled"
    assert set(level["outcomes"]) == {"ok"}
    assert level["rows"] >= 2


def test_a_second_signal_ends_at_once(start: Start, tmp_path: Path, staged: Callable[..., Stage]) -> None:
    stage = staged(1)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "2", "--passes", "9", "--drain", "1h")
    assert stage.held.wait(60)
    # Two signals that are pending together are one, so they are sent until they have worked.
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == 130
    [level] = levels(tmp_path)
    assert set(level["outcomes"]) == {"cancelled"}


def test_a_killed_run_goes_on_where_it_was(start: Start, tmp_path: Path, staged: Callable[..., Stage]) -> None:
    stage = staged(1 + 2 + 4 + 3)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "1,2,4", "--passes", "2")
    assert stage.held.wait(60)
    process.kill()
    process.communicate(timeout=60)
    # The third level ran, so the first was committed; whether the second was is a matter of moments.
    assert levels(tmp_path)[0]["setting"]["concurrency"] == 1
    [path] = (tmp_path / "runs").iterdir()
    stage.go_on.set()
    again = start("run", "--resume", path, "--quiet", "--no-plots")
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    found = levels(tmp_path)
    done = {level["setting"]["concurrency"]: level["rows"] for level in found if level["state"] == "done"}
    assert done == {1: 2, 2: 4, 4: 8}
    assert sum(level["state"] == "done" for level in found) == 3


def test_a_full_disk_stops_the_run_and_keeps_what_there_is(
    tmp_path: Path, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    server = scripted_server(chat)
    url = f"http://127.0.0.1:{server.port}/v1"
    # Of 256 KiB some 40 are left: room for the run's own files, not for so many records.
    script = (
        'head -c 215000 /dev/zero > "$0/filler"; "$1" -m gpusize run --out "$0/runs" '
        f'--url {url} {" ".join(SWEEP)} --concurrencies 4 --count 4000; echo "exit $?"; '
        'cat "$0"/runs/*/run.json; ls -A "$0"/runs/*/levels'
    )
    done = run_on_tiny_disk(tmp_path, ["sh", "-c", script, "{}", sys.executable])
    code, _, rest = done.stdout.partition("\n")
    assert code == "exit 3", done.stderr
    complaints = [line for line in done.stderr.splitlines() if line.startswith("gpusize: ")]
    assert len(complaints) == 1, done.stderr
    assert "No space left on device" in complaints[0] or "the disk is full" in complaints[0]
    assert "--resume" in complaints[0]
    document, _, folders = rest.rpartition("}")
    assert json.loads(document + "}")["schema"] == 1
    assert folders.strip() in ("0000", ".0000.open")
