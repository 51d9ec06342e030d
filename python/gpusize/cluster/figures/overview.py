"""A cluster test on one page: distributions, percentiles over time, lives, throughput, GPUs."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.figures.layouts import beyond
from gpusize.cluster.phases.deltas import DONE
from gpusize.cluster.phases.statistics import lasting
from gpusize.cluster.report.words import finding, occupancy_text
from gpusize.report.figures import style
from gpusize.report.text import clean, count, duration, plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpusize.cluster.phases.timed import Timed

__all__ = ["overview_figure"]

_NS: Final = 1e9
_CURVES: Final = {
    "admitted": ("admitted", style.OTHER),
    "first_scheduled": ("first pod", style.LOW),
    "scheduled": ("scheduled", style.MID),
    "running": ("running", style.AMBER),
    "ready": ("ready", style.GOOD),
    "completed": ("completed", style.MUTED),
}
"""Phases from the submission whose distributions are drawn: name and colour."""
_LIVES: Final = (
    ("until its pods are there", "last_created", style.MUTED),
    ("until they are scheduled", "last_scheduled", style.AMBER),
    ("until they have started", "last_started", style.LOW),
    ("until they are ready", "last_ready", style.MID),
    ("at work", "completed", style.GOOD),
)
_LOST_BY: Final = {
    "failed": ("failed",),
    "evicted": ("evicted", "preempted"),
    "deleted": ("deleted",),
    "vanished": ("deleted",),
    "refused": (),
}
"""Outcomes after which a workload is not there any more, and the moments that say when; else its submission."""
_FAINT: Final = {"until its pods are there": 0.45, "at work": 0.35}
_MOST_LIVES: Final = 160
_FEWEST: Final = 20
_WINDOWS: Final = 40
_LOG_FROM: Final = 30.0


def overview_figure(timed: Timed) -> Figure:
    """Five panels; those of which nothing is known say so."""
    from gpusize.report.figures.shown_figure import ShownFigure

    height = 13.6
    figure = ShownFigure(figsize=(13.0, height), dpi=110)
    rows = timed.rows("scheduled")
    figures = None
    if rows.height:
        from gpusize.cluster.phases.statistics import phase_figures

        figures = phase_figures(rows)
    title, _, rest = finding(timed, figures).partition(". ")
    figure.text(0.02, 1 - 0.16 / height, clean(title, 120), fontsize=13, fontweight="bold", va="top")
    about = "what had not ended at the last look is in all percentiles"
    figure.text(
        0.02, 1 - 0.46 / height, f"{rest} · {about}" if rest else about, fontsize=9.5, color=style.MUTED, va="top"
    )
    grid = figure.add_gridspec(
        3,
        2,
        left=0.06,
        right=0.93,
        top=1 - 1.15 / height,
        bottom=0.6 / height,
        hspace=0.38,
        wspace=0.3,
        height_ratios=(1, 1.25, 0.9),
    )
    _distributions(figure, figure.add_subplot(grid[0, 0]), timed)
    _over_time(figure, figure.add_subplot(grid[0, 1]), timed)
    _lives(figure.add_subplot(grid[1, :]), timed)
    _throughput(figure.add_subplot(grid[2, 0]), timed)
    _gpus(figure.add_subplot(grid[2, 1]), timed)
    return figure


def _title(axes: Axes, text: str, pad: float = 8) -> None:
    axes.set_title(text, fontsize=10.5, fontweight="bold", loc="left", pad=pad)
    axes.grid(visible=False, axis="x")


def _legend(axes: Axes) -> None:
    """What the marks are, between the axes and the title."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=8, ncols=2, handlelength=1.0, borderaxespad=0.3)
    _title(axes, axes.get_title(loc="left"), pad=24)


