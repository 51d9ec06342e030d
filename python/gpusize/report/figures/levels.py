"""Figures of what was measured: runtime and throughput against the levels of the sweep."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.metrics import METRICS
from gpusize.report.figures import style
from gpusize.report.summary.columns import comes_in_parts
from gpusize.report.summary.source import SloView
from gpusize.report.summary.sweep import Points, Sweep, is_usable
from gpusize.report.text import TimeUnit, duration, finite, number, plain_number, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_lost", "draw_slo", "latency_figure", "throughput_figure"]

_MARKS = {"p50": "o", "p95": "s", "p99": "^"}
_SURE: Final = 2.0
"""Standard errors beyond which two rates differ by more than chance."""
_ROOM: Final = 0.5
"""Share of the axes that the name of the line in proportion takes, on paper and in a page of its usual width."""


def latency_figure(sweep: Sweep, metric: str = "runtime") -> Figure | None:
    """p50, p95 and p99 of a metric of time against concurrency or rate; None without any.

    A metric of parts of answers has none where no answer came in parts.
    """
    names = [name for name in _MARKS if sweep.line(f"{metric}_{name}_s")]
    if not names or (METRICS[metric].streamed and not comes_in_parts(sweep.rows)):
        return None
    called = METRICS[metric].label
    every = [y for name in names for _, y in sweep.line(f"{metric}_{name}_s")]
    unit = time_unit([max(every)])
    slo = next((s for s in sweep.slos if s.metric == metric and s.bound_s), None)
    figure, (axes,) = style.new_figure(_latency_title(sweep, slo, metric, called), f"{sweep.about}")
    style.level_axis(axes, sweep.levels, sweep.x_label)
    axes.set_ylabel(f"{called} ({unit.name})")
    ends = []
    for name in names:
        line = sweep.line(f"{metric}_{name}_s")
        _series(axes, line, sweep.points(f"{metric}_{name}_s"), unit, style.PERCENTILES[name], _MARKS[name])
        ends.append((line[-1][1] * unit.per_s, name, style.PERCENTILES[name]))
    bound = slo.bound_s if slo is not None and slo.bound_s else None
    shown = [*every, *([bound] if bound is not None and bound < 4 * max(every) else [])]
    if max(every) / max(min(every), 1e-12) > 60:
        axes.set_yscale("log")
        axes.set_ylim(min(shown) * unit.per_s / 1.5, max(shown) * unit.per_s * 1.5)
    else:
        axes.set_ylim(0, max(shown) * unit.per_s * 1.1)
    _plain_ticks(axes)
    draw_lost(axes, sweep, f"{metric}_p95_s", unit)
    _draw_limited(axes, sweep, f"{metric}_p95_s", unit)
    if slo is not None:
        draw_slo(axes, slo, unit)
    style.label_ends(figure, axes, ends)
    return figure


def _latency_title(sweep: Sweep, slo: SloView | None, metric: str, called: str) -> str:
    """The finding: where the SLO's percentile goes over its bound."""
    default = f"{called[0].upper()}{called[1:]} against {'rate' if sweep.open_loop else 'concurrency'}"
    if slo is None or slo.bound_s is None or slo.percentile is None:
        return default
    line = sweep.line(f"{metric}_p{slo.percentile:g}_s")
    name, bound = f"p{slo.percentile:g} {called}", duration(slo.bound_s)
    within = [x for x, y in line if y <= slo.bound_s]
    over = [x for x, y in line if y > slo.bound_s]
    if not line:
        return default
    if not over:
        return f"{name} stays within {bound} up to {sweep.at(line[-1][0])}"
    if not within or min(over) < min(within):
        return f"{name} is over {bound} from {sweep.at(min(over))}"
    last = max(x for x in within if x < min(over))
    return f"{name} is within {bound} up to {sweep.at(last)}, over it from {plain_number(min(over), 6)}"


