"""The most that each side was seen to answer, as a CPU beside GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.report.figures import style
from gpusize.report.text import clean, number, plain_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["most_figure"]

_LOG_FROM: Final = 8.0
_EDGE: Final = 0.25


def most_figure(comparison: Comparison) -> Figure | None:
    """A point for each side at the highest rate that was measured, with its interval and its ratio to the first.

    The axis is logarithmic where one has eight times as much as another. None where fewer than two sides have a rate.
    """
    found = comparison.most
    if len(found) < 2:
        return None
    top = max(found, key=lambda each: abs(math.log(each.ratio)) if each.ratio > 0 else 0.0)
    times = _ratio(top.ratio, top.ratio_low, top.ratio_high)
    title = f"{clean(top.side, 24)} answers {times} as much as {clean(found[0].side, 24)}"
    runs = [each.runs for each in found]
    between = f"{min(runs)} to {max(runs)} runs" if min(runs) < max(runs) else f"{runs[0]} run{'s'[: runs[0] != 1]}"
    bars = " · bars: 95 % intervals over runs" if any(math.isfinite(each.low) for each in found) else ""
    height = 1.9 + 0.55 * len(found)
    about = f"n {between} a side · each at its own best load of those measured{bars}"
    figure, (axes,) = style.new_figure(title, about, height_in=height)
    figure.subplots_adjust(left=0.2)
    rates = [each.rate for each in found]
    if max(rates) / min(rates) >= _LOG_FROM:
        from gpusize.report.figures.across import plain_ticks

        axes.set_xscale("log")
        plain_ticks(axes, "x")
        axes.set_xlim(min(rates) / 2, max(rates) * 3)
    else:
        axes.set_xlim(0, max(rates) * 1.35)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_yticks(range(len(found)), [clean(each.side, 18) for each in found])
    axes.set_xlabel("most requests/s")
    for k, each in enumerate(found):
        color = style.GROUPS[k % len(style.GROUPS)]
        style.dots(axes, [(each.rate, float(k))], color, style.MARKERS[k % len(style.MARKERS)], markersize=8)
        if math.isfinite(each.low):
            axes.plot([each.low, each.high], [k, k], color=color, linewidth=1.5, marker="|", zorder=3)
        more = "" if k == 0 else f", {_ratio(each.ratio, each.ratio_low, each.ratio_high)} the first"
        told = f"{plain_number(each.rate)} at {clean(each.load, 20)}{more}"
        # Text beside the edge would leave the axes.
        side = (
            "left" if (each.rate / max(rates)) < _EDGE else "right" if each.rate / max(rates) > 1 - _EDGE else "center"
        )
        style.note(axes, told, (each.rate, float(k)), (0, -9), size=8.5, va="top", ha=side)
    return figure


def _ratio(ratio: float, low: float, high: float) -> str:
    between = f" [{number(low)}, {number(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{number(ratio)}{between} times"
