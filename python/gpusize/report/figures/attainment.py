"""The figure of attainment against the levels, and where it no longer suffices by the crossing method or the twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.estimate.isotonic import wilson
from gpusize.estimate.question import Estimate
from gpusize.report.figures import style
from gpusize.report.figures.levels import draw_lost
from gpusize.report.summary.source import SloView
from gpusize.report.summary.sweep import Sweep, is_usable
from gpusize.report.text import TimeUnit, finite, percent, plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["attainment_figure"]

_ROOM: Final = 0.12
"""Of the width of a figure: what a number takes beside the mark that it is of."""


def attainment_figure(
    sweep: Sweep, crossings: Sequence[Estimate] = (), answer: Estimate | None = None
) -> Figure | None:
    """Share of requests within each SLO against the levels, with the required share and the capacity; None without.

    The bars are 95 % intervals: the crossing method's for its SLO, else Wilson's as if requests were independent. The
    capacity is that of ``answer`` for its SLO where it has one, else the crossing method's.
    """
    judged = list(sweep.attainments())
    if not judged:
        return None
    found = {each.slo: each for each in crossings}
    answers = (*crossings, *([answer] if answer else []))
    capacities = {each.slo or "": at for each in answers if (at := each.capacity_concurrency)}
    figure, (axes,) = style.new_figure(_attainment_title(sweep, judged, capacities), sweep.about)
    style.level_axis(axes, sweep.levels, sweep.x_label)
    axes.set_ylabel("requests within the SLO (%)")
    axes.set_ylim(0, 103)
    axes.set_yticks(range(0, 101, 20))
    ends = []
    for order, (k, slo) in enumerate(judged):
        color = style.SERIES[order % len(style.SERIES)]
        bars = _bars(sweep, k, found.get(slo.text))
        if not bars:
            continue
        capacity = capacities.get(slo.text)
        through = None if capacity is None or slo.required is None else (capacity, slo.required)
        _attained(axes, bars, color, through)
        ends.append((bars[-1].share * 100, percent(bars[-1].share), color))
        needed = f" ({plain_number(slo.required * 100, 6)}% needed)" if slo.required is not None else ""
        axes.plot([], [], color=color, marker="s", label=f"{slo.text}{needed}")
        if slo.required is not None:
            limit = style.LIMIT if len(judged) == 1 else color
            axes.axhline(slo.required * 100, color=limit, linestyle=(0, (5, 3)), linewidth=1.4, zorder=2)
            if capacity is not None:
                _crossing(axes, capacity, slo.required * 100)
    draw_lost(axes, sweep, f"slo_{judged[0][0]}_attainment", TimeUnit("%", 100.0))
    if ends:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 0.985),
            ncols=2,
            handlelength=1.8,
            fontsize=9 if len(ends) < 3 else 7.5,
            labelspacing=0.25,
            columnspacing=1.4,
        )
    style.label_ends(figure, axes, ends)
    return figure


class _Bar(NamedTuple):
    """One level's attainment: as measured, on the falling curve, and its interval."""

    x: float
    share: float
    falling: float
    low: float
    high: float


def _bars(sweep: Sweep, k: int, crossing: Estimate | None) -> list[_Bar]:
    """One per visit from the summary, or one per pooled level from the crossing method, which has the falling curve."""
    made = []
    for each in crossing.details.get("points") or () if crossing is not None else ():
        x, share, falling, low, high = (
            finite(each.get(name)) for name in ("concurrency", "attainment", "monotone", "low", "high")
        )
        if None not in (x, share, falling, low, high) and not each.get("interrupted"):
            made.append(_Bar(x or 0.0, share or 0.0, falling or 0.0, low or 0.0, high or 0.0))
    if made:
        return sorted(made)
    means = dict(sweep.line(f"slo_{k}_attainment"))
    for row in sweep.rows:
        x, share, n = sweep.x(row), finite(row.get(f"slo_{k}_attainment")), finite(row.get("n"))
        if x in means and share is not None and is_usable(row):
            low, high = wilson(share, n) if n else (share, share)
            made.append(_Bar(x, share, means[x], low, high))
    return sorted(made)


def _attained(axes: Axes, bars: Sequence[_Bar], color: str, through: tuple[float, float] | None = None) -> None:
    """Points with their intervals, joined by lines that are straight in concurrency whatever the axis.

    Between two levels the curve may fall anywhere: it goes through the capacity that the answer names, where the levels
    around that allow it.
    """
    ends = [(bar.x, bar.falling * 100) for bar in bars]
    if through is not None:
        ends = _with_capacity(ends, (through[0], through[1] * 100))
    xs, ys = [ends[0][0]], [ends[0][1]]
    for (x0, y0), (x1, y1) in pairwise(ends):
        for step in range(1, 25):
            xs.append(x0 + (x1 - x0) * step / 24)
            ys.append(y0 + (y1 - y0) * step / 24)
    axes.plot(xs, ys, color=color, zorder=3)
    for bar in bars:
        axes.plot([bar.x, bar.x], [bar.low * 100, bar.high * 100], color=color, linewidth=1.3, alpha=0.55, zorder=2)
        style.dots(axes, [(bar.x, bar.share * 100)], color, "s")


def _with_capacity(ends: list[tuple[float, float]], capacity: tuple[float, float]) -> list[tuple[float, float]]:
    """The corners of a falling curve with one more between its neighbours; as they are where it would not fall."""
    before = [each for each in ends if each[0] < capacity[0]]
    after = ends[len(before) :]
    if not before or not after or not before[-1][1] >= capacity[1] >= after[0][1]:
        return ends
    return [*before, capacity, *after]


def _crossing(axes: Axes, capacity: float, needed: float) -> None:
    low, high = axes.get_xlim()
    if not low <= capacity <= high:
        return
    style.mark_crossing(axes, capacity, needed)
    # To its left the curve lies above; above it are the limit and the edge of the figure.
    place = axes.transAxes.inverted().transform(axes.transData.transform((capacity, needed)))
    offset, side = ((-8, -15), "right") if place[0] > _ROOM else ((9, 6), "left")
    style.note(axes, plain_number(capacity), (capacity, needed), offset, size=10, bold=True, ha=side)


def _attainment_title(sweep: Sweep, judged: Sequence[tuple[int, SloView]], capacities: Mapping[str, float]) -> str:
    """The finding: how far the SLOs are kept."""
    at = list(capacities.values())
    if at and len(judged) == 1:
        return f"Attainment crosses what is needed at {sweep.at(at[0])}"
    if len(judged) > 1:
        worst = f"; one is missed beyond {sweep.at(min(at))}" if at else ""
        return f"Attainment of {len(judged)} SLOs{worst}"
    k, slo = judged[0]
    line = sweep.line(f"slo_{k}_attainment")
    if not line or slo.required is None:
        return "Attainment of the SLO"
    if all(y >= slo.required for _, y in line):
        return f"Every tested level meets the SLO ({percent(min(y for _, y in line))} at worst)"
    if all(y < slo.required for _, y in line):
        return f"No tested level meets the SLO ({percent(max(y for _, y in line))} at best)"
    missed = min(x for x, y in line if y < slo.required)
    met = [x for x, y in line if y >= slo.required and x < missed]
    if not met:
        return f"The SLO is missed from {sweep.at(missed)} on, and met at some level above"
    return f"The SLO is met up to {sweep.at(max(met))}, missed at {plain_number(missed, 6)}"
