"""What is known of a source of readings beside the readings themselves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusize.base.errors import StoreError

__all__ = ["Facts", "Held", "Limit"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What one cgroup on the way to the root allows.

    Attributes:
        path: the cgroup, below the mount of its hierarchy.
        mem_bytes: its memory limit; None for none.
        cpu_cores: its CPU quota over its period; None for none.
        pids: its limit on threads; None for none.
        mem_high_bytes: memory from which on it is slowed down (``memory.high``); None for none.
        above: whether it is above the cgroup that was sampled, and so shared with whatever else is in it.
    """

    path: str
    mem_bytes: int | None = None
    cpu_cores: float | None = None
    pids: int | None = None
    mem_high_bytes: int | None = None
    above: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A limit that was met between two readings, and that the source's own counters say nothing of.

    Attributes:
        path: the cgroup that has the limit.
        kind: ``memory`` or ``cpu``, of a cgroup above; ``memory_high`` of one above or of the source's own.
        limit: the limit, in bytes or cores.
        from_ns: the reading before it was met first, on the engine's clock.
        until_ns: the reading after it was met last.
        times: charges that did not fit, or throttled periods; 0 where memory was at the limit and no more is known.
        above: whether the cgroup is above the one that was sampled.
    """

    path: str
    kind: str
    limit: float
    from_ns: int
    until_ns: int
    times: int = 0
    above: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one source; times are on the engine's clock.

    Attributes:
        kind: ``cgroup``, ``process`` or ``host``.
        interval_ns: time between two readings that was asked for.
        begun_ns: when what is measured began, with all its counters at 0; None where it ran before the first reading.
        ended_ns: when it ended; None where it went on.
        cpus: CPUs that were online and that it may run on.
        tick_ns: steps in which the CPU counter moves, the scheduler's tick; None where it has none, or when unknown.
        mem_error_bytes: how far the kernel's memory counters may be from what is in use.
        missed: due readings that were not taken.
        own_cpu_ns: CPU time of the thread that read.
        limits: of the cgroup and of all its ancestors, the nearest first.
        held: which limits above, and ``memory.high``, were met when.
        totals: final counters by column, read after the end; they count from `begun_ns`.
        totals_from: what `totals` were read from, ``parent`` or ``last``.
        lacks: signals that are not there, and why.
        clock: a pair of times, on the engine's clock and since 1970 (UTC), in ns; None when unknown.
        notes: what the user should know.
        raw: what the sampler said, as it said it.
    """

    kind: str = "cgroup"
    interval_ns: int | None = None
    begun_ns: int | None = None
    ended_ns: int | None = None
    cpus: int | None = None
    tick_ns: int | None = None
    mem_error_bytes: int = 0
    missed: int = 0
    own_cpu_ns: int | None = None
    limits: tuple[Limit, ...] = ()
    held: tuple[Held, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    totals_from: str | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    clock: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def mem_limit(self) -> Limit | None:
        """The smallest memory limit on the way to the root."""
        known = [limit for limit in self.limits if limit.mem_bytes is not None]
        return min(known, key=lambda limit: limit.mem_bytes or 0, default=None)

    def high_limit(self) -> Limit | None:
        """The smallest ``memory.high`` on the way to the root."""
        known = [limit for limit in self.limits if limit.mem_high_bytes is not None]
        return min(known, key=lambda limit: limit.mem_high_bytes or 0, default=None)

    def cpu_limit(self) -> Limit | None:
        """The smallest CPU quota on the way to the root."""
        known = [limit for limit in self.limits if limit.cpu_cores is not None]
        return min(known, key=lambda limit: limit.cpu_cores or 0.0, default=None)

    def pids_limit(self) -> Limit | None:
        """The smallest limit on threads and processes on the way to the root."""
        known = [limit for limit in self.limits if limit.pids is not None]
        return min(known, key=lambda limit: limit.pids or 0, default=None)

    def to_json(self) -> str:
        """As one JSON document, for the metadata of a file."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str, where: str) -> Facts:
        """From what `to_json` wrote; members that this version does not know are left out.

        Raises:
            StoreError: it is not such a document; ``where`` names the file.
        """
        try:
            told = dict(json.loads(text))
            known = {name: told[name] for name in cls.__dataclass_fields__ if name in told}
            known["limits"] = tuple(Limit(**limit) for limit in known.get("limits", ()))
            known["held"] = tuple(Held(**held) for held in known.get("held", ()))
            known["notes"] = tuple(known.get("notes", ()))
            if known.get("clock") is not None:
                mono_ns, wall_ns = known["clock"]
                known["clock"] = (int(mono_ns), int(wall_ns))
            return cls(**known)
        except (TypeError, ValueError) as problem:
            raise StoreError(f"unreadable facts of readings ({problem})", where, "the file is damaged") from None
