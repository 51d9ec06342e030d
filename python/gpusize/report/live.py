"""Progress while a run goes on, on standard error.

On a terminal: a line per level that was measured, and below it the running level with a bar, redrawn at most ten times
a second. Anywhere else: plain lines, one per finished level and one every 5 s in between, so that a log stays readable.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self

from gpusize.report.text import clean, count, duration, finite, number, plain_number, time_unit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
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
        now: a clock in seconds, for tests.
    """

    def __init__(
        self, file: IO[str] | None = None, *, quiet: bool = False, now: Callable[[], float] = time.monotonic
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
        self._level, self._last = level, progress
        if progress.get("state") == "done":
            self._close_level()
        elif self._live is not None:
            self._live.update(_draw(level, setting, progress), refresh=True)
        elif self._now() - self._told_s >= PLAIN_EVERY_S:
            self._told_s = self._now()
            self._say(progress_line(*level, progress))

    def event(self, event: LevelEvent) -> None:
        """Show an event of a sweep; fits as its progress callback."""
        index = event.position - 1
        if event.progress is not None:
            self.update(index, event.total, event.setting, event.progress)
        elif event.level is not None and not self._quiet:
            key = (index, event.total, setting_text(event.setting))
            if key == self._level:
                # Polling stops before a level's last requests; the record has them all.
                self._last = {**self._last, **_counts(event.level)}
                self._close_level(clean(event.level.get("state", "")))
            if event.level.get("state") != "done":
                for alert in event.level.get("alerts") or ():
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
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(""))
        line = progress_line(*level, {**self._last, "state": "done"})
        self._say(line if state in ("done", "") else f"{line}  {state}")

    def _say(self, line: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line))
            return
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        print(line.encode(encoding, "replace").decode(encoding), file=self._file, flush=True)


def _draw(level: tuple[int, int, str], setting: Mapping[str, Any], progress: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    index, total, text = level
    share = _share(setting, progress)
    head = Table.grid(padding=(0, 2), expand=False)
    head.add_column(no_wrap=True)
    head.add_column(width=24)
    head.add_column(no_wrap=True)
    bar = ProgressBar(total=None if share is None else 1.0, completed=share or 0.0, width=24)
    head.add_row(Text(f"level {index + 1}/{total}  {text}", style="bold"), bar, Text(_time(setting, progress)))
    body = Text("  " + "  ".join(_facts(progress)))
    if failed := _failed(progress):
        body.append(f"  {failed}", style="bold red")
    return Group(head, body)


def _counts(level: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Progress that ``level.json`` knows for good."""
    outcomes = level.get("outcomes") or {}
    counts: dict[str, Any] = {
        "done": level.get("rows"),
        "failed": {name: n for name, n in outcomes.items() if name not in ("ok", "cancelled")},
    }
    start, end = finite(level.get("start_ns")), finite(level.get("end_ns"))
    if start is not None and end is not None:
        counts["elapsed_ns"] = end - start
    return counts


def setting_text(setting: Mapping[str, Any]) -> str:
    """A level's setting in two words: ``8 users``, ``20/s poisson``."""
    if setting.get("kind") == "open":
        return clean(f"{plain_number(setting.get('rate'), 6)}/s {setting.get('process') or ''}", 40)
    users = finite(setting.get("concurrency"))
    return f"{plain_number(users, 9)} user{'' if users == 1 else 's'}"


def _wanted(setting: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(requests, seconds) that the level is to take, None where it does not say."""
    wanted = finite(setting.get("count"))
    if wanted is None and (passes := finite(setting.get("passes"))):
        concurrency = finite(setting.get("concurrency"))
        wanted = None if concurrency is None else passes * concurrency
    return wanted, finite(setting.get("duration_s"))


def _share(setting: Mapping[str, Any], progress: Mapping[str, Any]) -> float | None:
    """How much of the level is done, in [0, 1]; None when its length is not known. It ends at whichever comes first."""
    requests, seconds = _wanted(setting)
    parts = []
    if requests:
        parts.append((finite(progress.get("done")) or 0.0) / requests)
    if seconds:
        parts.append((finite(progress.get("elapsed_ns")) or 0.0) / _NS / seconds)
    return min(1.0, max(parts)) if parts else None


def _time(setting: Mapping[str, Any], progress: Mapping[str, Any]) -> str:
    """Elapsed, and what the level is expected to take, from its duration or from the pace so far."""
    elapsed = (finite(progress.get("elapsed_ns")) or 0.0) / _NS
    share, (_, seconds) = _share(setting, progress), _wanted(setting)
    expected = elapsed / share if share and share > 0.02 else seconds
    shown = f"{elapsed:.1f} s" if elapsed < 60 else duration(elapsed)
    return f"{shown} / about {duration(expected)}" if expected and expected < 1e7 else shown


def _facts(progress: Mapping[str, Any]) -> list[str]:
    """Rate, percentiles and counts; what is not known yet is left out."""
    facts = [f"{count(progress.get('done'))} done"]
    if (rate := finite(progress.get("rate"))) is not None:
        facts.append(f"{number(rate)}/s")
    p50, p95 = ((finite(progress.get(key)) or 0.0) / _NS for key in ("p50_ns", "p95_ns"))
    if p95 > 0:
        unit = time_unit([p50, p95])
        facts.append(f"p50 {unit.show(p50)} p95 {unit.show(p95)} {unit.name}")
    if (in_flight := finite(progress.get("in_flight"))) is not None and progress.get("state") != "done":
        facts.append(f"{in_flight:g} in flight")
    if progress.get("state") == "draining":
        facts.append("draining")
    return facts


def _failed(progress: Mapping[str, Any]) -> str:
    failed = progress.get("failed")
    if not isinstance(failed, Mapping):
        return ""
    kinds = [f"{count(n)} {clean(name, 40)}" for name, n in failed.items() if finite(n)]
    return f"failed: {', '.join(kinds)}" if kinds else ""


def progress_line(index: int, total: int, setting: str, progress: Mapping[str, Any]) -> str:
    """One plain line about a level, running or done."""
    elapsed = (finite(progress.get("elapsed_ns")) or 0.0) / _NS
    facts = dict.fromkeys(_facts(_overall(progress)))
    parts = [f"level {index + 1}/{total}", setting, duration(elapsed), *facts, _failed(progress)]
    return "  ".join(part for part in parts if part)


def _overall(progress: Mapping[str, Any]) -> Mapping[str, Any]:
    """For a finished level the rate over the whole of it; the engine's is that of the last second."""
    elapsed, done = finite(progress.get("elapsed_ns")), finite(progress.get("done"))
    if progress.get("state") != "done" or not elapsed or done is None:
        return progress
    return {**progress, "rate": done / (elapsed / _NS)}
