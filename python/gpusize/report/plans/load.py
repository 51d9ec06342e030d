"""A load drawn with characters, for terminals: the rate over time, its levels, and how many requests it will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.base.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.workload.schedule.preview import LevelOutline, Outline

__all__ = ["chart_columns", "load_lines", "summary_line"]

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_SHADES: Final = "█▓▒░▞▚▦▤"
_HEIGHT: Final = 10
_MARGIN: Final = 10
_MOST_LEVELS: Final = 40
_STEPS_S: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


def load_lines(outline: Outline, width: int = 100) -> list[str]:
    """Lines for people: chart, table of levels, totals.

    Args:
        outline: of a load, with as many intervals as `chart_columns` says.
        width: of the terminal, 60 to 120.
    """
    lines = _chart(outline, width) if outline.planned else []
    lines += _table(outline.levels)
    return [*lines, "", summary_line(outline)]


def chart_columns(width: int) -> int:
    """Columns of the chart in a terminal of this width."""
    return min(max(width, 60), 120) - _MARGIN - 1


def _chart(outline: Outline, width: int) -> list[str]:
    columns = chart_columns(width)
    series = list(outline.planned.values())
    tops = [sum(each[column] for each in series) for column in range(len(series[0]))]
    top = _round_up(max(tops))
    if top == 0:
        return []
    rows = []
    for row in range(_HEIGHT, 0, -1):
        label = _number(top * row / _HEIGHT) if row in (_HEIGHT, _HEIGHT // 2) else ""
        cells = "".join(_cell(series, column, row, top) for column in range(min(columns, len(tops))))
        rows.append(f"{label:>{_MARGIN - 2}} {'┤' if label else '│'}{cells}".rstrip())
    named = [name for name in outline.planned if name]
    legend = (
        "   ".join(f"{_SHADES[n % len(_SHADES)]} {name}" for n, name in enumerate(named)) if len(series) > 1 else ""
    )
    head = f"{'requests/s' if outline.unit == '/s' else outline.unit:>{_MARGIN}}   {legend}".rstrip()
    return [head, *rows, *_axis(outline, min(columns, len(tops))), ""]


def _cell(series: Sequence[Sequence[float]], column: int, row: int, top: float) -> str:
    low, high = top * (row - 1) / _HEIGHT, top * row / _HEIGHT
    if len(series) == 1:
        part = (series[0][column] - low) / (high - low)
        eighths = min(max(round(part * 8), 0), 8)
        # What is there at all has to be seen.
        return _EIGHTHS[max(eighths, 1) if row == 1 and series[0][column] > 0 else eighths]
    middle, reached = (low + high) / 2, 0.0
    for number, each in enumerate(series):
        reached += each[column]
        # Sums of equal rates differ in their last digit: a tie goes to the stream below, in every column.
        if middle <= reached + 1e-9 * top and each[column]:
            return _SHADES[number % len(_SHADES)]
    return " "


def _axis(outline: Outline, columns: int) -> list[str]:
    total = outline.total_s or 1.0
    marks = {
        min(round(each.at_s / total * columns), columns - 1)
        for each in outline.levels
        if each.at_s is not None and each.number
    }
    line = "".join("┬" if column in marks else "─" for column in range(columns))
    texts = [" "] * (columns + 12)
    step, free = _step(total), 0
    for number in range(int(total / step * (1 + 1e-9)) + 1):
        text, at = _time(step * number), round(columns * step * number / total)
        begin = max(at - len(text) // 2, 0)
        if begin >= free:
            texts[begin : begin + len(text)] = text
            free = begin + len(text) + 1
    return [f"{'0':>{_MARGIN - 2}} └{line}", " " * _MARGIN + "".join(texts).rstrip()]


def _table(levels: Sequence[LevelOutline]) -> list[str]:
    head = ("level", "start", "duration", "load", "process", "requests")
    rows = [
        (
            str(each.number),
            "" if each.at_s is None else _time(each.at_s),
            "until done" if each.duration_s is None else _time(each.duration_s),
            each.load,
            each.process,
            each.note if each.requests is None else f"{each.requests:,}{f' {each.note}' if each.note else ''}",
        )
        for each in levels[:_MOST_LEVELS]
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    more = [f"and {len(levels) - _MOST_LEVELS} more"] if len(levels) > _MOST_LEVELS else []
    return [*lines, *more]


def summary_line(outline: Outline) -> str:
    """The load in one line: how many requests, over what time, and the most within one second."""
    length = "" if outline.total_s is None else f" in {_time(outline.total_s)}"
    if outline.about is not None:
        return f"about {outline.about:,} requests{length}, by the rate: too many to count"
    if outline.requests is None:
        return f"requests: as many as the target answers{length}"
    sessions = any(each.note == "sessions begin" for each in outline.levels)
    what = "conversations, each with all its turns" if sessions else "requests"
    peak = "" if outline.peak is None else f", at most {outline.peak:,} within one second"
    return f"{outline.requests:,} {what}{length}{peak}"


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 3) if seconds < 60 else round(seconds, 1) if seconds % 1 else round(seconds))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _step(total_s: float) -> float:
    """Time between the marks of the axis: a usual one, so that there are five at most beside the first."""
    return next((step for step in _STEPS_S if total_s <= 5 * step), total_s / 4)


def _round_up(value: float) -> float:
    """The next number that is easy to read at the side of a chart."""
    if value <= 0:
        return 0.0
    value *= 1 - 1e-9  # sums of rates differ in their last digit
    scale = 1.0
    while scale < value:
        scale *= 10
    while scale / 10 >= value:
        scale /= 10
    steps = (0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
    return next(scale * step for step in steps if scale * step >= value)
