"""Runs one container to its end and watches it: nothing here may hang, and nothing measured may be lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import EnvironmentLacks, GpusizeError
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline.container import Container
from gpusize.containers.pipeline.daemon import Daemon, daemon_words, talking
from gpusize.containers.pipeline.execution import Execution, Outcome, Reader, finished, timed
from gpusize.containers.pipeline.wait import Call, Interrupted, wait_for

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.gpus import GpuReader

__all__ = ["ContainerGpus", "Running", "execute", "is_of"]

LOG_LINES: Final = 20
LOG_CHARS: Final = 4000
STOP_S: Final = 10
"""Between SIGTERM and SIGKILL to a container."""
_AT_ONCE_S: Final = 0
_PATIENCE_S: Final = 30.0
"""Beyond the time that stopping takes, until the daemon counts as dead."""


class Running:
    """A container from its making to its removal.

    Args:
        daemon: the daemon.
        container: what to run.
        reader: reads what it uses.
        parent: path of the cgroup around its own.
    """

    def __init__(self, daemon: Daemon, container: Container, reader: Reader | None, parent: str | None) -> None:
        self._daemon = daemon
        self._container = container
        self._reader = reader
        self._reading = False
        self._parent = parent
        self._blank = Execution(
            "failed", command=container.command_line(daemon.cli), limits=(container.cpus, container.mem_bytes)
        )
        self._life: Life | None = None
        self.unread: str | None = None
        self._gpus: ContainerGpus | None = None

    @property
    def id(self) -> str:
        """As the daemon names it; once it has been made only."""
        made = self._blank.container_id
        if made is None:
            raise RuntimeError("the container was not made")
        return made

    def start(
        self, stop: StopSwitch, timeout_s: float, began: Callable[[str], None] = lambda _: None
    ) -> tuple[Outcome, str] | None:
        """Make it, start it, and what reads it.

        Args:
            stop: ends waiting.
            timeout_s: longest time for both.
            began: told its id when it has been made.

        Returns:
            How it has ended and why, or None when it runs.

        Raises:
            EnvironmentLacks: the daemon is gone.
        """
        until = time.monotonic() + timeout_s
        life = self._life = Life(self._daemon, self._container)
        try:
            in_time = wait_for(life.made, stop, timeout_s)
            if in_time and life.id is not None:
                self._blank = replace(self._blank, container_id=life.id)
                began(life.id)
                self._blank = replace(self._blank, asked_ns=time.time_ns())
                life.start()
                in_time = wait_for(life.started, stop, max(0.0, until - time.monotonic()))
        except Interrupted:
            return "interrupted", "it was stopped before it ran"
        if not in_time:
            return "timed_out", f"it did not start within {timeout_s:g} s"
        if life.refused is not None:
            return "failed", life.refused
        if life.id is None:
            with talking("the container cannot be made"):
                life.call.result()
        if self._reader is not None:
            self._begin_reading(self._reader)
        return None

    def _begin_reading(self, reader: Reader) -> None:
        """Have it read by its process; of one that has ended already, its parent tells the totals."""
        pid = int(self.inspect()["State"]["Pid"]) or None
        mine = None if pid is None else is_of(pid, self.id)
        if mine is False:
            self.unread = "its processes are not of this machine, or have no cgroup of their own"
            return
        pid = pid if mine else None
        self.unread = "it ended before anything could be read of it"
        for each in (pid, None):
            if each is None and self._parent is None:
                break
            try:
                reader.start(each, self._parent)
            except EnvironmentLacks as problem:
                self.unread = str(problem)
                continue
            self.unread, self._reading = None, True
            break
        # After the counters, whose begin is short: the driver takes its time to be asked.
        if pid is not None and self._container.gpus is not None:
            self._gpus = ContainerGpus(pid)

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
        if self._blank.container_id is None:
            return ""
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
        if self._life is None or not self._life.started.is_set():
            return  # there is nothing in it to be stopped; it is removed, also if it starts after all
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
        if self._blank.container_id is None:
            return replace(self._blank, outcome=outcome, error=error)
        if outcome == "completed" and self._life is not None:
            with talking("the container's end cannot be waited for"):
                self._life.call.result()
        known = replace(self._blank, outcome=outcome, error=error)
        return finished(known, self.inspect()["State"], self.log_tail())

    def lost(self, problem: EnvironmentLacks) -> Execution:
        """The execution of which the daemon does not tell any more."""
        return replace(self._blank, outcome="lost", error=str(problem))

    def close(self, execution: Execution | None = None) -> Execution:
        """Remove it, and return the execution with what was read. Never fails: what is left is found by its label."""
        done = execution or self._blank
        if self._reading and self._reader is not None:
            self._reading = False
            done = timed(done, self._reader.stop())
        if self._gpus is not None:
            used, samples = self._gpus.stop()
            done = replace(done, gpus=used, gpu_samples=samples, gpu_notes=tuple(self._gpus.notes))
            self._gpus = None
        if self._life is not None:
            self._life.give_up(_PATIENCE_S)
        if self._blank.container_id is not None:
            with contextlib.suppress(EnvironmentLacks):
                self._daemon.remove_container(self.id)
        return replace(done, unread=self.unread)


def execute(
    daemon: Daemon,
    container: Container,
    *,
    reader: Reader | None = None,
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
        reader: reads what it uses.
        parent: path of the cgroup around its own.
        start_timeout_s: longest time until it runs, from when it is asked for.
        timeout_s: longest time that it may run; None for no limit.
        stop: asked once, the container is stopped; asked again, killed.
        began: told its id.

    Returns:
        How it ended. Failures of the container are no exceptions, nor is a daemon that refuses it or goes away.
    """
    running = Running(daemon, container, reader, parent)
    done: Execution | None = None
    try:
        outcome, error = running.start(stop, start_timeout_s, began) or running.wait(stop, timeout_s)
        if outcome in {"timed_out", "interrupted"}:
            running.end(stop)
        done = running.finish(outcome, error)
    except EnvironmentLacks as problem:
        done = running.lost(problem)
    finally:
        done = running.close(done)
    return done


