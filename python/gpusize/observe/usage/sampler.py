"""Samples cgroups, process trees and the host on the extension's own thread, and hands over readings.

The schedule, the files and the counters are Rust's (`gpusize._core.ResourceSampler`); here is what asks for them and
what its facts mean for the figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.old_names import renamed
from gpusize.engine.session import core, monotonic_ns
from gpusize.observe.usage.readings import COUNTERS, MARKS, Readings, empty_frame, wide_frame, with_room
from gpusize.observe.usage.source_facts import Facts, Held, Limit

if TYPE_CHECKING:
    import polars as pl

__all__ = ["INTERVAL_S", "LEAST_S", "MOST_S", "ContainerReader", "Sampling", "Source", "facts_of"]

__getattr__ = renamed(__name__, {"ResourceWatch": "ContainerReader"})

INTERVAL_S: Final = 0.02
LEAST_S: Final = 0.001
MOST_S: Final = 3600.0
HOST_STEP_NS: Final = 10_000_000
MOST_PIECES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to sample.

    Attributes:
        name: what to call it; of several each has its own.
        kind: ``cgroup``, ``process`` (with its descendants) or ``host``.
        pid: the process; of ``cgroup`` the one whose group it is.
        path: of ``cgroup`` the group itself, below the mount of its hierarchies; instead of a pid.
        parent: of ``cgroup`` a group above that is for this source alone and outlives it: its totals are those of what
            is gone.
        pss: of ``process``: also count shared memory by halves, thirds and so on, now and then (it is slow).
        begun_ns: when it began, with its counters at 0, on the engine's clock; None for what runs already.
    """

    name: str
    kind: str = "cgroup"
    pid: int | None = None
    path: str | None = None
    parent: str | None = None
    pss: bool = False
    begun_ns: int | None = None

    def plan(self) -> dict[str, Any]:
        """As the extension takes it."""
        told = {"name": self.name, "kind": self.kind, "pid": self.pid, "path": self.path, "parent": self.parent}
        return {**{name: value for name, value in told.items() if value is not None}, "pss": self.pss}


def check_interval(interval_s: float, where: str = "interval") -> float:
    """The interval, if it can be kept; ``where`` is the option that it is of.

    Raises:
        UsageError: it cannot.
    """
    if not LEAST_S <= interval_s <= MOST_S:
        raise UsageError(f"an interval must be 1 ms to 1 h, not {interval_s:g} s", where)
    return interval_s


class Sampling:
    """Samples from when it is made until it is stopped.

    Args:
        sources: what to sample, at least one.
        interval_s: time between two readings, 1 ms to an hour.
        root: the directory that stands for ``/``, for tests.

    Raises:
        UsageError: an invalid source.
        EnvironmentLacks: one that cannot be read.
    """

    def __init__(self, sources: Sequence[Source], interval_s: float = INTERVAL_S, *, root: str = "/") -> None:
        self._sources = {source.name: source for source in sources}
        self._clock = core().clock_pair()[:2]
        plan = {
            "interval_ns": round(check_interval(interval_s) * 1e9),
            "root": root,
            "sources": [source.plan() for source in sources],
        }
        self._core = core().ResourceSampler(json.dumps(plan))
        self._frames: dict[str, list[pl.DataFrame]] = {source.name: [] for source in sources}
        self._final: dict[str, Any] | None = None

    def look(self) -> dict[str, Readings]:
        """Everything that was read so far, by name."""
        self._drain()
        return self._readings(self.facts())

    def facts(self) -> dict[str, Any]:
        """What the sampler says of itself and its sources."""
        return dict(json.loads(self._core.facts())) if self._final is None else self._final

    def ended(self) -> bool:
        """Whether everything that is sampled has ended."""
        told = self.facts()["sources"].values()
        return all(source.get("gone") or source.get("exited_ns") is not None for source in told)

    def mark(self, name: str) -> dict[str, Any]:
        """A phase begins: read everything now, and have high-water marks begin anew where the kernel can do that."""
        return dict(json.loads(self._core.mark(name)))

    def stop(self) -> dict[str, Readings]:
        """Read everything once more and end; safe to call twice."""
        if self._final is None:
            self._final = dict(json.loads(self._core.stop()))
        self._drain()
        return self._readings(self._final)

    def take(self, from_ns: int) -> dict[str, Readings]:
        """What was read so far, and let go of readings before ``from_ns`` but for those that counters need there."""
        made = self.look()
        for name, readings in made.items():
            self._frames[name] = [readings.since(from_ns).frame]
        return made

    def _drain(self) -> None:
        import polars as pl

        for name, batches in self._core.drain():
            frame = pl.DataFrame(batches)
            if frame.height:
                self._frames[name].append(wide_frame(frame))

    def _readings(self, told: Mapping[str, Any]) -> dict[str, Readings]:
        import polars as pl

        made = {}
        for name, frames in self._frames.items():
            if len(frames) > 1:
                whole = pl.concat(frames)
                # Looked at four times a second, a frame of an hour would be in 14,400 pieces.
                frames[:] = [whole.rechunk() if whole.n_chunks() > MOST_PIECES else whole]
            frame = frames[0] if frames else empty_frame()
            facts = facts_of(told, name, self._sources[name].begun_ns, self._clock)
            made[name] = Readings(name, frame, facts)
        return made


