"""A generator that was stopped or starved while it measured: its level says so, and is not believed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from tests.cli.test_interrupted import SWEEP, Stage, Start, levels, staged, start

__all__ = ["staged", "start"]

STOP_S = 0.4


def stop_for(pid: int, length_s: float) -> float:
    """Stop a process for so long, by the clock, from when it stands still; how long it stood at least, seconds."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    since = time.monotonic()
    time.sleep(length_s)
    return time.monotonic() - since


def test_a_generator_that_was_stopped_for_part_of_a_closed_loop_says_so(
    start: Start, tmp_path: Path, staged: Callable[..., Stage]
) -> None:
    stage = staged(1 + 6, hold=2)
    process = start("run", "--url", stage.url, *SWEEP, "--concurrencies", "2", "--passes", "9", "--strict")
    assert stage.held.wait(60)
    process.send_signal(signal.SIGSTOP)
    stood_s = stop_for(process.pid, STOP_S)
    process.send_signal(signal.SIGCONT)
    stage.go_on.set()
    _, err = process.communicate(timeout=60)
    [level] = levels(tmp_path)
    # The generator looks at the clock every 10 ms: so much of a stop may come before the look that is late.
    assert level["stalled_ns"] / 1e9 >= stood_s - 0.02
    assert level["longest_stall_ns"] <= level["stalled_ns"] <= level["end_ns"] - level["start_ns"]
    [path] = (tmp_path / "runs").iterdir()
    [row] = pl.read_parquet(path / "summary.parquet").to_dicts()
    assert "generator-limited" in row["flags"]
    [said] = [text for text in row["alerts"] if text.startswith("generator-limited: it stalled")]
    assert "idle" in said or "cores" in said
    assert process.returncode == 1, err
