"""What a run says while it goes on: notes when they are known, one last word per level."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpusize.cli.exit_code import ExitStatus
from gpusize.cli.shared import MOST_CHARS, conclude
from gpusize.measure.execute import run_info
from gpusize.measure.spec import RunSpec
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.cli.conftest import Gpusize, chat
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, Wait

SWEEP = ("--prompt", "x", "--no-stream", "--metrics-url", "none", "--metrics-port", "0", "--no-plots")


def test_where_the_metrics_are_is_told_before_the_first_level(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1,2", "--passes", "2")
    lines = done.err.splitlines()
    [told] = [
        k for k, line in enumerate(lines) if line.startswith("gpusize: the run's metrics are at http://127.0.0.1:")
    ]
    levels = [k for k, line in enumerate(lines) if line.startswith("level ")]
    assert len(levels) == 2
    assert told < levels[0]


def test_quiet_says_none_of_it(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1", "--passes", "2", "--quiet")
    assert done.err == ""


def test_saturation_is_not_seen_in_a_few_seconds(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--rates", "9", "--duration", "9s", "--stop-when", "saturation for 9s")
    assert done.code == 2
    assert "that is too short to see saturation in" in done.err
    assert "time of 10s or more" in done.err


def test_a_rule_about_failures_ends_the_run_and_keeps_its_level(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    """One request is with a server that never answers, one waits, and all others are shed."""
    never = threading.Event()

    def script(request: Request) -> Sequence[Step]:
        return chat(request) if len(server.requests) <= 1 else [Wait(never)]

    server = scripted_server(script)
    load = ("--rates", "50", "--duration", "1h", "--connections", "1", "--queue", "1", "--stop-when", "shed > 0 for 1s")
    where = ("--url", f"http://127.0.0.1:{server.port}/v1", "--model", "m")
    try:
        done = gpusize("run", *where, *SWEEP, *load, "--drain", "10ms")
    finally:
        never.set()
    assert done.code == 0, done.err
    [file] = tmp_path.glob("runs/*/levels/0000/level.json")
    level = json.loads(file.read_text())
    assert (level["state"], level["stop_reason"]) == ("done", "errors")
    assert level["alerts"][0].startswith("ended early: shed > 0 for 1s: ")
    assert "ended early: shed > 0 for 1s: " in " ".join(done.out.split())


def test_strict_tells_one_reason_a_line(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    """Two levels of which next to all requests wait for the one connection, which each holds for a while."""
    numbers = itertools.count(1)

    def script(request: Request) -> Sequence[Step]:
        [whole] = chat(request)
        # The request that tries the target is answered at once, the others in two pieces with a pause after each.
        return [whole] if next(numbers) == 1 else [Send(whole.data, 1 + len(whole.data) // 2, 0.05)]

    server = scripted_server(script)
    where = ("--url", f"http://127.0.0.1:{server.port}/v1", "--model", "m", "--strict", "--quiet")
    load = ("--rates", "40,80", "--duration", "250ms", "--connections", "1", "--process", "constant")
    done = gpusize("run", *where, *SWEEP, *load)
    assert done.code == 1
    first, *reasons = done.err.splitlines()
    assert first.startswith("gpusize: 2 of 2 levels cannot be believed as they stand: ")
    assert [reason.partition(" was not delivered, because ")[0] for reason in reasons] == ["  40/s", "  80/s"]
    assert "\\n" not in done.err


def test_each_line_of_a_reason_is_bounded_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert conclude(ExitStatus(1, f"why\n  one\x1b[2J\n  {'x' * 2 * MOST_CHARS}")) == 1
    first, second, third = capsys.readouterr().err.splitlines()
    assert (first, second) == ("gpusize: why", r"  one\x1b[2J")
    assert len(third) == MOST_CHARS


def test_saturation_is_no_rule_for_a_closed_loop(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1", "--passes", "2", "--stop-when", "saturation")
    assert done.code == 2
    assert "saturation shows only at a rate" in done.err


def test_levels_that_a_rule_leaves_out_are_told(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer], tmp_path: Path
) -> None:
    """Of three levels the first overflows at once."""

    def script(request: Request) -> Sequence[Step]:
        return chat(request) if len(server.requests) <= 1 else [Wait()]

    server = scripted_server(script)
    load = ("--rates", "50,60,70", "--duration", "1h", "--connections", "1", "--queue", "1", "--drain", "10ms")
    where = ("--url", f"http://127.0.0.1:{server.port}/v1", "--model", "m")
    done = gpusize("run", *where, *SWEEP, *load, "--stop-when", "shed > 0 for 1s", "--strict")
    assert done.code == 1
    assert "; 2 of 3 levels were not run" in " ".join(done.err.split())
    assert "; 2 of 3 planned levels were not run" in " ".join(done.err.split())
    assert len(list(tmp_path.glob("runs/*/levels/0*"))) == 1


def test_labels_never_take_the_place_of_what_is_measured() -> None:
    target = Target("http://127.0.0.1:9/v1", model="m")
    rows = Dataset.from_prompt("x")
    info = run_info(RunSpec(target, rows, Load(count=1), labels={"api": "foo", "gpu": "H200"}))
    assert info == {
        "api": "openai-chat",
        "target": "127.0.0.1:9",
        "model": "m",
        "label_api": "foo",
        "gpu": "H200",
    }
