"""Runs one container to its end and watches it: nothing here may hang, and nothing measured may be lost."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from gpusize.errors import EnvironmentLacks
from gpusize.interrupt import StopSwitch
from gpusize.pipeline.container import Container
from gpusize.pipeline.daemon import Daemon, daemon_words, talking
from gpusize.pipeline.gpu_watch import ContainerGpus
from gpusize.pipeline.waiting import Call, Interrupted, wait_for
from gpusize.textio import shown

if TYPE_CHECKING:
    import polars as pl

    from gpusize.resources.gpu_use import GpuUse
    from gpusize.resources.series import Readings

__all__ = ["Execution", "MakeWatch", "Outcome", "Running", "Watch", "execute", "wall_ns"]

Outcome = Literal["completed", "failed", "timed_out", "interrupted", "lost", "not_run"]
"""How an execution ended.

``lost`` where the daemon was gone before its end was known, ``not_run`` where the pipeline was ended before.
"""

LOG_LINES: Final = 20
LOG_CHARS: Final = 4000
STOP_S: Final = 10
"""Between SIGTERM and SIGKILL to a container."""
_AT_ONCE_S: Final = 0
_PATIENCE_S: Final = 30.0
"""Beyond the time that stopping takes, until the daemon counts as dead."""
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_NEVER_YEAR: Final = "0001-"


class MakeWatch(Protocol):
    """Makes what reads a container."""

    def __call__(self, name: str, interval_ns: int | None = None) -> Watch:
        """A watch for one container.

        Args:
            name: the operator or server.
            interval_ns: time between readings, in place of the usual one.
        """


class Watch(Protocol):
    """Reads what one container uses."""

    def start(self, pid: int | None, parent: str | None) -> None:
        """Begin.

        Args:
            pid: the container's first process; None when it has ended already.
            parent: the path of the cgroup of ours around the container's, which keeps its totals; None for none.
        """

    def stop(self) -> Readings:
        """End, and return what was read; after the container's end, also after a failed start."""


@dataclass(frozen=True)
class Execution:
    """One run of one container.

    Args:
        outcome: how it ended.
        exit_code: of its first process; None where that is not known.
        container_id: as the daemon names it.
        error: what went wrong, in words; None for nothing.
        oom_killed: whether the kernel killed it, or something in it, for want of memory, as the daemon says.
        asked_ns: when the daemon was asked to start it, since 1970, UTC.
        started_ns: when it ran, by the daemon.
        ended_ns: likewise.
        log_tail: its last lines.
        command: the ``docker run`` line.
        limits: cores and bytes that it was limited to; None each for no limit.
        readings: what was read of it; None where nothing could be.
        unread: why nothing could be.
        gpus: what it used of each GPU, where it was given any.
        gpu_samples: the samples behind that.
        gpu_notes: what was not told of them.
    """

    outcome: Outcome
    exit_code: int | None = None
    container_id: str | None = None
    error: str | None = None
    oom_killed: bool = False
    asked_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    log_tail: str = ""
    command: str = ""
    limits: tuple[float | None, int | None] = (None, None)
    readings: Readings | None = None
    unread: str | None = None
    gpus: tuple[GpuUse, ...] = ()
    gpu_samples: pl.DataFrame | None = None
    gpu_notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.outcome == "completed"

    @property
    def duration_s(self) -> float | None:
        """From its start to its end by the daemon's clock."""
        if self.started_ns is None or self.ended_ns is None:
            return None
        return max(0, self.ended_ns - self.started_ns) / 1e9


class _Life:
    """The start of a container and its end, waited for in another thread."""

    def __init__(self, daemon: Daemon, container_id: str) -> None:
        self.started = threading.Event()
        self.refused: BaseException | None = None

        def live() -> None:
            import docker

            try:
                daemon.client.start(container_id)
            except docker.errors.APIError as problem:
                self.refused = problem
            finally:
                self.started.set()
            if self.refused is None:
                # Containers are not removed at their end, so one that has ended already answers at once.
                daemon.client.wait(container_id, timeout=None)

        self.call = Call(live)