def facts_of(told: Mapping[str, Any], name: str, begun_ns: int | None, clock: tuple[int, int] | None) -> Facts:
    """What the sampler's facts mean for one source.

    The end is when its processes were gone; the group itself goes a little later. Totals are the parent's where one of
    its own was given, less what a runtime's monitor in it used, else the last values that were read.
    """
    source = told["sources"][name]
    gone = source.get("gone") or source.get("emptied_ns") is not None or source["kind"] == "process"
    ends = [source.get(key) for key in ("exited_ns", "emptied_ns", "gone_ns") if source.get(key) is not None]
    parent = source.get("parent") or {}
    last, whence = (parent.get("last"), "parent") if parent.get("last") else (source.get("last"), "last")
    totals = {column: value for column, value in (last or {}).items() if value is not None}
    if whence == "parent":
        totals = _without_monitors(totals, parent, {} if source.get("pid") is None else source.get("last") or {})
    levels = (source.get("limits") or {}).get("ancestors") or []
    # CPUs that its group may run on are all that there are for it.
    cpuset = ((source.get("limits") or {}).get("cpuset_cpus") or {}).get("value")
    limits = (
        Limit(
            *(level["group"], level.get("memory_bytes"), level.get("cpu_cores"), level.get("pids")),
            mem_high_bytes=level.get("memory_high_bytes"),
            above=level.get("above", False),
        )
        for level in levels
    )
    held = (
        Held(path=each["group"], **{k: v for k, v in each.items() if k != "group"}) for each in source.get("held", ())
    )
    return Facts(
        kind=source["kind"],
        interval_ns=told["interval_ns"],
        begun_ns=begun_ns,
        ended_ns=min(ends) if gone and ends else None,
        cpus=told["cpus"] if cpuset is None else min(told["cpus"], int(cpuset)),
        # Clocks of processes run on between ticks; the host's counters are in units of 1/100 s.
        tick_ns={"cgroup": told["kernel_tick_ns"], "host": HOST_STEP_NS}.get(source["kind"]),
        mem_error_bytes=told["mem_error_bytes"] if source["kind"] == "cgroup" else 0,
        missed=told["missed_ticks"],
        own_cpu_ns=told["own_cpu_ns"],
        limits=tuple(limits),
        held=tuple(held),
        totals={column: totals[column] for column in (*COUNTERS, *MARKS) if column in totals},
        totals_from=whence if last else None,
        lacks=source.get("missing") or {},
        clock=clock,
        notes=tuple(_notes(told, source, parent)),
        raw={**{key: value for key, value in told.items() if key != "sources"}, "source": source},
    )


def _without_monitors(
    totals: dict[str, int], parent: Mapping[str, Any], own: Mapping[str, int | None]
) -> dict[str, int]:
    """Totals of a parent, less what the monitors in it used, which is not the container's; at least what it told.

    High-water marks of two groups do not add up: what is left may be too little, by what the monitor had besides.
    """
    monitors = list((parent.get("monitors") or {}).values())
    if not monitors:
        return totals
    used = {column: sum(each.get(column) or 0 for each in monitors) for column in totals}
    return {column: max(value - used[column], own.get(column) or 0, 0) for column, value in totals.items()}


def _notes(told: Mapping[str, Any], source: Mapping[str, Any], parent: Mapping[str, Any]) -> list[str]:
    notes = []
    if parent.get("why"):
        notes.append(f"the parent group {parent.get('path')} could not be read: {parent['why']}")
    if told["late_max_ns"] > told["interval_ns"]:
        notes.append(f"a reading came {told['late_max_ns'] / 1e6:.0f} ms late")
    if source.get("restarts"):
        notes.append(f"it was restarted {source['restarts']} times")
    return notes


class ContainerReader:
    """Reads one container from its start to its end: what the pipeline's runner asks for.

    When it began and ended is best told by who started it: `Readings.at_wall` takes a container's own times.

    Args:
        name: what to call it.
        interval_ns: time between two readings; None for 20 ms.
    """

    def __init__(self, name: str, interval_ns: int | None = None) -> None:
        self._name = name
        self._interval_s = INTERVAL_S if interval_ns is None else check_interval(interval_ns / 1e9)
        self._sampling: Sampling | None = None

    def start(self, pid: int | None, parent: str | None = None) -> None:
        """Begin.

        Args:
            pid: a process of it; None when it has ended already, and only its parent can tell of it.
            parent: a group above that is for it alone and outlives it; None for none.

        Raises:
            UsageError: neither is given.
            EnvironmentLacks: it cannot be read.
        """
        path = parent if pid is None else None
        # In a parent of its own everything counts from 0; how far back that was the CPU time tells, or `at_wall`.
        begun_ns = None if parent is None else monotonic_ns()
        source = Source(name=self._name, pid=pid, path=path, parent=parent, begun_ns=begun_ns)
        self._sampling = Sampling([source], self._interval_s)

    def look(self) -> Readings:
        """What was read so far; without a row before the start."""
        return self._none() if self._sampling is None else with_room(self._sampling.look()[self._name])

    def stop(self) -> Readings:
        """End, and everything that was read; safe to call twice, and without a start."""
        if self._sampling is None:
            return self._none()
        readings = self._sampling.stop()[self._name]
        told = readings.facts.raw["source"]
        if told.get("pid") is None and (told.get("parent") or {}).get("monitors"):
            # It had ended before: what changed since then was the monitor's.
            readings = replace(readings, frame=empty_frame())
        return with_room(readings)

    def _none(self) -> Readings:
        return Readings(self._name, empty_frame())
