"""The Rust engine with types: what ``gpusize._core`` takes and gives as JSON, as Python dictionaries of known shape.

The shapes are those of ``docs/reference/engine.md``; times are integer nanoseconds on the engine's clock.
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, Self, TypedDict, cast

from gpusize.base.errors import EnvironmentLacks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    import polars as pl

    from gpusize import _core

__all__ = [
    "AnyEngine",
    "AnyLevel",
    "Engine",
    "EngineLevel",
    "LevelOutcome",
    "ProbeRecord",
    "Progress",
    "Recent",
    "Second",
    "build_profile",
    "core",
    "monotonic_ns",
]


class Recent(TypedDict):
    """The last full second of a level; None where nothing ended."""

    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    ttft_p50_ns: int | None
    ttft_p99_ns: int | None
    lateness_p99_ns: int | None
    pacer_late_p99_ns: int | None


class Second(TypedDict):
    """One second of a level, by number from its start; ``times`` are buckets ``[low_ns, high_ns, count]``."""

    second: int
    due: int
    sent: int
    done: int
    outcomes: dict[str, int]
    in_flight: int
    waiting: int
    cpu_ns: int
    times: dict[str, list[list[int]]]


class Progress(TypedDict):
    """A level as it stands."""

    state: str
    start_ns: NotRequired[int]
    elapsed_ns: int
    due: int
    sent: int
    done: int
    ok: int
    failed: dict[str, int]
    in_flight: int
    waiting: int
    shed: int
    p50_ns: int | None
    p95_ns: int | None
    lateness_p99_ns: int | None
    recent: Recent
    rate: float
    offered_rate: float
    sent_rate: float
    cpu_share: float
    connects: int
    connections: int
    close_after_ns: int | None
    schedule_ns: int


class LevelError(TypedDict):
    """One distinct failure of a level; records point at it by ``id``."""

    id: int
    outcome: str
    status: int | None
    message: str
    count: int


class AddressUse(TypedDict):
    """One address that a target's host name stands for; ``connections``: open during the level, or opened in it."""

    target: int
    address: str
    connections: int


class LevelOutcome(TypedDict):
    """A level that has ended."""

    visit: int
    stop_reason: str
    start_ns: int
    close_ns: int
    end_ns: int
    due: int
    sent: int
    asked_again: int
    outcomes: dict[str, int]
    rows: int
    connects: int
    reconnects: int
    addresses: list[AddressUse]
    cpu_ns: int
    workers: int
    stalled_ns: NotRequired[int]
    longest_stall_ns: NotRequired[int]
    members: NotRequired[int]
    residence_ns: int | None
    residence_sum_ns: NotRequired[int]
    parts: list[str]
    write_error: str | None
    errors: list[LevelError]
    histograms: dict[str, list[list[int]]]
    spans: int
    span_parts: list[str]
    sampled: int
    second_parts: list[str]
    histogram_parts: list[str]
    hosts: NotRequired[list[dict[str, Any]]]
    hosts_alerts: NotRequired[list[str]]


class ProbeRecord(TypedDict):
    """The one request that is sent before a sweep; ``message``: what failed, in the server's or the system's words."""

    outcome: str
    status: int | None
    message: str | None
    service_ns: int | None


class AnyLevel(Protocol):
    """A queued, running or finished visit of a level, whoever sends it."""

    visit: int

    def poll(self) -> Progress:
        """As `EngineLevel.poll`."""

    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        """As `EngineLevel.stop`."""

    def seconds(self, after: int) -> list[Second]:
        """As `EngineLevel.seconds`."""

    def wait(self, timeout_s: float) -> bool:
        """As `EngineLevel.wait`."""

    def outcome(self) -> LevelOutcome:
        """As `EngineLevel.outcome`."""


class AnyEngine(Protocol):
    """What drives load: `Engine`, or the one that runs workflows in Python."""

    def queue(self, plan: Mapping[str, Any], **arrays: bytes) -> AnyLevel:
        """As `Engine.queue`."""

    def probe(self) -> ProbeRecord:
        """As `Engine.probe`."""

    def close(self) -> None:
        """As `Engine.close`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@functools.cache
def core() -> ModuleType:
    """The extension module; warns, once, of a debug build: its numbers are not worth having.

    Raises:
        EnvironmentLacks: it was not built for this interpreter.
    """
    try:
        from gpusize import _core
    except ImportError as error:
        raise EnvironmentLacks(
            f"the gpusize extension cannot be loaded ({error})",
            "gpusize._core",
            "install gpusize again: pip install .",
        ) from error
    if _core.BUILD_PROFILE != "release":
        text = f"gpusize._core is a {_core.BUILD_PROFILE} build, many times slower: measure with a release build"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return _core


def build_profile() -> str:
    """The cargo profile that built the extension: ``release``, or ``debug``, of which it warns."""
    return str(core().BUILD_PROFILE)


def monotonic_ns() -> int:
    """The engine's clock, in nanoseconds."""
    return int(core().monotonic_ns())