def _distributions(figure: Figure, axes: Axes, timed: Timed) -> None:
    """Share of the workloads that had come to each moment, by Kaplan and Meier."""
    import numpy as np

    _title(axes, "How far workloads are, by time since submission")
    gangs = bool((timed.workloads["pods"] > 1).any())
    found = []
    for name, (label, color) in _CURVES.items():
        rows = timed.rows(name)
        if rows.filter(rows["state"] == DONE).height and (name != "first_scheduled" or gangs):
            found.append((label, color, lasting(rows), rows))
    if not found:
        _nothing(axes, _missing(timed))
        return
    lows = [float(each.times[0]) for _, _, each, _ in found]
    longest = max(float(rows["value_ns"].max()) / _NS for _, _, _, rows in found)  # type: ignore[arg-type]
    far = max(float(each.times[-1]) for _, _, each, _ in found)
    log = min(lows) > 0 and far / min(lows) >= _LOG_FROM
    end = min(longest, 1.4 * far) if not log else min(longest, 2 * far)
    ends = []
    for label, color, each, _ in found:
        times = np.concatenate(([min(lows[0], each.times[0])], each.times, [max(end, each.times[-1])]))
        shares = np.concatenate(([0.0], 1 - each.left, [1 - each.left[-1]]))
        axes.step(times, shares, where="post", color=color, linewidth=1.8, zorder=3)
        if label == "scheduled":
            axes.fill_between(
                each.times, 1 - each.high, 1 - each.low, step="post", color=color, alpha=0.15, linewidth=0
            )
        ends.append((min(0.97, float(shares[-1])), label, color))
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: plain_number(value))
    else:
        axes.set_xlim(min(0.0, *lows), end)
    axes.set_ylim(0, 1.02)
    axes.axhline(1.0, color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.set_xlabel("seconds since submission")
    axes.set_ylabel("share of all workloads")
    style.label_ends(figure, axes, ends)


def _over_time(figure: Figure, axes: Axes, timed: Timed) -> None:
    """Percentiles of scheduling by submission, in windows of as many workloads each."""
    import numpy as np
    import polars as pl

    _title(axes, "Time until scheduled, by submission")
    rows = timed.rows("scheduled").drop_nulls("submitted_ns").sort("submitted_ns")
    windows = min(_WINDOWS, rows.height // _FEWEST)
    begin = timed.begin_ns or 0
    if rows.filter(pl.col("state") == DONE).is_empty():
        _nothing(axes, _missing(timed))
        return
    axes.set_xlabel("submitted, seconds after the first")
    axes.set_ylabel("seconds")
    if windows < 2:
        at = ((rows["submitted_ns"] - begin) / _NS).to_numpy()
        values, done = (rows["value_ns"] / _NS).to_numpy(), (rows["state"] == DONE).to_numpy()
        axes.plot(at[done], values[done], "o", color=style.MID, markersize=4, label="a workload")
        far = beyond(values[~done], values[done])
        where: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False} if far else {}
        y = np.ones(int((~done).sum())) if far else values[~done]
        axes.plot(at[~done], y, "^", color=style.LIMIT, markersize=5, label="not scheduled", **where)
        high = float(values[done].max())
        axes.set_ylim(
            min(0.0, float(values.min())), 1.15 * (high if beyond(values[~done], values[done]) else values.max())
        )
        if (~done).any():
            _legend(axes)
        return
    edges = np.linspace(0, rows.height, windows + 1).astype(int)
    parts = [rows[int(a) : int(b)] for a, b in itertools.pairwise(edges)]
    middles = np.array([float(part["submitted_ns"].mean() - begin) / _NS for part in parts])  # type: ignore[operator]
    ends = []
    edges_of = {"p50": 0.93, "p95": 0.965, "p99": 1.0}
    for (name, color), share in zip(style.PERCENTILES.items(), (0.5, 0.95, 0.99), strict=True):
        values = np.array([lasting(part).percentile(share).value for part in parts])
        known = np.isfinite(values)
        axes.plot(middles, np.where(known, values, np.nan), color=color, marker="o", markersize=2.5, linewidth=1.6)
        if known.any():
            ends.append((float(values[known][-1]), name, color))
        if not known.all():
            told = any(axes.get_legend_handles_labels()[1])
            label = "_" if told else "not reached by the last look"
            axes.plot(
                middles[~known],
                np.full(int((~known).sum()), edges_of[name]),
                "^",
                color=color,
                markersize=5,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                label=label,
            )
    low = min(0.0, axes.get_ylim()[0])
    axes.set_ylim(low, axes.get_ylim()[1] * 1.12)
    if any(axes.get_legend_handles_labels()[1]):
        _legend(axes)
    style.label_ends(figure, axes, ends)


def _lives(axes: Axes, timed: Timed) -> None:
    """A bar for each workload, from its submission through its moments to its end or the last look."""
    import numpy as np
    from matplotlib.colors import to_rgba

    frame = timed.workloads.drop_nulls("submitted_ns")
    n = frame.height
    shown = min(n, _MOST_LIVES)
    which = np.unique(np.linspace(0, n - 1, shown).astype(int)) if n else np.empty(0, int)
    some = f", {count(which.size)} of {count(n)}" if which.size < n else ""
    _title(axes, f"The life of each workload{some}", pad=24)
    begin, look = timed.begin_ns, timed.looks.get(timed.clock)
    if n == 0 or begin is None or look is None:
        _nothing(axes, _missing(timed))
        return
    rows = frame[which.tolist()].to_dicts()
    pieces: dict[str, list[tuple[float, float, float]]] = {}
    open_at: list[tuple[float, float]] = []
    gone = _gone(timed)
    last_moment = max((row[f"{m}_ns"] or 0 for row in rows for _, m, _ in _LIVES), default=0)
    last_moment = max([last_moment, *(gone[row["workload"]] for row in rows if row["workload"] in gone)])
    # What nothing happens in any more says nothing: the picture ends a little after the last moment.
    end = float(min(look, max(last_moment + 0.05 * (last_moment - begin), begin + 1)) if last_moment else look)
    ended_at: list[tuple[float, float]] = []
    for y, row in enumerate(rows):
        stopped = gone.get(row["workload"])
        if stopped is None:
            _bars(row, float(y), (begin, end, look), pieces, open_at)
        else:
            _bars(row, float(y), (begin, min(end, stopped), stopped), pieces, [])
            ended_at.append(((min(end, stopped) - begin) / _NS, float(y)))
    handles: list[Any] = []
    bar: dict[str, Any] = {"height": 0.86 if len(rows) <= 60 else 1.0, "linewidth": 0, "zorder": 2}
    names = [name for name, _, _ in _LIVES if name in pieces]
    colors = {name: color for name, _, color in _LIVES}
    for name in names:
        left = [x for x, _, _ in pieces[name]]
        widths = [w for _, w, _ in pieces[name]]
        ys = [y for _, _, y in pieces[name]]
        handles.append(axes.barh(ys, widths, left=left, color=to_rgba(colors[name], _FAINT.get(name, 1.0)), **bar))
    for places, marker, name in (
        (open_at, ">", "not ready at the last look"),
        (ended_at, "x", "failed, evicted, deleted or refused"),
    ):
        if places:
            at, of = zip(*places, strict=True)
            size: dict[str, Any] = {"markersize": 3.5} if marker == ">" else {"markersize": 5, "markeredgewidth": 1.6}
            handles += axes.plot(at, of, marker, color=style.LIMIT, zorder=4, clip_on=False, **size)
            names.append(name)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, (end - begin) / _NS)
    ticks = np.unique(np.linspace(0, len(rows) - 1, min(6, len(rows))).astype(int))
    axes.set_yticks(ticks, [count(which[k] + 1) for k in ticks], fontsize=8)
    axes.set_ylabel("workloads by submission")
    axes.set_xlabel("seconds after the first submission")
    look_of: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": max(1, len(names))}
    axes.legend(handles, names, **look_of, fontsize=8, handlelength=1.0, columnspacing=1.2, borderaxespad=0.1)


