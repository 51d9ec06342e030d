"""Progress while a run goes on, on standard error.

On a terminal: a line per level that was measured, and below it the running level with bars, rates, percentiles of the
last second and the last minute as curves, redrawn at most ten times a second. Anywhere else: plain lines, one per
finished level and one every 5 s in between, so that a log stays readable.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self

from gpusize.report.live_facts import Pace, Schedule, facts, failed, setting_text
from gpusize.report.live_view import LevelView, Minute
from gpusize.report.text import clean, duration, finite

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

__all__ = ["LiveProgress", "progress_line", "setting_text"]

PLAIN_EVERY_S: Final = 5.0
_NS: Final = 1e9


class LevelEvent(Protocol):
    """What a sweep tells about a level; ``position`` counts from 1."""

    @property
    def position(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def setting(self) -> Mapping[str, Any]: ...
    @property
    def progress(self) -> Mapping[str, Any] | None: ...
    @property
    def level(self) -> Mapping[str, Any] | None: ...


class LiveProgress:
    """Shows the progress of a sweep; a context manager.

    ``update`` may be called at any rate and from one thread at a time; it never raises because of what a server said.

    Args:
        file: where to show it, standard error by default.
        quiet: show nothing at all.
        settings: the levels to do, in order, so that the time left can be told.
        now: a clock in seconds, for tests.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        *,
        quiet: bool = False,
        settings: Sequence[Mapping[str, Any]] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = sys.stderr if file is None else file
        self._quiet = quiet
        self._now = now
        self._live: Live | None = None
        self._console: Console | None = None
        self._level: tuple[int, int, str] | None = None
        self._closed: tuple[int, int, str] | None = None
        self._last: Mapping[str, Any] = {}
        self._told_s = float("-inf")
        self._schedule = Schedule(settings)
        self._minute = Minute()
        self._pace = Pace()

    def __enter__(self) -> Self:
        if not self._quiet and self._file.isatty():
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._file, markup=False, emoji=False, highlight=False)
            # The callback draws: no thread of its own that could redraw a half-updated state.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_level()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(
        self, level_index: int, total: int, setting: Mapping[str, Any], progress: Mapping[str, Any] | None
    ) -> None:
        """Show the state of one level.

        Args:
            level_index: the running level, from 0.
            total: how many levels the sweep has.
            setting: the level's setting as in ``level.json``.
            progress: the engine's Progress; None when there is nothing new.
        """
        level = (level_index, total, setting_text(setting))
        if self._quiet or progress is None or level == self._closed:
            return
        if self._level is not None and level != self._level:
            self._close_level()
        if self._level is None:
            self._told_s = self._now()
        progress = self._pace.seen(progress)
        self._level, self._last = level, progress
        if progress.get("state") == "done":
            self._close_level()
        elif self._live is not None:
            self._minute.add(self._now(), progress)
            self._live.update(LevelView(*level, setting, progress, self._schedule, self._minute), refresh=True)
        elif self._now() - self._told_s >= PLAIN_EVERY_S:
            self._told_s = self._now()
            self._say(progress_line(*level, progress))

    def event(self, event: LevelEvent) -> None:
        """Show an event of a sweep; fits as its progress callback."""
        index = event.position - 1
        if event.level is None:
            # Its last word waits for the record, which also knows how it ended.
            done = event.progress is not None and event.progress.get("state") == "done"
            self.update(index, event.total, event.setting, None if done else event.progress)
        elif not self._quiet:
            key = (index, event.total, setting_text(event.setting))
            if self._level is not None and key != self._level:
                self._close_level()
            state = clean(event.level.get("state", ""))
            seen = self._pace.seen(event.progress) if event.progress is not None else {}
            self._level, self._last = key, {**self._last, **seen, **_counts(event.level)}
            self._close_level(state)
            # Whoever ended it knows why.
            for alert in () if state in ("done", "cancelled") else event.level.get("alerts") or ():
                self.message(f"! {key[2]}: {alert}")

    def message(self, text: str) -> None:
        """Say one line above the running level, for example that the simulated cluster is up."""
        if not self._quiet:
            self._say(clean(text))

    def _close_level(self, state: str = "done") -> None:
        """The last word on a level: one line that stays; it names a state other than done."""
        if self._level is None:
            return
        level, self._level, self._closed = self._level, None, self._level
        pace, self._pace = self._pace.rate(), Pace()
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(""))
        line = progress_line(*level, {**self._last, "state": "done", "pace": pace})
        self._say(line if state in ("done", "") else f"{line}  {state}")

    def _say(self, line: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line))
            return
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        print(line.encode(encoding, "replace").decode(encoding), file=self._file, flush=True)


def _counts(level: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Progress that ``level.json`` knows for good."""
    outcomes = level.get("outcomes") or {}
    counts: dict[str, Any] = {
        "done": sum(n for name, n in outcomes.items() if name != "shed") if outcomes else level.get("rows"),
        "shed": outcomes.get("shed"),
        "failed": {name: n for name, n in outcomes.items() if name not in ("ok", "cancelled")},
    }
    start, end = finite(level.get("start_ns")), finite(level.get("end_ns"))
    if start is not None and end is not None:
        counts["elapsed_ns"] = end - start
    return counts


def progress_line(index: int, total: int, setting: str, progress: Mapping[str, Any]) -> str:
    """One plain line about a level, running or done."""
    elapsed = (finite(progress.get("elapsed_ns")) or 0.0) / _NS
    said = dict.fromkeys(facts(_overall(progress)))
    parts = [f"level {index + 1}/{total}", setting, duration(elapsed), *said, failed(progress)]
    return "  ".join(part for part in parts if part)


def _overall(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """For a finished level the rate over all of its load; the engine's is that of the last second."""
    elapsed, done = finite(progress.get("elapsed_ns")), finite(progress.get("done"))
    if progress.get("state") != "done" or not elapsed or done is None:
        return progress
    rate = finite(progress.get("pace")) or done / (elapsed / _NS)
    return {**progress, "rate": rate, "offered_rate": None, "waiting": None}
