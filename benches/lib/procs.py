"""Processes that are measured: pinned to a core, their CPU read from the kernel when they end."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benches.lib.host import ROOT, CpuTimes

__all__ = ["BenchFailed", "Finished", "LineClient", "LineServer", "go_first", "on_core", "pinned", "run_measured"]


class BenchFailed(Exception):
    """A benchmark that could not be taken; its text is for people."""


@dataclass(frozen=True)
class Finished:
    """A process that has ended, with all its threads and children that it waited for."""

    stdout: str
    stderr: str
    user_s: float
    system_s: float
    wall_s: float
    peak_rss_bytes: int
    steal: float
    sleeps: int
    """How often one of its threads had nothing to do and slept."""

    @property
    def cpu_s(self) -> float:
        """User and system time together."""
        return self.user_s + self.system_s


def pinned(command: Sequence[str], core: int) -> list[str]:
    """The command, held on one core with all its threads."""
    return ["taskset", "-c", str(core), *command]


def run_measured(
    command: Sequence[str], *, timeout_s: float = 600, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a command to its end; its CPU time is what the kernel charged (wait4), start-up included.

    Raises BenchFailed when it fails or takes longer than ``timeout_s``.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        before, start_s = CpuTimes.now(), time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env={**os.environ, **(environment or {})})
        killer = threading.Timer(timeout_s, process.kill)
        killer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            killer.cancel()
        wall_s, steal = time.monotonic() - start_s, CpuTimes.now().steal_share(before)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        times = (usage.ru_utime, usage.ru_stime, wall_s)
        finished = Finished(out.read(), err.read(), *times, usage.ru_maxrss * 1024, steal, usage.ru_nvcsw)
    if process.returncode != 0:
        raise BenchFailed(f"{' '.join(command)} ended with {process.returncode}:\n{finished.stderr[-2000:]}")
    return finished


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Holds this thread on one core; threads and processes that it starts meanwhile stay there."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def go_first() -> None:
    """Puts this process before others that want its core, where the system allows it.

    It becomes a session of its own, as Linux shares a core among sessions first (sched(7), autogroup).
    """
    os.setsid()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20", encoding="ascii")
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


class LineClient:
    """A program that answers each line with a line of JSON; a context manager."""

    def __init__(self, command: Sequence[str], core: int) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(pinned(command, core), stdin=pipe, stdout=pipe, text=True, cwd=ROOT)

    def ask(self) -> Any:
        """Its next answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise BenchFailed("the program's lines are not ours")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed(f"the program ended early with {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()


class LineServer:
    """A server of ours that prints its port as a line of JSON; a context manager."""

    def __init__(self, command: Sequence[str], core: int) -> None:
        self._process = subprocess.Popen(pinned(command, core), stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.port = int(self.next_line()["port"])

    def next_line(self) -> dict[str, Any]:
        """The next line that the server prints."""
        if self._process.stdout is None:
            raise BenchFailed("the server's output is not ours to read")
        line = self._process.stdout.readline()
        if not line:
            self._process.stdout.close()
            raise BenchFailed(f"the server ended early with {self._process.wait()}")
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    def cpu_s(self) -> float:
        """CPU seconds that the server has used so far, to a tick of the kernel."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> dict[str, Any]:
        """End the server; what it has said since its port, its count of requests at the end with it, as one."""
        self._process.terminate()
        said, _ = self._process.communicate()
        facts: dict[str, Any] = {}
        for line in said.splitlines():
            facts |= json.loads(line)
        return facts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            self._process.communicate()
