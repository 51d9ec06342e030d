"""What is known of one run of one container, and what reads it meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from gpusize.base.text import shown

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.readings import Readings

__all__ = ["Execution", "MakeReader", "Outcome", "Reader", "finished", "timed", "wall_ns"]

Outcome = Literal["completed", "failed", "timed_out", "interrupted", "lost", "not_run"]
"""How an execution ended.

``lost`` where the daemon was gone before its end was known, ``not_run`` where the pipeline was ended before.
"""

OOM_KILLED: Final = "it was killed for lack of memory"
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_NEVER_YEAR: Final = "0001-"


class MakeReader(Protocol):
    """Makes what reads a container."""

    def __call__(self, name: str, interval_ns: int | None = None) -> Reader:
        """What reads one container.

        Args:
            name: the operator or server.
            interval_ns: time between readings, in place of the usual one.
        """


class Reader(Protocol):
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
        oom_killed: whether the kernel killed it, or something in it, for want of memory, as the daemon says, or the
            kernel has counted before a failure.
        asked_ns: when the daemon was asked to start it, since 1970, UTC.
        started_ns: when it ran, by the daemon.
        ended_ns: likewise.
        log_tail: its last lines.
        command: the ``docker run`` (or ``podman run``) line.
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


def timed(execution: Execution, readings: Readings | None) -> Execution:
    """The execution with its readings.

    These begin when the daemon was asked to start it, not when it then ran: the runtime's own work is in its group's
    counters, some 30 ms of CPU time, and over the few milliseconds of a short container would make that many cores.

    Not every daemon sees that a process inside was killed for lack of memory; the kernel has counted it.
    """
    known = None if readings is None else readings.at_wall(execution.asked_ns, execution.ended_ns)
    if execution.outcome == "failed" and known is not None and known.facts.totals.get("oom_kill_events"):
        execution = replace(execution, oom_killed=True, error=execution.error or OOM_KILLED)
    return replace(execution, readings=known)


def finished(execution: Execution, state: dict[str, Any], log: str) -> Execution:
    """The execution as the daemon knows its end.

    Args:
        execution: ``completed`` for an end by itself, which its exit code then judges.
        state: the daemon's ``State``.
        log: its last lines.
    """
    never = str(state.get("StartedAt", _NEVER_YEAR)).startswith(_NEVER_YEAR)
    code = int(state["ExitCode"])
    outcome, error = execution.outcome, execution.error
    oom_killed = bool(state.get("OOMKilled"))
    if outcome == "completed" and (code or state.get("Error")):
        outcome = "failed"
        error = str(state.get("Error") or "") or (OOM_KILLED if oom_killed else None)
    return replace(
        execution,
        outcome=outcome,
        # Of a container that never ran, Docker tells the runtime's code, 126 or 127 when its program cannot be run;
        # Podman tells 0, which is none.
        exit_code=code if not never or (outcome == "failed" and code) else None,
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
