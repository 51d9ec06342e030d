"""The two layouts of the Run:ai scale test tool: a row for each phase, over the submissions and as a histogram.

Workloads that had not ended stand at the time that they had lasted, in the colour of limits, and are in no average.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.deltas import CENSORED, DONE
from gpusize.cluster.phases.known_phases import DETAILED, GENERAL, PHASES, POD_PHASES, Phase
from gpusize.report.figures import style
from gpusize.report.text import count, duration

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.cluster.phases.timed import Timed

__all__ = ["detailed_figure", "general_figure"]

_WIDTH_IN: Final = 13.0
_NS: Final = 1e9
_BARS: Final = 80
"""Workloads up to which each has its error bar and its dot."""
_BINS: Final = 30
_FAR: Final = 3.0
"""Times the longest that ended, beyond which what had not ended is at the edge."""


def general_figure(timed: Timed) -> Figure:
    """From submission to the scheduling of all pods, over the workloads in the order of their submission."""
    from matplotlib.ticker import MaxNLocator

    phases = _shown(timed, GENERAL) or _of_pods(timed) or [PHASES["scheduled"]]
    figure, grid = _figure(timed, len(phases), 1, height_in=3.3)
    for phase, (axes,) in zip(phases, grid, strict=True):
        rows = timed.rows(phase.name)
        title = f"{phase.event} Time from {phase.reference} {_average(rows)}"
        place = {name: number for number, name in enumerate(timed.workloads["workload"])}
        x = [float(place[name]) for name in rows["workload"]]
        _line(axes, rows, x, title, legend=True)
        axes.set_xlabel("Number of jobs")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return figure


def detailed_figure(timed: Timed) -> Figure:
    """Each phase that was measured, between its two moments."""
    import numpy as np
    from matplotlib import dates as mdates

    dates: Any = mdates  # without types
    phases = _shown(timed, DETAILED) or _of_pods(timed) or [PHASES["scheduled"]]
    figure, grid = _figure(timed, len(phases), 2, height_in=2.15)
    for phase, (left, right) in zip(phases, grid, strict=True):
        rows = timed.rows(phase.name)
        title = f"Time between {phase.reference} and {phase.event} {_average(rows)}"
        known = rows["submitted_ns"].is_not_null().all()
        begin = timed.begin_ns or 0
        at = rows["submitted_ns"].fill_null(begin).to_list()
        x = dates.date2num(np.array([datetime.fromtimestamp(each / _NS, UTC) for each in at])) if at else np.empty(0)
        _line(left, rows, list(x), title)
        locator = dates.AutoDateLocator(maxticks=8)
        left.xaxis.set_major_locator(locator)
        left.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        if len(x) and min(x) == max(x):
            left.set_xlim(min(x) - 1 / 86400, max(x) + 1 / 86400)
        left.set_xlabel("Submit time (UTC)" if known else "Submit time is not known")
        _histogram(right, rows)
    return figure


def _shown(timed: Timed, names: Sequence[str]) -> list[Phase]:
    """Those of the phases that some workload came to the end of."""
    import polars as pl

    ended = set(timed.deltas.filter(pl.col("state") == DONE)["phase"].unique())
    found = [PHASES[name] for name in names if name in ended]
    groups = "pod_scheduling_decision" in ended
    # The same decision, from the group where there are groups, else from the last pod.
    return [each for each in found if each.name != "gang_scheduling" or not groups]


def _of_pods(timed: Timed) -> list[Phase]:
    """The phases of pods, where nothing is known of workloads, as of imported measurements of pods."""
    if timed.rows("scheduled").height:
        return []
    return [phase for name, phase in POD_PHASES.items() if timed.rows(name).height]


def _figure(timed: Timed, rows: int, columns: int, *, height_in: float) -> tuple[Figure, list[list[Axes]]]:
    from gpusize.report.figures.shown_figure import ShownFigure

    whole = 0.85 + rows * height_in
    figure = ShownFigure(figsize=(_WIDTH_IN, whole), dpi=110)
    n = timed.workloads.height
    left_out = f" ({count(len(timed.left_out))} left out)" if timed.left_out else ""
    title = f"Total number of jobs run: {count(n)}{left_out}"
    figure.text(0.5, 1 - 0.14 / whole, title, fontsize=14, fontweight="bold", va="top", ha="center")
    figure.subplots_adjust(
        left=0.065,
        right=0.985,
        top=1 - 0.92 / whole,
        bottom=0.58 / whole,
        hspace=0.85 if height_in < 3 else 0.55,
        wspace=0.13,
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in grid]


def _average(rows: pl.DataFrame) -> str:
    """The average of those that ended, and how many had not."""
    import polars as pl

    done = rows.filter(pl.col("state") == DONE)["value_ns"]
    left = rows.filter(pl.col("state") == CENSORED).height
    mean = done.mean()
    average = "none ended" if mean is None else f"average: {float(mean) / _NS:.2f} seconds"  # type: ignore[arg-type]
    return f"({average}{f'; {count(left)} of {count(rows.height)} not ended' if left else ''})"


def _line(axes: Axes, rows: pl.DataFrame, x: Sequence[float], title: str, *, legend: bool = False) -> None:
    import numpy as np

    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_ylabel("Time (seconds)", fontsize=9)
    axes.grid(visible=False, axis="x")
    if not len(x):
        _nothing(axes)
        return
    # Pods come in the order of their last moments.
    order = np.argsort(x, kind="stable")
    at, rows = np.array(x)[order], rows[order.tolist()]
    values = (rows["value_ns"] / _NS).to_numpy()
    done, open_ = (rows["state"] == DONE).to_numpy(), (rows["state"] == CENSORED).to_numpy()
    few = at.size <= _BARS
    if done.any():
        half = ((rows["hi_ns"] - rows["lo_ns"]) / 2 / _NS).to_numpy()
        if few and half[done].max() > 0.02 * max(np.ptp(values[done]), 1e-3):
            axes.errorbar(at[done], values[done], yerr=half[done], fmt="none", ecolor=style.LOW, elinewidth=1, zorder=2)
        look = {"marker": "o", "markersize": 3.5} if few else {"linewidth": 0.9}
        axes.plot(at[done], values[done], color=style.MID, zorder=3, **look)
    if open_.any():
        _open_marks(axes, at[open_], values[open_], values[done], few=few, legend=legend)
    _from_zero(axes, values[done] if beyond(values[open_], values[done]) else values)


def beyond(waited: NDArray[np.float64], ended: NDArray[np.float64]) -> bool:
    """Whether what had not ended had lasted so long that nothing would be seen of what did on one scale with it."""
    return bool(waited.size and ended.size and waited.max() > _FAR * max(ended.max(), 1e-9))


def _open_marks(
    axes: Axes,
    at: NDArray[np.float64],
    waited: NDArray[np.float64],
    ended: NDArray[np.float64],
    *,
    few: bool,
    legend: bool,
) -> None:
    """An arrow head for each that had not ended: at the time that it had lasted, or at the edge, far below that."""
    look: dict[str, Any] = {"linestyle": "none", "marker": "^", "color": style.LIMIT, "zorder": 4, "clip_on": False}
    look["markersize"] = 4.5 if few else 3.5
    if beyond(waited, ended):
        label = f"not ended, after {duration(waited.min())} to {duration(waited.max())}"
        axes.plot(at, [1.0] * at.size, transform=axes.get_xaxis_transform(), label=label, **look)
    else:
        axes.plot(at, waited, label="not ended", **look)
    anchor: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.02), "borderaxespad": 0.0}
    if legend:
        axes.legend(fontsize=8, handletextpad=0.1, **anchor)


def _from_zero(axes: Axes, values: NDArray[np.float64]) -> None:
    low, high = float(values.min()), float(values.max())
    if low < 0:
        axes.axhline(0, color=style.MUTED, linewidth=0.8, zorder=1)
    spread = max(high, 0) - min(low, 0)
    margin = 0.08 * spread if spread > 0 else 0.5
    axes.set_ylim(min(low, 0) - (margin if low < 0 else 0), max(high, 0) + margin)


def _histogram(axes: Axes, rows: pl.DataFrame) -> None:
    import polars as pl
    from matplotlib.ticker import MaxNLocator

    values = (rows.filter(pl.col("state") == DONE)["value_ns"] / _NS).to_numpy()
    left = (rows.filter(pl.col("state") == CENSORED)["value_ns"] / _NS).to_numpy()
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("Time (seconds)", fontsize=9)
    axes.set_ylabel("Number of jobs", fontsize=9)
    if not values.size and not left.size:
        _nothing(axes)
        return
    if beyond(left, values):
        text = f"{count(left.size)} more had not ended, after {duration(left.min())} to {duration(left.max())}"
        axes.text(1.0, 1.03, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=style.LIMIT)
        left = left[:0]
    low, high = min([*values, *left]), max([*values, *left])
    if low == high:
        low, high = low - 0.5, high + 0.5
    colors = [style.MID, style.LIMIT]
    axes.hist(
        [values, left],
        bins=_BINS,
        range=(low, high),
        stacked=True,
        color=colors,
        label=["ended", "not ended, as long as it had lasted"],
        edgecolor=style.PAPER,
        linewidth=0.4,
    )
    if left.size:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=8, borderaxespad=0.1)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", va="center", color=style.MUTED)
    axes.set_xticks([])
    axes.set_yticks([])