def is_of(pid: int, container_id: str, proc: Path = Path("/proc")) -> bool | None:
    """Whether a process is of a container, by the names of its cgroups; None for a process that is not there.

    The daemon may be of another machine, or number processes otherwise: the number alone might be anybody's here.
    """
    try:
        return container_id in (proc / str(pid) / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return None


class Life:
    """A container from the call that makes it to its end.

    Args:
        daemon: the daemon.
        container: what to make.

    Attributes:
        made: set when it has been made, or will not be. It then waits for `start`.
        started: set when it has been started, or will not be.
        id: as the daemon names it; None before it is made, and where it is not.
        refused: why the daemon has not made or not started it.
        call: its end. Raises what the SDK raises where the daemon goes away.
    """

    def __init__(self, daemon: Daemon, container: Container) -> None:
        self._daemon = daemon
        self._container = container
        self._decided = threading.Event()
        self._wanted = False
        self.made, self.started = threading.Event(), threading.Event()
        self.id: str | None = None
        self.refused: str | None = None
        self.call = Call(self._live)

    def _live(self) -> None:
        import docker

        client = self._daemon.patient
        try:
            self.id = str(client.create_container_from_config(self._container.config())["Id"])
            self.made.set()
            self._decided.wait()
            if not self._wanted:
                with contextlib.suppress(EnvironmentLacks):
                    self._daemon.remove_container(self.id)
                return
            client.start(self.id)
        except docker.errors.APIError as problem:
            words = daemon_words(problem)
            self.refused = words if self.id is not None else f"the container cannot be made: {words}"
            return
        finally:
            self.made.set()
            self.started.set()
        # Containers are not removed at their end, so one that has ended already answers at once.
        client.wait(self.id, timeout=None)

    def start(self) -> None:
        """Start it, once it has been made."""
        self._wanted = True
        self._decided.set()

    def give_up(self, patience_s: float) -> None:
        """Do without it, unless it was to be started: if it is made after all, it is removed.

        Args:
            patience_s: longest time to wait for that.
        """
        self._decided.set()
        if not self._wanted:
            self.call.ended.wait(patience_s)


class ContainerGpus:
    """Reads the GPUs while a container runs that was given some. A missing driver is a note.

    Args:
        pid: the container's first process.
        nvml: stands in for pynvml, in tests.
    """

    def __init__(self, pid: int, *, nvml: ModuleType | None = None) -> None:
        from gpusize.observe.usage.gpus import GpuReader, in_cgroup_of

        self._reader: GpuReader | None = GpuReader(in_cgroup_of(pid), nvml=nvml)
        self.notes: list[str] = []
        try:
            self._reader.start()
        except GpusizeError as problem:
            self.notes.append(f"GPUs are not watched: {problem}")
            self._reader = None

    def stop(self) -> tuple[tuple[GpuUse, ...], pl.DataFrame | None]:
        """What it used of each GPU, and the samples behind that."""
        if self._reader is None:
            return (), None
        reader, self._reader = self._reader, None
        samples = reader.stop()
        self.notes += reader.notes
        if samples.is_empty():
            return (), None
        times = samples["t_ns"].to_numpy()
        return tuple(reader.uses(samples, int(times.min()), int(times.max()) + 1)), samples
