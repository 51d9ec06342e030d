"""The figure of the slope method: a straight line through one percentile per level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusize.estimate.calculator_line import Fit
from gpusize.estimate.question import Estimate, gpus_text
from gpusize.report.figures import style
from gpusize.report.figures.levels import draw_lost, draw_slo
from gpusize.report.summary.sweep import Sweep
from gpusize.report.summary.words import line_of, line_text
from gpusize.report.text import TimeUnit, finite, plain_number, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fit_figure"]


def fit_figure(sweep: Sweep, estimate: Estimate) -> Figure | None:
    """The straight line of the slope method through the percentile it was fitted to; None without such points."""
    capacity, fit = estimate.capacity_concurrency, line_of(estimate, "fit")
    slo = sweep.slo(estimate.slo or "")
    points = _fitted(estimate)
    if len(points) < 2 or sweep.open_loop:
        return None
    what = f"p{slo.percentile:g} {slo.metric}" if slo.percentile is not None else f"{slo.kind} {slo.metric}"
    highest = max(y for _, y in points)
    bound = slo.bound_s if slo.bound_s is not None and slo.bound_s < 3 * highest else None
    unit = time_unit([max(highest, bound or 0.0)])
    title = _fit_title(estimate) if fit else "No straight line fits these levels"
    figure, (axes,) = style.new_figure(title, sweep.about)
    tested = [x for x, _ in points]
    high = _x_end(max(tested[-1], sweep.levels[-1]), capacity)
    axes.set_xlim(0, high)
    axes.set_xlabel(sweep.x_label)
    axes.set_ylabel(f"{what} ({unit.name})")
    axes.set_ylim(0, max(highest, bound or 0.0) * unit.per_s * 1.12)
    _shade_untested(axes, tested, high)
    line = fit or line_of(estimate, "rejected_fit")
    _points(axes, points, set(line.outliers_removed) if line else set(), unit)
    draw_lost(axes, sweep, f"{slo.metric}_p{slo.percentile or 0:g}_s", unit)
    if line is not None:
        _trend(axes, line, tested, high, unit, rejected=fit is None)
    draw_slo(axes, slo, unit, right=capacity is None or capacity < high / 2)
    if capacity is not None and bound is not None:
        _capacity(axes, capacity, bound * unit.per_s, high)
    # Above the axes, where no data can be.
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=3, handlelength=1.8, columnspacing=1.6)
    return figure


def _fitted(estimate: Estimate) -> list[tuple[float, float]]:
    """(concurrency, value in s) of the levels that the line was laid through, outliers included."""
    found = (
        (finite(each.get("concurrency")), finite(each.get("value_s"))) for each in estimate.details.get("points") or ()
    )
    return sorted((x, y) for x, y in found if x is not None and y is not None)


def _fit_title(estimate: Estimate) -> str:
    if estimate.capacity_concurrency is None:
        return "The line has no capacity at this SLO"
    where = ", outside the tested range" if estimate.outside_tested_range else ""
    gpus = f" on {gpus_text(estimate.tested_gpus)}" if estimate.tested_gpus else ""
    return f"By the straight line: {plain_number(estimate.capacity_concurrency)} in flight{gpus}{where}"


def _x_end(last: float, capacity: float | None) -> float:
    """The right end of the axis: past the last level, and past the capacity when that is within reach."""
    reach = capacity if capacity is not None and capacity <= 2.5 * last else 0.0
    return max(last, reach) * 1.08


def _shade_untested(axes: Axes, levels: Sequence[float], high: float) -> None:
    """Grey where nothing was measured: whatever the line says there is a guess."""
    for start, end in ((0.0, levels[0]), (levels[-1], high)):
        if end - start > 0.012 * high:
            axes.axvspan(start, end, facecolor=style.SHADE, edgecolor="none", zorder=0)
    if high - levels[-1] > 0.1 * high:
        axes.text(
            (levels[-1] + high) / 2,
            0.03,
            "not measured",
            transform=axes.get_xaxis_transform(),
            ha="center",
            fontsize=9,
            color=style.MUTED,
        )


def _points(axes: Axes, points: Sequence[tuple[float, float]], outliers: set[float], unit: TimeUnit) -> None:
    kept = [(x, y * unit.per_s) for x, y in points if x not in outliers]
    dropped = [(x, y * unit.per_s) for x, y in points if x in outliers]
    style.dots(axes, kept, style.MID, "s", markersize=7, label="measured level")
    if dropped:
        look: dict[str, Any] = {"markeredgecolor": style.LIMIT, "markeredgewidth": 2.2, "markersize": 9, "zorder": 5}
        style.dots(axes, dropped, style.LIMIT, "x", **look, label="removed as an outlier")
    for x, y in dropped:
        style.note(axes, plain_number(x), (x, y), (0, 9), ha="center", color=style.LIMIT)


def _trend(axes: Axes, fit: Fit, levels: Sequence[float], high: float, unit: TimeUnit, *, rejected: bool) -> None:
    """The fitted line: solid where levels were tested, dashed where it is carried on; grey when it was rejected."""

    def at(x: float) -> float:
        return (fit.intercept + fit.slope * x) * unit.per_s

    color = style.MUTED if rejected else style.HIGH
    label = f"rejected: {line_text(fit)}" if rejected else line_text(fit)
    inside = (levels[0], levels[-1])
    axes.plot(inside, [at(x) for x in inside], color=color, linewidth=1.8, zorder=3, label=label)
    for ends in ((0.0, levels[0]), (levels[-1], high)):
        axes.plot(ends, [at(x) for x in ends], color=color, linewidth=1.4, linestyle=(0, (3, 3)), zorder=3)


def _capacity(axes: Axes, capacity: float, bound: float, high: float) -> None:
    """C*, where the line meets the SLO, with a drop line to the axis; an arrow when it is off the figure."""
    if capacity > high:
        style.note(axes, f"C* = {plain_number(capacity)}  →", (high, bound), (-4, -14), ha="right", size=10, bold=True)
        return
    style.mark_crossing(axes, capacity, bound)
    beside = (-9, "right") if capacity > 0.85 * high else (9, "left")
    text = f"C* = {plain_number(capacity)}"
    style.note(axes, text, (capacity, bound), (beside[0], -15), ha=beside[1], size=10, bold=True)
