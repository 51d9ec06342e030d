"""Agents as processes of their own on this machine, and heads in the test's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.session import AnyEngine, LevelOutcome
from gpusize.workload.load import Load

LOOPBACK = ("127.0.0.1", 0)
WITHIN_S = 60.0
KEY = ("stream", "seq", "row", "due_ns")


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as one:
        one.bind(LOOPBACK)
        return int(one.getsockname()[1])


@dataclass
class Agents:
    """Agents that a test has started; all of them have ended when the block is over.

    Attributes:
        folder: where they write, below this.
        processes: them, in order of their start.
    """

    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    told: list[tuple[int, str]] = field(default_factory=list)

    def start(
        self,
        place: tuple[str, int],
        count: int = 1,
        *options: str,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
    ) -> list[subprocess.Popen[str]]:
        """Start some more, which join at this place; ``command`` stands before them, such as ``prlimit``."""
        scratch = self.folder / "agents"
        scratch.mkdir(exist_ok=True)
        words = ["agent", "--join", f"{place[0]}:{place[1]}", "--no-checks", *options]
        started = [
            subprocess.Popen(
                [*command, sys.executable, "-m", "gpusize", *words],
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "TMPDIR": str(scratch), **(environment or {})},
                start_new_session=True,
            )
            for _ in range(count)
        ]
        self.processes += started
        return started

    def ended(self) -> list[tuple[int, str]]:
        """Exit code and words of each, once it has ended by itself."""
        for each in self.processes[len(self.told) :]:
            words = each.communicate(timeout=WITHIN_S)[1]
            self.told.append((each.returncode, words))
        return self.told

    def left_behind(self) -> list[Path]:
        """Files that they have left."""
        return list((self.folder / "agents").iterdir())


@contextlib.contextmanager
def agents(folder: Path) -> Iterator[Agents]:
    """Agents to be started, none of which outlives the block."""
    found = Agents(folder)
    try:
        yield found
    finally:
        for each in found.processes:
            if each.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGCONT)
                each.kill()
        for each in found.processes[len(found.told) :]:
            each.communicate()


@contextlib.contextmanager
def hosts(folder: Path, count: int, *options: str, notes: list[str] | None = None) -> Iterator[tuple[Head, Agents]]:
    """A head with so many agents, all of which have joined."""
    with agents(folder) as started:
        with Head(HostsOptions(count, LOOPBACK), (notes or []).append) as head:
            started.start(head.address, count, *options)
            head.gather()
            yield head, started
        for each in started.processes:
            # One that was stopped finds the head gone when it goes on.
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGCONT)
        started.ended()


def run_levels(engine: AnyEngine, load: Load, rows: int, folder: Path) -> list[LevelOutcome]:
    """The levels of a load on an engine, one queued behind the other; each below its own folder."""
    queued = []
    for visit, level in enumerate(load.levels(rows)):
        records = folder / f"{visit:04d}" / "records"
        records.mkdir(parents=True)
        plan = {**level.plan, "visit": visit, "dir": str(records), "keep_bytes": 0}
        queued.append(engine.queue(plan, **level.arrays()))
    found = []
    for each in queued:
        assert each.wait(WITHIN_S), each.poll()
        found.append(each.outcome())
    return found


def kept(folder: Path, outcome: LevelOutcome, visit: int) -> pl.DataFrame:
    """The rows of a level, with due times after its start, in order."""
    parts = [folder / f"{visit:04d}" / part for part in outcome["parts"]]
    frame = pl.concat([pl.read_parquet(part) for part in parts], how="diagonal")
    return frame.with_columns(pl.col("due_ns") - outcome["start_ns"]).sort("stream", "seq", "attempt")


def schedule_of(frame: pl.DataFrame) -> Any:
    """What of rows does not depend on who sends them."""
    return frame.select(KEY)