def _series(axes: Axes, line: Points, points: Points, unit: TimeUnit, color: str, marker: str) -> None:
    """A line through the means of a level's visits, and every visit as a point."""
    axes.plot([x for x, _ in line], [y * unit.per_s for _, y in line], color=color, zorder=3)
    style.dots(axes, [(x, y * unit.per_s) for x, y in points], color, marker)


def draw_lost(axes: Axes, sweep: Sweep, column: str, unit: TimeUnit) -> None:
    """Levels that were interrupted: hollow, grey, and named, so that nobody takes them for results.

    The y axis must have its limits: what lies above them is drawn at the edge, with an arrow and its value.
    """
    lost = sweep.points(column, usable=False)
    if not lost:
        return
    low, top = axes.get_ylim()
    shown = [(x, min(max(y * unit.per_s, low), top)) for x, y in lost]
    style.dots(axes, shown, "none", markeredgecolor=style.MUTED, markeredgewidth=1.4, markersize=8, zorder=5)
    x, y = shown[-1]
    value = f" ↑ {unit.show(lost[-1][1])} {unit.name}".rstrip() if lost[-1][1] * unit.per_s > top else ""
    below = y > (low + top) / 2
    style.note(
        axes,
        f"interrupted, not counted{value}",
        (x, y),
        (0, -9 if below else 9),
        ha="right" if x > sweep.levels[len(sweep.levels) // 2] else "left",
        va="top" if below else "bottom",
        color=style.MUTED,
    )


def _draw_limited(axes: Axes, sweep: Sweep, column: str, unit: TimeUnit) -> None:
    """Levels at which the generator was the limit: ringed and named, so that nobody takes them for the target's."""
    limited = replace(sweep, rows=tuple(row for row in sweep.rows if "generator-limited" in (row.get("flags") or ())))
    points = limited.points(column)
    if not points:
        return
    rings = [(x, y * unit.per_s) for x, y in points]
    style.dots(axes, rings, "none", markeredgecolor=style.LIMIT, markeredgewidth=1.4, markersize=13, zorder=5)
    x = rings[-1][0]
    beside = "right" if x == sweep.levels[-1] else "left" if x == sweep.levels[0] else "center"
    style.note(axes, "generator-limited", rings[-1], (0, -19), ha=beside, color=style.LIMIT)


def draw_slo(axes: Axes, slo: SloView, unit: TimeUnit, *, right: bool = False) -> None:
    """The SLO's bound as a dashed line with its text on one end; a note at the top when it lies above the axis."""
    if slo.bound_s is None:
        return
    level = slo.bound_s * unit.per_s
    _, top = axes.get_ylim()
    if level > top:
        axes.text(
            0.01,
            0.985,
            f"SLO {slo.text}: above this figure",
            transform=axes.transAxes,
            va="top",
            fontsize=9,
            color=style.LIMIT,
        )
        return
    axes.axhline(level, color=style.LIMIT, linestyle=(0, (5, 3)), linewidth=1.4, zorder=2)
    x, y_offset, beside = (0.99, -12, "right") if right else (0.01, 4, "left")
    in_axes = ("axes fraction", "data")
    style.note(axes, f"SLO {slo.text}", (x, level), (0, y_offset), ha=beside, color=style.LIMIT, xycoords=in_axes)


def _plain_ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def throughput_figure(sweep: Sweep) -> Figure | None:
    """Completed requests/s, and tokens/s where there are tokens, against the levels; None without any rate."""
    panels = [
        (column, label, color)
        for column, label, color in (
            ("achieved_rate", "requests/s", style.MID),
            ("tokens_out_per_s", "output tokens/s", style.GOOD),
        )
        if any(y > 0 for _, y in sweep.line(column))
    ]
    if not panels:
        return None
    figure, every = style.new_figure(_throughput_title(sweep, panels[0][0]), sweep.about, len(panels))
    for axes, (column, label, color) in zip(every, panels, strict=True):
        style.level_axis(axes, sweep.levels, sweep.x_label if axes is every[-1] else "")
        line = sweep.line(column)
        _series(axes, line, sweep.points(column), TimeUnit("", 1.0), color, "o")
        axes.set_ylim(0, max(y for _, y in line) * 1.15)
        draw_lost(axes, sweep, column, TimeUnit("", 1.0))
        _draw_limited(axes, sweep, column, TimeUnit("", 1.0))
        axes.set_ylabel(label)
        _plain_ticks(axes)
        _ideal(axes, sweep, line, column)
        style.label_ends(figure, axes, [(line[-1][1], number(line[-1][1]), color)])
    return figure


def _ideal(axes: Axes, sweep: Sweep, line: Points, column: str) -> None:
    """What no queueing would give: the first level's throughput times the load, or the offered rate itself."""
    x0, y0 = line[0]
    if len(line) < 2 or not x0 or max(y for _, y in line) < 1.3 * y0:
        return  # nothing rose, so there is nothing to compare
    # A conversation brings several requests.
    offered = sweep.open_loop and not sweep.by_session and column == "achieved_rate"
    slope = 1.0 if offered else y0 / x0
    text = "all that is offered" if offered else "in proportion to the first level"
    _, top = axes.get_ylim()
    last = min(sweep.levels[-1], top / slope)
    steps = [x0 + (last - x0) * k / 60 for k in range(61)]
    axes.plot(steps, [slope * x for x in steps], color=style.MUTED, linestyle=(0, (1, 2)), linewidth=1.3, zorder=2)
    # Above and left of the line is always free: no level completes more than in proportion, but for noise. Where that
    # is too narrow the name stands right of its upper end, above what any level completes.
    (across, _) = (axes.transScale + axes.transLimits).transform((steps[45], slope * steps[45]))
    if across >= _ROOM:
        style.note(axes, text, (steps[45], slope * steps[45]), (-8, 3), ha="right", va="bottom", color=style.MUTED)
    else:
        style.note(axes, text, (last, slope * last), (8, 0), ha="left", va="top", color=style.MUTED)


def _throughput_title(sweep: Sweep, column: str) -> str:
    """The finding: how much the last step of load still brought."""
    line = sweep.line(column)
    what = "requests/s" if column == "achieved_rate" else "tokens/s"
    if len(line) < 2:
        return f"Throughput: {number(line[-1][1])} {what}"
    best_x, best = sweep.best(column) or line[-1]
    # 95 % of the best is where more load stops paying; a plateau's own noise decides the exact maximum.
    knee = next(x for x, y in line if y >= 0.95 * best)
    if knee < line[-1][0] and sweep.open_loop:
        return f"Throughput tops out at {plain_number(best)} {what}, from {plain_number(knee)} {sweep.x_unit} offered"
    if knee < line[-1][0]:
        return f"Throughput levels off at {plain_number(best)} {what} from {sweep.at(knee)}"
    if not _rises(sweep, column):
        return f"Throughput: {plain_number(best)} {what} at {sweep.at(best_x)}"
    return f"Throughput still rises at {sweep.at(best_x)}: {plain_number(best)} {what}"


def _rises(sweep: Sweep, column: str) -> bool:
    """Whether the largest load completed more than any before, by more than chance makes of so many requests."""
    line = sweep.line(column)
    (last_x, last), (x, before) = line[-1], max(line[:-1], key=lambda point: point[1])
    return last - before > _SURE * math.hypot(_error(sweep, column, last_x), _error(sweep, column, x))


def _error(sweep: Sweep, column: str, x: float) -> float:
    """Standard error of a load's mean rate over its repeats; counts vary about as Poisson's do, 0 where none are known.

    A closed loop's vary less, so that nothing is called a rise too soon.
    """
    rows = [row for row in sweep.rows if sweep.x(row) == x and is_usable(row) and not row.get("ramp")]
    known = [(rate, finite(row.get("n")) or 0.0) for row in rows if (rate := finite(row.get(column))) is not None]
    return math.sqrt(sum(rate**2 / n for rate, n in known if n)) / max(1, len(known))
