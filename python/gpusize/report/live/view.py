"""The live view of a running level for a terminal of any width: bars, facts, and the last minute as small curves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.live.facts import (
    Schedule,
    draining,
    facts,
    failed,
    level_time,
    numbered,
    recent_facts,
    run_facts,
    share,
    so_far_facts,
)
from gpusize.report.text import count, finite, number

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

__all__ = ["LevelView", "Minute", "sparkline"]

_BARS: Final = " ▁▂▃▄▅▆▇█"
MINUTE_S: Final = 60
LABEL: Final = 13
BAR_WIDTH: Final = 24
LEAST_BAR: Final = 4
TALL: Final = 16
"""Lines of a terminal from which there is room for curves."""


def sparkline(values: Sequence[float], highest: float) -> str:
    """One character per value, from blank at 0 to a full block at ``highest``; a little is never shown as nothing."""
    top = len(_BARS) - 1
    steps = (0 if value <= 0 or highest <= 0 else max(1, min(top, round(top * value / highest))) for value in values)
    return "".join(_BARS[step] for step in steps)


class Minute:
    """Offered and achieved rate, second by second, over the last minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float, float]] = deque(maxlen=MINUTE_S)

    def add(self, now_s: float, progress: Mapping[str, Any]) -> None:
        """Take the rates of one moment; the last one of each second stays."""
        offered, achieved = finite(progress.get("offered_rate")), finite(progress.get("rate"))
        if offered is None or achieved is None:
            return
        second = int(now_s)
        if self._points and self._points[-1][0] == second:
            self._points.pop()
        self._points.append((second, offered, achieved))

    def rows(self, room: int) -> list[tuple[str, str]]:
        """The two curves with their names, on one scale, in so many characters; none before there are two points."""
        points = list(self._points)[-max(room, 0) :]
        if len(points) < 2:
            return []
        highest = max(max(offered, achieved) for _, offered, achieved in points)
        curves = (("offered", [p[1] for p in points]), ("achieved", [p[2] for p in points]))
        return [(name, sparkline(values, highest)) for name, values in curves]


@dataclass(frozen=True, slots=True)
class LevelView:
    """One running level, drawn for whatever width it is given; a rich renderable.

    Attributes:
        index: number of the level, from 0.
        total: how many there are.
        text: its setting in words.
        setting: as in ``level.json``.
        progress: the engine's Progress.
        schedule: the run's.
        minute: the last minute.
        step: its place among all levels of the run, from 0.
        before: numbers from 1 and progress of levels before it whose last answers are to come, in order.
    """

    index: int
    total: int
    text: str
    setting: Mapping[str, Any]
    progress: Mapping[str, Any]
    schedule: Schedule
    minute: Minute
    step: int = 0
    before: Sequence[tuple[int, Mapping[str, Any]]] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width = options.max_width
        head = Text(f"{numbered(self.index, self.total)}  {self.text}", style="bold", no_wrap=True, overflow="ellipsis")
        column = head.cell_len
        yield from self._bar(
            head, share(self.setting, self.progress), level_time(self.setting, self.progress), column, width
        )
        if (run := self.schedule.at(self.step, self.progress)) is not None:
            yield from self._bar(Text("schedule"), run[0], run[1], column, width)
        if not isinstance(self.progress.get("recent"), Mapping):
            yield from _lines("", facts(self.progress), width)
            yield from _lines("", run_facts(self.progress), width)
        else:
            for label, said in self._rows():
                yield from _lines(label, said, width)
            if (console.height >= TALL) and not options.ascii_only:
                for label, curve in self.minute.rows(width - LABEL - 1):
                    yield Text(f"  {label:<{LABEL - 2}}{curve}", no_wrap=True, overflow="crop", style="cyan")
        if kinds := failed(self.progress):
            yield Text(f"  {kinds}", style="bold red")

    def _bar(self, head: Text, done: float | None, words: str, column: int, width: int) -> RenderResult:
        """A head, its bar and its time in one line where they fit, else the time in a line of its own."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        alone = column + BAR_WIDTH + len(words) + 4 > width
        if alone and head.plain == "schedule":
            words = f"schedule {words}"
        length = min(BAR_WIDTH, width - len(words) - 2) if alone else BAR_WIDTH
        bar = ProgressBar(total=None if done is None else 1.0, completed=done or 0.0, width=length)
        grid = Table.grid(padding=(0, 2), expand=False)
        if not alone:
            grid.add_column(no_wrap=True, min_width=column)
            grid.add_column(width=BAR_WIDTH)
            grid.add_row(head, bar, Text(words, no_wrap=True))
            yield grid
            return
        if head.plain != "schedule":
            yield head
        if length < LEAST_BAR:
            yield Text(words, no_wrap=True, overflow="ellipsis")
            return
        grid.add_column(width=length)
        grid.add_row(bar, Text(words, no_wrap=True))
        yield grid

    def _rows(self) -> list[tuple[str, list[str]]]:
        progress = self.progress
        names = (("offered", "offered_rate"), ("sent", "sent_rate"), ("achieved", "rate"))
        rates = [f"{name} {number(value)}/s" for name, key in names if (value := finite(progress.get(key))) is not None]
        on_the_way = (finite(progress.get("in_flight")) or 0) - (finite(progress.get("waiting")) or 0)
        counts = [f"{count(progress.get('done'))} done", f"{count(on_the_way)} in flight"]
        counts += [f"{count(progress[name])} {name}" for name in ("waiting", "shed") if progress.get(name) is not None]
        if progress.get("state") == "draining":
            counts.append("draining")
        return [
            ("rate", rates),
            ("last 1 s", self._recent()),
            ("so far", so_far_facts(progress)),
            ("requests", counts),
            ("before", [text] if (text := draining(self.before)) else []),
            ("generator", run_facts(progress)),
        ]

    def _recent(self) -> list[str]:
        """Percentiles of the newest level that has any: answers to the one before may be all that came."""
        every = (self.progress, *(progress for _, progress in reversed(self.before)))
        return next((said for each in every if (said := recent_facts(each))), ["nothing ended"])


def _lines(label: str, said: Sequence[str], width: int) -> RenderResult:
    """Facts, as many on a line as fit, further lines below the first fact."""
    from rich.text import Text

    indent = LABEL if label else 2
    line = f"  {label:<{LABEL - 2}}" if label else "  "
    empty = True
    # A fact stays together where it can.
    for fact in (piece for each in said for piece in ([each] if indent + len(each) <= width else each.split())):
        if not empty and len(line) + 2 + len(fact) > width:
            yield Text(line, no_wrap=True, overflow="ellipsis")
            line, empty = " " * indent, True
        line += fact if empty else f"  {fact}"
        empty = False
    if not empty:
        yield Text(line, no_wrap=True, overflow="ellipsis")
