"""A load as a picture: the rate that was asked for over time, stream upon stream, and the arrivals that were drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.errors import StoreError, UsageError
from gpusize.report.style import GRID, INK, SERIES, new_figure, settings

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from gpusize.plan.outline import Outline

__all__ = ["plot_load"]

_MOST_MARKS: Final = 40


def plot_load(outline: Outline, path: str | Path, drawn: Outline | None = None) -> None:
    """Write a picture of a load.

    Args:
        outline: with some hundred intervals.
        path: ``.png``, ``.svg`` or ``.pdf``.
        drawn: the same load with fewer intervals, whose arrivals are shown.

    Raises:
        UsageError: a load whose course depends on the answers, so that there is nothing to draw.
        StoreError: the file cannot be written.
    """
    if not outline.planned:
        raise UsageError("the course of this load depends on the answers", str(path), "give it durations to draw it")
    import numpy as np

    from gpusize.report.load_text import summary_line

    with settings():
        figure, (axes,) = new_figure(
            summary_line(outline), "the rate that was asked for, and the arrivals of this seed"
        )
        edges = np.asarray(outline.edges_s)
        unit, scale = _unit(float(edges[-1]))
        _areas(axes, outline, edges / scale)
        counted = drawn or outline
        if counted.drawn:
            total = np.array(list(counted.drawn.values())).sum(axis=0)
            axes.stairs(total, np.asarray(counted.edges_s) / scale, color=INK, linewidth=0.7, baseline=None)
            axes.plot([], [], color=INK, linewidth=0.7, label="arrivals")
        for level in outline.levels[1:]:
            if level.at_s is not None and len(outline.levels) <= _MOST_MARKS:
                axes.axvline(level.at_s / scale, color=GRID, linewidth=0.8, zorder=0)
        axes.set_xlabel(f"time after the start ({unit})")
        axes.set_ylabel("requests/s" if outline.unit == "/s" else "requests in flight")
        axes.set_xlim(0, edges[-1] / scale)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2)
        try:
            figure.savefig(path)
        except (OSError, ValueError) as problem:
            raise StoreError(f"the picture cannot be written: {problem}", str(path), None) from problem


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