class EngineLevel:
    """One queued, running or finished visit of a level."""

    def __init__(self, level: _core.Level, visit: int) -> None:
        self._level = level
        self.visit = visit

    def poll(self) -> Progress:
        """The level as it stands; cheap enough for ten times a second."""
        return cast("Progress", json.loads(self._level.poll()))

    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        """Send nothing new; requests in flight have ``drain_ns`` and are then cancelled and recorded.

        Args:
            drain_ns: what they have.
            reason: ``stopped``, ``slo``, ``saturation`` or ``errors``; the outcome's ``stop_reason``.
        """
        self._level.stop(drain_ns, reason)

    def seconds(self, after: int) -> list[Second]:
        """The complete seconds of the level from number ``after`` on; the last ones are kept."""
        return cast("list[Second]", json.loads(self._level.seconds(after)))

    def wait(self, timeout_s: float) -> bool:
        """Wait until every request has its record and every part is on disk. False when the time ran out."""
        return self._level.wait(timeout_s)

    def prepared(self, timeout_s: float) -> bool:
        """Wait until the connections of a level that is held have been tried. False when the time ran out."""
        return self._level.prepared(timeout_s)

    def start_at(self, start_ns: int) -> None:
        """Start a level that is held.

        Args:
            start_ns: when, on this host's clock; at least 2 ms ahead.

        Raises:
            UsageError: it is too late for that; the level is still held.
        """
        self._level.start_at(start_ns)

    def set_close_at(self, close_at_ns: int) -> None:
        """Move the end of a level whose plan has a ``close_at_ns``.

        Args:
            close_at_ns: when its time is over, on this host's clock.

        Raises:
            UsageError: it is too late for that, or too much.
        """
        self._level.set_close_at(close_at_ns)

    def outcome(self) -> LevelOutcome:
        """What happened; only after ``wait`` has returned True."""
        outcome = cast("LevelOutcome", json.loads(self._level.outcome()))
        # The engine names parts as they lie in the plan's ``dir``, which is the level's ``records``.
        outcome["parts"] = [f"records/{part.rpartition('/')[2]}" for part in outcome["parts"]]
        outcome["span_parts"] = [f"spans/{part.rpartition('/')[2]}" for part in outcome["span_parts"]]
        outcome["second_parts"] = [f"seconds/{part}" for part in outcome["second_parts"]]
        outcome["histogram_parts"] = [f"histograms/{part}" for part in outcome["histogram_parts"]]
        return outcome

    def frame(self) -> pl.DataFrame | None:
        """The records still in memory, or None when they outgrew it and are on disk only."""
        import polars as pl

        batches = self._level.rows()
        return None if batches is None else pl.DataFrame(batches)


class Engine:
    """Workers and connections to one target; they live across levels. A context manager."""

    def __init__(
        self,
        target: Mapping[str, Any],
        segments: Sequence[Mapping[str, Any]],
        rows: list[list[bytes]],
        *,
        workers: int = 1,
        mix: Mapping[str, Any] | None = None,
    ) -> None:
        session = core().Session
        texts = json.dumps(target), json.dumps(list(segments))
        mixed = None if mix is None else json.dumps(mix)
        self._session: _core.Session = session(*texts, rows, workers=workers, mix=mixed)

    def queue(self, plan: Mapping[str, Any], **arrays: bytes) -> EngineLevel:
        """Queue one level (a LevelPlan). It starts when the one before it has closed; the call returns at once.

        Args:
            plan: the plan.
            arrays: ``due``, ``rows``, ``targets``, ``streams`` of arrivals that are handed over beside the plan, as
                ``docs/reference/engine.md`` has them.
        """
        return EngineLevel(self._session.level(json.dumps(plan), **arrays), int(plan["visit"]))

    def probe(self) -> ProbeRecord:
        """Send the first row once, outside every level."""
        return cast("ProbeRecord", json.loads(self._session.probe()))

    def close(self) -> None:
        """Close the connections and end the workers; safe to call twice."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
