"""A load as a picture: the rate that was asked for over time, stream upon stream, and the arrivals that were drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import StoreError, UsageError
from gpusize.report.figures.style import GRID, INK, SERIES, new_figure, settings
from gpusize.report.plans.load import summary_line
from gpusize.workload.schedule.preview import outline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from gpusize.workload.schedule.planned_level import Level
    from gpusize.workload.schedule.preview import Outline

__all__ = ["check_ending", "plot_load"]

_ENDINGS: Final = (".png", ".svg", ".pdf")
_FINE: Final = 600
"""Intervals of time that a picture can show."""
_LEAST: Final = 12
_IN_EACH: Final = 25
"""Requests in an interval, on average: counts of fewer show chance more than the load."""
_MOST_ROWS: Final = 3
_MOST_LINES: Final = 40


def plot_load(levels: Sequence[Level], rows: int, path: str | Path) -> None:
    """Write a picture of a load.

    Args:
        levels: as ``Load.levels`` gives them.
        rows: rows of the dataset.
        path: ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        UsageError: another ending, or a load whose course depends on the answers, so that there is nothing to draw.
        StoreError: the file cannot be written.
    """
    import numpy as np

    check_ending(path)
    asked, came = _outlines(levels, rows)
    if not asked.planned:
        raise UsageError("the course of this load depends on the answers", str(path), "give it durations to draw it")
    with settings():
        is_open = asked.unit == "/s"
        shown = (
            "the rate that is asked for, and the arrivals of this seed"
            if is_open
            else "requests that are kept in flight"
        )
        figure, (axes,) = new_figure(summary_line(asked), shown)
        edges = np.asarray(asked.edges_s)
        unit, scale = _unit(float(edges[-1]))
        _areas(axes, asked, edges / scale)
        if came.marked_s:
            _marks(axes, came.marked_s, scale)
        elif came.drawn:
            total = np.array(list(came.drawn.values())).sum(axis=0)
            axes.stairs(total, np.asarray(came.edges_s) / scale, color=INK, linewidth=0.7, baseline=None)
            axes.plot([], [], color=INK, linewidth=0.7, label="arrivals")
        for level in asked.levels[1:]:
            if level.at_s is not None and len(asked.levels) <= _MOST_LINES:
                axes.axvline(level.at_s / scale, color=GRID, linewidth=0.8, zorder=0)
        axes.set_xlabel(f"time after the start ({unit})")
        axes.set_ylabel("requests/s" if is_open else "requests in flight")
        axes.set_xlim(0, edges[-1] / scale)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2)
        try:
            figure.savefig(path)
        except (OSError, ValueError) as problem:
            raise StoreError(f"the picture cannot be written: {problem}", str(path), None) from problem


def check_ending(path: str | Path, option: str = "png") -> None:
    """Refuse a file whose ending is of no picture that can be written.

    Args:
        path: the file.
        option: that it was given with.

    Raises:
        UsageError: such an ending, or none.
    """
    ending = Path(path).suffix.lower()
    if ending not in _ENDINGS:
        known = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        what = f'the ending "{ending}" is of no picture that can be drawn' if ending else "its kind cannot be told"
        raise UsageError(what, f"{option}, {path}", f"name it {known}")


def _outlines(levels: Sequence[Level], rows: int) -> tuple[Outline, Outline]:
    """What was asked for, as finely as it can be drawn; and what arrives, in intervals that hold some."""
    came = outline(levels, rows, _LEAST)
    if came.requests is not None:
        few = min(_LEAST, max(1, came.requests // 5))
        came = outline(levels, rows, min(_FINE, max(few, came.requests // _IN_EACH)))
    counted = any(
        stream["arrivals"] == "plan" or stream["count"] is not None
        for level in levels
        for stream in level.plan["load"].get("open", {}).get("streams", ())
    )
    # Of a trace, and of a stream that ends by a count, what arrives is all that is known.
    return (came if counted else outline(levels, rows, _FINE)), came


def _marks(axes: Axes, times_s: Mapping[str, Sequence[float]], scale: float) -> None:
    """Above the picture a mark for each request, stream upon stream: counts of so few would be a comb."""
    import numpy as np

    rows = (
        list(times_s.values()) if len(times_s) <= _MOST_ROWS else [[each for row in times_s.values() for each in row]]
    )
    for number, row in enumerate(rows):
        low = 1.015 + number * 0.034
        colour = INK if len(rows) == 1 else SERIES[number % len(SERIES)]
        places = np.asarray(row) / scale
        above = axes.get_xaxis_transform()
        axes.vlines(places, low, low + 0.027, color=colour, linewidth=1.0, transform=above, clip_on=False)
    axes.plot([], [], color=INK, linestyle="none", marker="|", markersize=9, label="a request")


def _unit(length_s: float) -> tuple[str, float]:
    return next(
        (name, size) for name, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)) if length_s >= 2 * size or size == 1
    )


def _areas(axes: Axes, outline: Outline, edges: NDArray[np.float64]) -> None:
    import numpy as np

    floor = np.zeros(len(edges) - 1)
    for number, (name, values) in enumerate(outline.planned.items()):
        roof = floor + np.asarray(values)
        colour = SERIES[number % len(SERIES)]
        steps = (np.append(floor, floor[-1]), np.append(roof, roof[-1]))
        axes.fill_between(edges, *steps, step="post", color=colour, alpha=0.75, linewidth=0, label=name or "planned")
        floor = roof
