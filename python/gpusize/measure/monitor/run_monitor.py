"""Ties the monitor to the run: the sweep shows it each running level, it says when to stop.

with RunMonitor(rules=parse_rules(texts), tally=tally, closing=[page, gateway]) as monitor:
stop = monitor.look(level, position, setting, level.poll())     # as often as one likes, for each running level
monitor.ended(level, outcome)                                   # once for each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self

from gpusize.analysis.stop_cause import Stop
from gpusize.base.errors import UsageError
from gpusize.engine.session import monotonic_ns
from gpusize.measure.monitor.judge_rules import Monitor
from gpusize.measure.monitor.run_counts import RunTally
from gpusize.measure.monitor.run_seconds import SecondsOfRun
from gpusize.measure.monitor.stop_rules import Rule

__all__ = ["RunMonitor"]

EVERY_NS: Final = 1_000_000_000
"""Time between two looks at a level: it tells of whole seconds."""


class MonitoredLevel(Protocol):
    """A level that tells of its seconds; `gpusize.engine.session.AnyLevel` with ``seconds``."""

    visit: int

    def seconds(self, after: int) -> Sequence[Mapping[str, Any]]:
        """Complete seconds numbered ``after`` or more."""


class Closing(Protocol):
    """What ends with the run."""

    def close(self) -> None:
        """End."""


@dataclass
class _Followed:
    due_ns: int
    after: int = 0


@dataclass
class RunMonitor:
    """Monitors the levels of one run; a context manager.

    Args:
        rules: what ends the run.
        tally: takes what is shown to Prometheus.
        closing: closed when the run is over, in order: pages and gateways.
        clock: the engine's clock.

    Raises:
        UsageError: at the first look, when there are rules and the level does not tell of its seconds.
    """

    rules: Sequence[Rule] = ()
    tally: RunTally | None = None
    closing: Iterable[Closing] = ()
    clock: Callable[[], int] = monotonic_ns
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _merged: SecondsOfRun = field(default_factory=SecondsOfRun)

    def __post_init__(self) -> None:
        self._monitor = Monitor(self.rules)

    @property
    def stop(self) -> Stop | None:
        """Why the run is to end; None as long as no rule has come true."""
        return self._monitor.stop

    def look(
        self, level: MonitoredLevel, position: int, setting: Mapping[str, Any], progress: Mapping[str, Any]
    ) -> Stop | None:
        """Look at a running level, at most once a second; the reason to end as soon as there is one.

        Args:
            level: the level.
            position: its number among those to do, from 1.
            setting: as in ``level.json``.
            progress: what ``level.poll()`` says.
        """
        now_ns = self.clock()
        followed = self._followed.get(level.visit)
        waits = progress.get("state") in ("queued", "done") or (followed is not None and now_ns < followed.due_ns)
        if waits or not (self.rules or self.tally):
            return self.stop
        if followed is None:
            followed = self._followed[level.visit] = _Followed(now_ns)
        followed.due_ns = max(followed.due_ns + EVERY_NS, now_ns)
        if self.tally is not None:
            self.tally.progress(level.visit, position, setting, progress)
        elapsed_ns = progress.get("elapsed_ns") or 0
        self._take(level, followed, now_ns - elapsed_ns, elapsed_ns)
        return self._judge()

    def ended(self, level: MonitoredLevel, outcome: Mapping[str, Any]) -> None:
        """A level has ended; its last seconds count as well."""
        followed = self._followed.pop(level.visit, _Followed(0))
        if self.rules or self.tally:
            self._take(level, followed, outcome["start_ns"], outcome["end_ns"] - outcome["start_ns"])
        self._merged.ended(level.visit)
        self._judge()
        if self.tally is not None:
            self.tally.ended(level.visit, outcome)

    def _take(self, level: MonitoredLevel, followed: _Followed, start_ns: int, elapsed_ns: int) -> None:
        seconds = getattr(level, "seconds", None)
        if seconds is None:
            if self.rules:
                raise UsageError(
                    "the workflow's engine does not report single seconds",
                    "stop rules",
                    "leave them out, or bound the level by --max-error-rate and --duration",
                )
            return
        rows = seconds(followed.after)
        if rows:
            followed.after = int(rows[-1]["second"]) + 1
        if self.tally is not None:
            self.tally.seconds(rows)
        if self.rules:
            self._merged.level(level.visit, start_ns, elapsed_ns / 1e9, rows)

    def _judge(self) -> Stop | None:
        before = self._monitor.stop
        stop = self._monitor.feed(self._merged.complete())
        if stop is not None and before is None and self.tally is not None:
            self.tally.stop(stop.reason)
        return stop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.tally is not None:
            self.tally.finish()
        for each in self.closing:
            each.close()
