"""Progress while a run goes on, on standard error or in a notebook.

On a terminal: a line per level that was measured, and below it the running level with bars, rates, percentiles of the
last second and the last minute as curves, redrawn at most ten times a second. A notebook has the same below the cell.
Anywhere else: plain lines, one per finished level and one every 5 s in between, so that a log stays readable.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Final, Protocol, Self

from gpusize.report.live.facts import Schedule, facts, failed, hosts_line, numbered, setting_text, so_far_facts
from gpusize.report.live.pace import Pace, RunRates
from gpusize.report.live.screen import Screen, Terminal
from gpusize.report.live.view import LevelView, Minute
from gpusize.report.summary.search_text import chosen_text
from gpusize.report.text import clean, duration, finite

__all__ = ["LiveProgress", "progress_line", "setting_text"]

PLAIN_EVERY_S: Final = 5.0
_NS: Final = 1e9


class LevelEvent(Protocol):
    """What a sweep tells about a level: see `gpusize.measure.sweep.ProgressEvent`."""

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
    @property
    def step(self) -> int: ...
    @property
    def before(self) -> Sequence[LevelEvent]: ...
    @property
    def search(self) -> Mapping[str, Any] | None: ...


@dataclass
class _Shown:
    """A level that has begun and has no last line yet.

    Attributes:
        index: its number among those to do, from 0.
        total: how many there are; 0 where nobody knows yet.
        setting: as in ``level.json``.
        step: its place among all levels of the run.
        last: what was seen of it last.
        pace: its own.
        search: why a search chose it; empty in a sweep.
    """

    index: int
    total: int
    setting: Mapping[str, Any]
    step: int
    last: Mapping[str, Any] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    search: str = ""

    @property
    def text(self) -> str:
        text = setting_text(self.setting)
        return f"{text} {self.search}" if self.search else text

    def seen(self, progress: Mapping[str, Any] | None, **more: Any) -> None:
        """Take a further look at it."""
        self.last = {**self.last, **({} if progress is None else self.pace.seen(progress)), **more}

    @property
    def sent_any(self) -> bool:
        """Whether there is something to say of it: one that was ended before its first request leaves no record."""
        return any(finite(self.last.get(name)) for name in ("done", "shed", "in_flight"))

    def last_line(self) -> str:
        return progress_line(
            self.index, self.total, self.text, {**self.last, "state": "done", "pace": self.pace.rate()}
        )


class LiveProgress:
    """Shows the progress of a sweep; a context manager.

    ``update`` and ``event`` may be called at any rate and from one thread at a time; they never raise because of what a
    server said. Each level has one line that stays, said when it is committed; the newest that has begun is drawn.

    Args:
        file: where to show it, standard error by default.
        quiet: show nothing at all.
        settings: all levels of the run, in order, so that the time left can be told.
        now: a clock in seconds, for tests.
        screen: what is drawn on; by default the file, where it is a terminal.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        *,
        quiet: bool = False,
        settings: Sequence[Mapping[str, Any]] = (),
        now: Callable[[], float] = time.monotonic,
        screen: Screen | None = None,
    ) -> None:
        self._file = sys.stderr if file is None else file
        self._quiet = quiet
        self._now = now
        self._given = screen
        self._screen: Screen | None = None
        self._levels: dict[int, _Shown] = {}
        self._told_s = float("-inf")
        self._schedule = Schedule(settings)
        self._minute = Minute()
        self._rates = RunRates()

    def __enter__(self) -> Self:
        if not self._quiet:
            self._screen = Terminal(self._file) if self._given is None and self._file.isatty() else self._given
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for index in sorted(self._levels):
            if (level := self._levels.pop(index)).sent_any:
                self._close(level)
        if self._screen is not None:
            self._screen.close()
            self._screen = None

    def update(
        self, level_index: int, total: int, setting: Mapping[str, Any], progress: Mapping[str, Any] | None
    ) -> None:
        """Show the state of one level, the only one that is under way; levels that were shown before have ended.

        Args:
            level_index: the running level, from 0.
            total: how many levels the sweep has.
            setting: the level's setting as in ``level.json``.
            progress: the engine's Progress; None when there is nothing new.
        """
        if self._quiet or progress is None:
            return
        for index in [each for each in sorted(self._levels) if each != level_index]:
            self._close(self._levels.pop(index))
        ended = progress.get("state") == "done"
        if ended and level_index not in self._levels:
            return
        shown = self._level(_Shown(level_index, total, setting, level_index))
        shown.seen(progress)
        if ended:
            self._close(self._levels.pop(level_index))
        else:
            self._show(shown, [])

    def event(self, event: LevelEvent) -> None:
        """Show an event of a sweep; fits as its progress callback."""
        if self._quiet:
            return
        if event.level is not None:
            self._committed(event, event.level)
            return
        shown = []
        for each in (*event.before, event):
            level = self._shown(each)
            level.seen(each.progress, so_far=getattr(each, "so_far", None))
            shown.append(level)
        # The last word of a level waits for its record, which also knows how it ended.
        if event.progress is not None and event.progress.get("state") != "done":
            self._show(shown[-1], shown[:-1])

    def message(self, text: str) -> None:
        """Say one line above the running level, for example that the simulated cluster is up."""
        if not self._quiet:
            self._say(clean(text))

    def _shown(self, event: LevelEvent) -> _Shown:
        why = chosen_text(event.search)
        search = f"({why})" if why else ""
        return self._level(_Shown(event.position - 1, event.total, event.setting, event.step, search=search))

    def _level(self, level: _Shown) -> _Shown:
        """The level of this number that is shown already, or this one from now on."""
        if not self._levels:
            self._told_s = self._now()
        return self._levels.setdefault(level.index, level)

    def _show(self, level: _Shown, before: Sequence[_Shown]) -> None:
        """Draw a level that runs, or tell of it when it is time."""
        now_s = self._now()
        rates = self._rates.seen(now_s, {each.index: each.last for each in (*before, level)})
        progress = {**level.last, **rates}
        if self._screen is not None:
            self._minute.add(now_s, progress)
            earlier = [(each.index + 1, each.last) for each in before]
            facts_ = (level.setting, progress, self._schedule, self._minute, level.step, earlier)
            self._screen.draw(LevelView(level.index, level.total, level.text, *facts_))
        elif now_s - self._told_s >= PLAIN_EVERY_S:
            self._told_s = now_s
            self._say(progress_line(level.index, level.total, level.text, progress))

    def _committed(self, event: LevelEvent, level: Mapping[str, Any]) -> None:
        """A level's last line, and what its record says that was wrong."""
        index, state = event.position - 1, clean(level.get("state", ""))
        shown = self._shown(event)
        shown.seen(event.progress, so_far=getattr(event, "so_far", None), **_counts(level))
        self._rates.seen(self._now(), {} if event.progress is None else {index: event.progress})
        self._close(self._levels.pop(index), state)
        if level.get("hosts"):
            self.message(hosts_line(level["hosts"]))
        # Whoever ended it knows why.
        for alert in () if state in ("done", "cancelled") else level.get("alerts") or ():
            self.message(f"! {shown.text}: {alert}")

    def _close(self, level: _Shown, state: str = "done") -> None:
        """The last word on a level: one line that stays; it names a state other than done."""
        if self._screen is not None and not self._levels:
            self._screen.clear()
        line = level.last_line()
        self._say(line if state in ("done", "") else f"{line}  {state}")

    def _say(self, line: str) -> None:
        if self._screen is not None:
            self._screen.say(line)
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
    start, close, end = (finite(level.get(name)) for name in ("start_ns", "close_ns", "end_ns"))
    if start is not None and end is not None:
        counts["elapsed_ns"] = end - start
    if start is not None and close is not None and (level.get("setting") or {}).get("kind") == "open":
        counts["load_ns"] = close - start
    return counts


def progress_line(index: int, total: int, setting: str, progress: Mapping[str, Any]) -> str:
    """One plain line about a level, running or done."""
    elapsed = (finite(progress.get("elapsed_ns")) or 0.0) / _NS
    said = dict.fromkeys(facts(_overall(progress)))
    known = so_far_facts(progress, times=False)
    parts = [numbered(index, total), setting, duration(elapsed), *said, *known, failed(progress)]
    return "  ".join(part for part in parts if part)


def _overall(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """For a finished level the rate over all of its load; the engine's is that of the last second."""
    elapsed, done = finite(progress.get("elapsed_ns")), finite(progress.get("done"))
    if progress.get("state") != "done" or not elapsed or done is None:
        return progress
    # What comes after the last request was due is no part of a rate: answers may take longer than the level.
    rate = finite(progress.get("pace")) or done / ((finite(progress.get("load_ns")) or elapsed) / _NS)
    return {**progress, "rate": rate, "offered_rate": None, "waiting": None}
