"""What a run has counted so far, over all of its levels: the state behind its metrics. For any thread."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gpusize.analysis.metrics import by_second

__all__ = ["BUCKETS_S", "HISTOGRAMS", "Histogram", "RunTally", "View"]

BUCKETS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0),
)
"""Upper bounds of the buckets: from the noise of timers to the longest answers, 1, 2.5 and 5 of each decade."""

HISTOGRAMS: Final[Mapping[str, str]] = {name: each.exported for name, each in by_second().items() if each.exported}
"""Metrics of ``Level.seconds`` that are exported, with what they are."""


@dataclass
class Histogram:
    """Counts by bucket, the last for what is beyond all bounds; ``sum_s`` from the middles of the engine's buckets."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, buckets: Iterable[tuple[int, int, int]]) -> None:
        """Add buckets of (low ns, high ns, count), by their upper ends."""
        for low_ns, high_ns, count in buckets:
            self.counts[bisect_left(BUCKETS_S, high_ns / 1e9)] += count
            self.sum_s += count * (low_ns + high_ns) / 2e9

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound in seconds, requests up to it); the last bound is infinite."""
        total, pairs = 0, []
        for bound_s, count in zip((*BUCKETS_S, float("inf")), self.counts, strict=True):
            total += count
            pairs.append((bound_s, total))
        return pairs


class View(NamedTuple):
    """A consistent look at the tally.

    Attributes:
        counts: ``due``, ``sent`` and ``connects`` so far.
        outcomes: requests that have ended, by outcome.
        now: ``in_flight`` (without those that wait), ``waiting`` and ``connections`` of the levels that run, added up;
            absent where nobody says.
        cpu_s: CPU time of the generator.
        cpu_share: share of its workers' cores, in the last second where the level tells of its seconds.
        level: position of the newest level, from 1; 0 before the first.
        setting: its setting.
        elapsed_s: of the newest level.
        histograms: by metric.
        stopped: reason of a rule that has ended the run; empty.
        finished: whether the run is over.
    """

    counts: dict[str, int]
    outcomes: dict[str, int]
    now: dict[str, int]
    cpu_s: float
    cpu_share: float | None
    level: int
    setting: Mapping[str, Any]
    elapsed_s: float
    histograms: dict[str, Histogram]
    stopped: str
    finished: bool


@dataclass
class RunTally:
    """Adds up levels by what they say last; counters only rise.

    Args:
        info: labels of ``gpusize_run_info``.
        levels: how many levels the run has.
        workers: threads that send.
    """

    info: Mapping[str, str] = field(default_factory=dict)
    levels: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: Counter[str] = Counter()
        self._ended_outcomes: Counter[str] = Counter()
        self._running: dict[Hashable, Mapping[str, Any]] = {}
        self._cpu_ns = 0
        self._histograms = {name: Histogram() for name in HISTOGRAMS}
        self._level: tuple[int, Mapping[str, Any]] = (0, {})
        self._elapsed_s = 0.0
        self._cores: float | None = None
        self._second_ns: int | None = None
        self._stopped = ""
        self._finished = False

    def progress(self, key: Hashable, position: int, setting: Mapping[str, Any], progress: Mapping[str, Any]) -> None:
        """A running level as it stands."""
        with self._lock:
            self._running[key] = progress
            if position >= self._level[0]:
                self._level = (position, setting)
                self._elapsed_s = (progress.get("elapsed_ns") or 0) / 1e9
                self._cores = progress.get("cpu_share") if self._second_ns is None else self._second_ns / 1e9

    def seconds(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Complete seconds of any level, each once."""
        with self._lock:
            for row in rows:
                if row.get("cpu_ns"):  # an engine that cannot tell says 0
                    self._second_ns = int(row["cpu_ns"])
                    self._cpu_ns += self._second_ns
                for name, buckets in (row.get("times") or {}).items():
                    if name in self._histograms:
                        self._histograms[name].add(buckets)

    def ended(self, key: Hashable, outcome: Mapping[str, Any]) -> None:
        """A level has ended: its LevelOutcome has the last word."""
        with self._lock:
            last = self._running.pop(key, {})
            self._ended.update({"due": outcome["due"], "sent": outcome["sent"], "connects": last.get("connects") or 0})
            self._ended_outcomes.update(outcome["outcomes"])

    def stop(self, reason: str) -> None:
        """A rule has ended the run."""
        with self._lock:
            self._stopped = reason

    def finish(self) -> None:
        """The run is over."""
        with self._lock:
            self._finished = True

    def view(self) -> View:
        """Everything as it is now."""
        with self._lock:
            counts, outcomes = Counter(self._ended), Counter(self._ended_outcomes)
            now: Counter[str] = Counter()
            for progress in self._running.values():
                for name in ("due", "sent", "connects"):
                    counts[name] += progress.get(name) or 0
                outcomes.update({"ok": progress.get("ok") or 0, **(progress.get("failed") or {})})
                now.update({k: progress[k] for k in ("waiting", "connections") if progress.get(k) is not None})
                now["in_flight"] += (progress.get("in_flight") or 0) - (progress.get("waiting") or 0)
            copies = {name: Histogram([*each.counts], each.sum_s) for name, each in self._histograms.items()}
            return View(
                {name: counts[name] for name in ("due", "sent", "connects")},
                dict(outcomes),
                dict(now),
                self._cpu_ns / 1e9,
                None if self._cores is None else self._cores / self.workers,
                *self._level,
                self._elapsed_s,
                copies,
                self._stopped,
                self._finished,
            )
