"""The distribution of runtimes of each side at one load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.ecdf import Ecdf, ecdf
from gpusize.analysis.compare.matching import Place
from gpusize.analysis.metrics import METRICS
from gpusize.report.figures import style
from gpusize.report.text import TimeUnit, clean, percent, time_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ecdf_figure"]

_LOG_FROM: Final = 20.0
"""Longest over shortest value, without the outermost thousandths, from which the axis is logarithmic."""
_TITLED: Final = 3
_MARKED: Final = (0.25, 0.5, 0.75)


def ecdf_figure(comparison: Comparison, place: Place, metric: str = "runtime") -> Figure | None:
    """Share of requests that were done within a time, a line per side; lines of requests that failed end below 1.

    Args:
        comparison: what was compared.
        place: the load.
        metric: of whole requests, as ``runtime`` or ``ttft``.
    """
    sides = list(comparison.sides)
    found = [one for k, side in enumerate(sides) if (one := ecdf(place, k, side, metric)) is not None]
    if not found:
        return None
    unit = time_unit([_at(each, 0.5) for each in found])
    figure, (axes,) = style.new_figure(_title(found, place), _about(found))
    lows = [_at(each, 0.001) for each in found]
    highs = [_at(each, 0.999) for each in found]
    log = min(lows) > 0 and max(highs) / min(lows) >= _LOG_FROM
    if log:
        from gpusize.report.figures.across import plain_ticks

        axes.set_xscale("log")
        plain_ticks(axes, "x")
    ends = []
    for each in found:
        k = sides.index(each.side)
        color = style.GROUPS[k % len(style.GROUPS)]
        axes.step(each.values * unit.per_s, each.shares, color=color, where="post", zorder=3, linewidth=1.8)
        reached = float(each.shares[-1])
        # A marker at each quarter of all requests tells the lines apart where colours do not.
        marks = [(_at(each, share / reached) * unit.per_s, share) for share in _MARKED if share <= reached]
        style.dots(axes, marks, color, style.MARKERS[k % len(style.MARKERS)])
        if each.failed:
            axes.plot([each.values[-1] * unit.per_s], [reached], color=color, marker="_", markersize=10, zorder=4)
        ends.append((reached, clean(each.side, 14), color))
    high = max(highs) * unit.per_s
    axes.set_xlim(min(lows) * unit.per_s / 1.1 if log else 0.0, high * (1.15 if log else 1.05))
    axes.set_ylim(0, 1.02)
    axes.axhline(1.0, color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.set_ylabel("share of all requests done")
    axes.set_xlabel(f"{metric} ({unit.name if METRICS[metric].unit == 's' else METRICS[metric].unit})")
    style.label_ends(figure, axes, ends)
    return figure


def _at(each: Ecdf, share: float) -> float:
    """The value that a share of the requests that ended ok lies below."""
    import numpy as np

    return float(np.interp(share * each.shares[-1], each.shares, each.values))


def _title(found: list[Ecdf], place: Place) -> str:
    unit = time_unit([_at(each, 0.5) for each in found])
    middles = ", ".join(f"{clean(each.side, 16)} {_half(each, unit)}" for each in found[:_TITLED])
    more = ", ..." if len(found) > _TITLED else ""
    return f"At {clean(place.name, 24)} half are done in: {middles}{more}"


def _half(each: Ecdf, unit: TimeUnit) -> str:
    """When half of all requests were done, those that failed included."""
    reached = float(each.shares[-1])
    return f"{unit.show(_at(each, 0.5 / reached))} {unit.name}" if reached >= 0.5 else "never"


def _about(found: list[Ecdf]) -> str:
    counts = [each.n for each in found]
    between = f"{min(counts):,} to {max(counts):,}" if min(counts) < max(counts) else f"{counts[0]:,}"
    runs = max(each.runs for each in found)
    taken = f" of up to {runs} runs" if runs > 1 else ""
    failed = [each for each in found if each.failed]
    told = ", ".join(f"{percent(each.failed / each.n)} of {clean(each.side, 14)}" for each in failed[:_TITLED])
    lost = f" · failed, so never done: {told}" if failed else ""
    return f"n {between} requests a side{taken}{lost}"
