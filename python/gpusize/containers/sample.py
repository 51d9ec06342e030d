"""Samples a command, a process, a container or a cgroup once, from its start or from now on, to its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import UsageError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.containers.command import RunningCommand
from gpusize.containers.recommend import Execution, Recommendation, check_policy, recommend
from gpusize.observe.usage.gpus import GpuReader
from gpusize.observe.usage.processes import in_tree_of
from gpusize.observe.usage.sampler import INTERVAL_S, Sampling, Source, check_interval
from gpusize.observe.usage.usage import LIMIT_WINDOW_S, REQUEST_WINDOW_S, usage_of

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.processes import Member
    from gpusize.observe.usage.readings import Readings
    from gpusize.observe.usage.usage_types import Usage

__all__ = ["SampleOptions", "Sampled", "sample_command", "sample_repeated", "sample_running"]

LOOK_S: Final = 0.25

Show = Callable[["Readings"], None]
"""Told of what was read so far, four times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """How to sample.

    Attributes:
        interval_s: time between two readings.
        windows_s: lengths of the windows that CPU use is looked at over.
        policy: what recommends.
        gpus: whether to read the GPUs; without a driver that is a note.
        pss: whether to count shared memory of a process tree by parts.
        duration_s: when to end; None for the end of what is sampled, or Ctrl-C.
    """

    interval_s: float = INTERVAL_S
    windows_s: tuple[float, ...] = (LIMIT_WINDOW_S, REQUEST_WINDOW_S)
    policy: str = "default"
    gpus: bool = True
    pss: bool = False
    duration_s: float | None = None

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        check_policy(self.policy)
        if any(not 0 < window <= 86400 for window in self.windows_s):
            raise UsageError("a window must be longer than 0 and at most a day", "windows", "give 100ms,1s")
        if self.duration_s is not None and self.duration_s <= 0:
            raise UsageError("a duration must be longer than 0", "duration", "give 10s")


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of it.

    Attributes:
        readings: what was read.
        usage: the sums of it.
        recommendation: what to request.
        gpus: what was used of each GPU.
        gpu_samples: samples of the GPUs, in the columns of samples beside a load.
        exit_code: of the command, as a shell has it; None where nothing was started.
        interrupted: whether it was ended before its time.
        notes: what the user should know.
    """

    readings: Readings
    usage: Usage
    recommendation: Recommendation
    gpus: list[GpuUse]
    gpu_samples: pl.DataFrame
    exit_code: int | None = None
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    def execution(self) -> Execution:
        """What a recommendation is made from."""
        return _execution(self.readings, self.gpus, self.exit_code, interrupted=self.interrupted)

    def document(self) -> dict[str, Any]:
        """As one JSON document."""
        import dataclasses

        return {
            "name": self.readings.name,
            "kind": self.readings.facts.kind,
            "exit_code": self.exit_code,
            "interrupted": self.interrupted,
            "usage": self.usage.to_dict(),
            "recommendation": self.recommendation.to_dict(),
            "gpus": [dataclasses.asdict(gpu) for gpu in self.gpus],
            "notes": self.notes,
            "lacks": dict(self.readings.facts.lacks),
            "sampler_cpu_s": None if (own_ns := self.readings.facts.own_cpu_ns) is None else own_ns / 1e9,
        }


def sample_command(
    words: Sequence[str], options: SampleOptions, *, show: Show | None = None, to_stderr: bool = False
) -> Sampled:
    """Run a command, sampled with all of its descendants.

    Args:
        words: the command and its arguments.
        options: how to sample.
        show: is told of what was read so far.
        to_stderr: whether the command's standard output goes to standard error.

    Raises:
        OSError: the command cannot be started.
        EnvironmentLacks: this machine cannot be sampled.
    """
    with RunningCommand(words, to_stderr=to_stderr) as command:
        name = Path(words[0]).name
        source = Source(name=name, kind="process", pid=command.pid, begun_ns=command.begun_ns, pss=options.pss)
        sampling = Sampling([source], options.interval_s)
        gpus = _begun_gpus(in_tree_of(command.pid), options)
        while not command.wait(LOOK_S):
            if show is not None:
                show(sampling.look()[name])
        gpu_samples = gpus.stop()
        readings = sampling.stop()[name]
        code = command.status()
    # The kernel's account has what ran after the last reading, and children that were waited for between two.
    total = max(command.cpu_ns or 0, int(readings.facts.totals.get("cpu_ns", 0)))
    readings = readings.with_facts(totals={**readings.facts.totals, "cpu_ns": total})
    return _sampled(readings, gpus, gpu_samples, options, exit_code=code, interrupted=command.interrupted)


def sample_repeated(
    words: Sequence[str], options: SampleOptions, runs: int, *, show: Show | None = None, to_stderr: bool = False
) -> list[Sampled]:
    """Run a command several times, one after the other, and recommend from all of them.

    It ends early with one that fails or is interrupted, which then is the last.

    Args:
        words: as `sample_command`.
        options: likewise.
        runs: how often.
        show: likewise.
        to_stderr: likewise.

    Returns:
        One for each execution, each with the recommendation from all.

    Raises:
        UsageError: less than once.
        OSError: the command cannot be started.
        EnvironmentLacks: this machine cannot be sampled.
    """
    if runs < 1:
        raise UsageError(f"repeat must be 1 or more, not {runs}", "repeat", "give 1 or more")
    made: list[Sampled] = []
    while len(made) < runs and not (made and (made[-1].exit_code or made[-1].interrupted)):
        made.append(sample_command(words, options, show=show, to_stderr=to_stderr))
    if len(made) == 1:
        return made
    advice = recommend([each.execution() for each in made], options.policy)
    return [replace(each, recommendation=advice) for each in made]


def sample_running(
    source: Source,
    member: Member,
    options: SampleOptions,
    *,
    show: Show | None = None,
    switch: StopSwitch | None = None,
    clock: Clock = MACHINE,
) -> Sampled:
    """Sample what runs already, until it ends, the duration is over, or Ctrl-C.

    Args:
        source: what to sample.
        member: which processes are of it, for the GPUs.
        options: how to sample.
        show: is told of what was read so far.
        switch: ends it too.
        clock: what the duration is of; the readings are the extension's, in real time.

    Raises:
        EnvironmentLacks: it cannot be read.
    """
    import threading

    stop = switch or StopSwitch()
    with on_interrupt(stop):
        sampling = Sampling([source], options.interval_s)
        gpus = _begun_gpus(member, options)
        pause, begun_ns = threading.Event(), clock.now_ns()
        left = LOOK_S if options.duration_s is None else options.duration_s
        while left > 0 and not stop.asked and not sampling.ended():
            clock.wait(pause, min(LOOK_S, left))
            if options.duration_s is not None:
                left = options.duration_s - (clock.now_ns() - begun_ns) / 1e9
            if show is not None:
                show(sampling.look()[source.name])
        gpu_samples = gpus.stop()
        readings = sampling.stop()[source.name]
    return _sampled(readings, gpus, gpu_samples, options, interrupted=bool(stop.asked))


def _begun_gpus(member: Member, options: SampleOptions) -> GpuReader:
    from gpusize.observe.metrics.nvml import driver_is_there

    reader = GpuReader(member)
    if options.gpus and driver_is_there():
        reader.start()
    return reader


def _sampled(
    readings: Readings,
    gpus: GpuReader,
    gpu_samples: pl.DataFrame,
    options: SampleOptions,
    *,
    exit_code: int | None = None,
    interrupted: bool = False,
) -> Sampled:
    usage = usage_of(readings, windows_s=options.windows_s)
    uses = gpus.uses(gpu_samples, usage.start_ns, usage.start_ns + round(usage.duration_s * 1e9))
    advice = recommend([_execution(readings, uses, exit_code, interrupted=interrupted)], options.policy)
    notes = [*readings.facts.notes, *gpus.notes]
    pid = (readings.facts.raw.get("source") or {}).get("pid")
    if readings.facts.kind == "process" and pid is not None and in_tree_of(int(pid))(os.getpid()):
        notes.append("gpusize itself is among the processes that were sampled")
    return Sampled(readings, usage, advice, uses, gpu_samples, exit_code, interrupted, notes)


def _execution(readings: Readings, gpus: list[GpuUse], exit_code: int | None, *, interrupted: bool) -> Execution:
    failed = f"exit code {exit_code}" if exit_code else None
    # What ran already is looked at until somebody has seen enough; only a command has an end of its own.
    cut_short = interrupted and exit_code is not None
    return Execution(readings, usage_of(readings), failed, gpus, cut_short=cut_short)