def _gone(timed: Timed) -> dict[str, int]:
    """By workload that came to no good end, when that was: when the last of its pods was lost, or it was refused."""
    import polars as pl

    ends = timed.workloads.filter(pl.col("outcome").is_in(list(_LOST_BY)))
    last = timed.objects.filter(pl.col("clock") == timed.clock).group_by("workload", "moment").agg(pl.col("at").max())
    told = {(workload, moment): int(at) for workload, moment, at in last.iter_rows() if at is not None}
    found: dict[str, int] = {}
    for workload, outcome, submitted in ends.select("workload", "outcome", "submitted_ns").iter_rows():
        moments = _LOST_BY[outcome]
        at = [told[workload, moment] for moment in moments if (workload, moment) in told]
        if not moments and submitted is not None:
            at = [int(submitted)]
        if at:
            found[workload] = max(at)
    return found


def _bars(
    row: dict[str, Any],
    y: float,
    span: tuple[int, float, int],
    pieces: dict[str, list[tuple[float, float, float]]],
    open_at: list[tuple[float, float]],
) -> None:
    """The pieces of one life; the one that had not ended goes on to the end of the picture."""
    begin, end, look = span
    at = float(row["submitted_ns"])
    for name, moment, _ in _LIVES:
        found = row[f"{moment}_ns"]
        later = any(row[f"{other}_ns"] is not None for _, other, _ in _after(moment))
        if found is None and later:
            continue
        until = min(float(found if found is not None else look), end)
        if until > at:
            pieces.setdefault(name, []).append(((at - begin) / _NS, (until - at) / _NS, y))
        if found is None:
            if moment != "completed":
                open_at.append(((end - begin) / _NS, y))
            return
        at = max(at, float(found))