class Running:
    """A container from its making to its removal.

    Args:
        daemon: the daemon.
        container: what to run; it is made at once.
        watch: reads what it uses.
        parent: path of the cgroup around its own.

    Raises:
        EnvironmentLacks: the daemon refuses to make it, or does not answer.
    """

    def __init__(self, daemon: Daemon, container: Container, watch: Watch | None, parent: str | None) -> None:
        self._daemon = daemon
        self._watch = watch
        self._watching = False
        self._parent = parent
        self.id = daemon.create(container)
        self._blank = Execution(
            "failed",
            container_id=self.id,
            command=container.command_line(),
            limits=(container.cpus, container.mem_bytes),
        )
        self._life: _Life | None = None
        self.unread: str | None = None
        self._has_gpus = container.gpus is not None
        self._gpus: ContainerGpus | None = None

    def start(self, stop: StopSwitch, timeout_s: float) -> tuple[Outcome, str] | None:
        """Start it, and what reads it.

        Returns:
            How it has ended and why, or None when it runs.

        Raises:
            EnvironmentLacks: the daemon is gone.
        """
        self._blank = replace(self._blank, asked_ns=time.time_ns())
        life = self._life = _Life(self._daemon, self.id)
        try:
            if not wait_for(life.started, stop, timeout_s):
                return "timed_out", f"it did not start within {timeout_s:g} s"
        except Interrupted:
            return "interrupted", "it was stopped before it ran"
        if life.refused is not None:
            return "failed", daemon_words(life.refused)
        if self._watch is not None:
            self._begin_watch(self._watch)
        return None

    def _begin_watch(self, watch: Watch) -> None:
        """Have it read by its process; of one that has ended already, its parent tells the totals."""
        pid = int(self.inspect()["State"]["Pid"]) or None
        if pid is not None and self._has_gpus:
            self._gpus = ContainerGpus(pid)
        self.unread = "it ended before anything could be read of it"
        for each in (pid, None):
            if each is None and self._parent is None:
                return
            try:
                watch.start(each, self._parent)
            except EnvironmentLacks as problem:
                self.unread = str(problem)
                continue
            self.unread, self._watching = None, True
            return

    @property
    def ended(self) -> threading.Event:
        """Set when it has ended; after `start` only."""
        if self._life is None:
            raise RuntimeError("the container was not started")
        return self._life.call.ended

    def wait(self, stop: StopSwitch, timeout_s: float | None) -> tuple[Outcome, str | None]:
        """Wait for its end.

        Returns:
            How that came, and why; ``completed`` stands for any end by itself.
        """
        try:
            if not wait_for(self.ended, stop, timeout_s):
                return "timed_out", f"it ran longer than {timeout_s:g} s"
        except Interrupted:
            return "interrupted", "it was stopped"
        return "completed", None

    def inspect(self) -> dict[str, Any]:
        """What the daemon knows of it.

        Raises:
            EnvironmentLacks: the daemon is gone.
        """
        with talking("the container cannot be looked at"):
            return dict(self._daemon.client.inspect_container(self.id))

    def log_tail(self) -> str:
        """The last lines that it wrote; empty where they cannot be had, as with a log driver that keeps none."""
        try:
            with talking("the log cannot be read"):
                text = self._daemon.client.logs(self.id, tail=LOG_LINES).decode("utf-8", "replace")
        except EnvironmentLacks:
            return ""
        return text[-LOG_CHARS:].strip("\n")

    def end(self, stop: StopSwitch) -> None:
        """Stop it: SIGTERM, then SIGKILL; a further Ctrl-C kills it at once.

        Raises:
            EnvironmentLacks: the daemon is gone.
        """
        asked = stop.asked
        stopping = Call(lambda: self._daemon.client.stop(self.id, timeout=STOP_S))
        try:
            stopped = wait_for(stopping.ended, stop, STOP_S + _PATIENCE_S, asked)
        except Interrupted:
            stopped = False
        if not stopped or not self.ended.is_set():
            with talking("the container cannot be killed"):
                self._daemon.gone(lambda: self._daemon.client.stop(self.id, timeout=_AT_ONCE_S))
        self.ended.wait(_PATIENCE_S)

    def finish(self, outcome: Outcome, error: str | None) -> Execution:
        """The execution as the daemon knows its end.

        Args:
            outcome: ``completed`` for an end by itself, which its exit code then judges.
            error: why, where that is known.

        Raises:
            EnvironmentLacks: the daemon is gone.
        """
        if outcome == "completed" and self._life is not None:
            with talking("the container's end cannot be waited for"):
                self._life.call.result()
        return _finished(self.inspect()["State"], replace(self._blank, outcome=outcome, error=error), self.log_tail())

    def lost(self, problem: EnvironmentLacks) -> Execution:
        """The execution of which the daemon does not tell any more."""
        return replace(self._blank, outcome="lost", error=str(problem))

    def close(self, execution: Execution | None = None) -> Execution:
        """Remove it, and return the execution with what was read. Never fails: what is left is found by its label."""
        done = execution or self._blank
        if self._watching and self._watch is not None:
            self._watching = False
            done = timed(done, self._watch.stop())
        if self._gpus is not None:
            used, samples = self._gpus.stop()
            done = replace(done, gpus=used, gpu_samples=samples, gpu_notes=tuple(self._gpus.notes))
            self._gpus = None
        with contextlib.suppress(EnvironmentLacks):
            self._daemon.remove_container(self.id)
        return replace(done, unread=self.unread)