def _after(moment: str) -> tuple[tuple[str, str, str], ...]:
    place = [each[1] for each in _LIVES].index(moment)
    return _LIVES[place + 1 :]


def _throughput(axes: Axes, timed: Timed) -> None:
    rate = timed.pods_per_s()
    _title(axes, "Pods scheduled a second")
    if rate is None:
        _nothing(axes, _missing(timed))
        return
    end = float(rate.counts.size)
    axes.stairs(rate.counts, color=style.MID, fill=True, alpha=0.35)
    axes.stairs(rate.counts, color=style.MID, linewidth=1.2)
    if math.isfinite(rate.rate) and rate.elapsed_s >= 1:
        axes.axhline(rate.rate, color=style.HIGH, linewidth=1.1, linestyle=(0, (3, 2)))
        style.note(axes, f"{plain_number(rate.rate)} on average", (end, rate.rate), (-4, 4), ha="right")
    # The average is over the time until the last end, and may be above all counts where that is no whole second.
    axes.set_ylim(0, max(rate.most, rate.rate if math.isfinite(rate.rate) else 0.0) * 1.18)
    axes.set_xlim(0, end)
    axes.set_xlabel("seconds after the first submission")
    axes.set_ylabel("pods/s")


def _gpus(axes: Axes, timed: Timed) -> None:
    taken = timed.occupancy()
    _title(axes, "GPUs taken" if taken is None else f"GPUs: {occupancy_text(taken)}".partition(" until")[0])
    if taken is None:
        _nothing(axes, "how many GPUs a pod asks for is not known, or none was scheduled")
        return
    x = [*taken.times_s, taken.until_s]
    axes.stairs(taken.gpus, x, color=style.GOOD, fill=True, alpha=0.35)
    axes.stairs(taken.gpus, x, color=style.GOOD, linewidth=1.2)
    high = float(taken.gpus.max())
    if taken.total:
        high = max(high, taken.total)
        axes.axhline(taken.total, color=style.LIMIT, linewidth=1.2)
        style.note(axes, f"{plain_number(taken.total)} GPUs", (0, taken.total), (4, -11), color=style.LIMIT)
    axes.set_ylim(0, high * 1.12)
    axes.set_xlim(0, max(taken.until_s, 1e-9))
    axes.set_xlabel(f"seconds after the first submission, until the last look ({duration(taken.until_s)})")
    axes.set_ylabel("GPUs")


def _missing(timed: Timed) -> str:
    """Why a panel of moments since a submission is empty."""
    if timed.workloads.height and timed.pods.height:
        return "nobody recorded submissions: the tables have the phases of pods"
    return "no workload came so far"


def _nothing(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=style.MUTED)
    axes.set_xticks([])
    axes.set_yticks([])