def execute(
    daemon: Daemon,
    container: Container,
    *,
    watch: Watch | None = None,
    parent: str | None = None,
    start_timeout_s: float = 60.0,
    timeout_s: float | None = None,
    stop: StopSwitch,
    began: Callable[[str], None] = lambda _: None,
) -> Execution:
    """Run a container to its end and remove it.

    Args:
        daemon: the daemon.
        container: what to run.
        watch: reads what it uses.
        parent: path of the cgroup around its own.
        start_timeout_s: longest time until it runs.
        timeout_s: longest time that it may run; None for no limit.
        stop: asked once, the container is stopped; asked again, killed.
        began: told its id.

    Returns:
        How it ended. Failures of the container are no exceptions, nor is a daemon that goes away meanwhile.

    Raises:
        EnvironmentLacks: the daemon refuses to make it, or does not answer.
    """
    running = Running(daemon, container, watch, parent)
    done: Execution | None = None
    try:
        began(running.id)
        outcome, error = running.start(stop, start_timeout_s) or running.wait(stop, timeout_s)
        if outcome in {"timed_out", "interrupted"}:
            running.end(stop)
        done = running.finish(outcome, error)
    except EnvironmentLacks as problem:
        done = running.lost(problem)
    finally:
        done = running.close(done)
    return done


def timed(execution: Execution, readings: Readings | None) -> Execution:
    """The execution with its readings.

    These begin when the daemon was asked to start it, not when it then ran: the runtime's own work is in its group's
    counters, some 30 ms of CPU time, and over the few milliseconds of a short container would make that many cores.
    """
    known = None if readings is None else readings.at_wall(execution.asked_ns, execution.ended_ns)
    return replace(execution, readings=known)


def _finished(state: dict[str, Any], execution: Execution, log: str) -> Execution:
    never = str(state.get("StartedAt", _NEVER_YEAR)).startswith(_NEVER_YEAR)
    code = int(state["ExitCode"])
    outcome, error = execution.outcome, execution.error
    oom_killed = bool(state.get("OOMKilled"))
    if outcome == "completed" and (code or state.get("Error")):
        outcome = "failed"
        error = str(state.get("Error") or "") or ("it was killed for want of memory" if oom_killed else None)
    return replace(
        execution,
        outcome=outcome,
        # Of a container that never ran, the code is the runtime's own: 126 or 127 when its program cannot be run.
        exit_code=code if not never or outcome == "failed" else None,
        error=None if error is None else shown(error, 300),
        oom_killed=oom_killed,
        started_ns=None if never else wall_ns(str(state["StartedAt"])),
        ended_ns=None if never else wall_ns(str(state["FinishedAt"])),
        log_tail=log,
    )


def wall_ns(stamp: str) -> int | None:
    """Nanoseconds since 1970 (UTC) of a time as the daemon writes it; None for one that never was."""
    match = _STAMP.fullmatch(stamp)
    if match is None or stamp.startswith(_NEVER_YEAR):
        return None
    whole = datetime.fromisoformat(f"{match[1]}{match[3].replace('Z', '+00:00')}")
    return round(whole.timestamp()) * 10**9 + int((match[2] or "0").ljust(9, "0"))
