"""Figures of what stands behind the address: servers and GPUs over the levels, and replicas beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.report.figures import style
from gpusize.report.summary.source import ReportSource
from gpusize.report.summary.sweep import Points, Sweep
from gpusize.report.text import TimeUnit, clean, number, percent, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["replicas_figure", "server_figure"]

_PERCENT: Final = TimeUnit("%", 100.0)
_PLAIN: Final = TimeUnit("", 1.0)
_MOST_NAMED: Final = len(style.SERIES)
"""Replicas that have a colour of their own; of more, the fastest and the slowest are named."""


_SAME: Final = 1.02
"""Fastest over slowest below which replicas are as fast as each other."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """One axes of the server's figure: its columns with their names at the line's end, all in one unit."""

    label: str
    columns: Mapping[str, str]
    unit: TimeUnit
    top: float | None = None


def server_figure(sweep: Sweep) -> Figure | None:
    """GPU and CPU utilization, power, KV cache, queue and times in the server against the levels; None without any.

    Utilization is a mean over GPUs, power their sum; shares have an axis of 0 to 100 %.
    """
    panels = [panel for panel in _panels(sweep) if any(sweep.line(column) for column in panel.columns)]
    if not panels:
        return None
    figure, every = style.new_figure(_title(sweep), sweep.about, len(panels))
    for axes, panel in zip(every, panels, strict=True):
        style.level_axis(axes, sweep.levels, sweep.x_label if axes is every[-1] else "")
        axes.set_ylabel(panel.label)
        lines = {column: sweep.line(column) for column in panel.columns if sweep.line(column)}
        highest = max(y for line in lines.values() for _, y in line) * panel.unit.per_s
        axes.set_ylim(0, panel.top or highest * 1.15 or 1.0)
        ends = []
        for color, (column, line) in zip(style.SERIES, lines.items(), strict=False):
            _line(axes, line, sweep.points(column), panel.unit, color)
            name = panel.columns[column]
            value = f"{panel.unit.show(line[-1][1])}{'%' if panel.unit is _PERCENT else ''}"
            ends.append((line[-1][1] * panel.unit.per_s, name if len(lines) > 1 else value, color))
        style.label_ends(figure, axes, ends)
    return figure


def _panels(sweep: Sweep) -> list[_Panel]:
    several = any((row.get("server_gpus") or 0) > 1 for row in sweep.rows)
    busy = {"server_gpu_utilization": "mean", "server_gpu_utilization_max": "busiest"}
    if not several:
        busy = {"server_gpu_utilization": "mean"}
    times = {"server_queue_s": "queue", "server_compute_s": "compute", "residence_s": "service"}
    told = [y for column in ("server_queue_s", "server_compute_s") for _, y in sweep.line(column)]
    unit = time_unit([max(told, default=0.0)])
    power = {"server_gpu_power_w": "power", "server_gpu_power_limit_w": "limit"}
    requests = {"server_waiting": "waiting", "server_running": "running"}
    made = [
        _Panel("GPU busy (%)", busy, _PERCENT, 103.0),
        _Panel("power, all GPUs (W)" if several else "power (W)", power, _PLAIN),
        _Panel("server CPU busy (%)", {"server_cpu_utilization": "CPU"}, _PERCENT, 103.0),
        _Panel("KV cache used (%)", {"server_kv_cache_use": "KV cache"}, _PERCENT, 103.0),
        _Panel("requests in the server", requests, _PLAIN),
    ]
    # Our service alone is in the figure of runtimes; here it is to be compared with the server's parts of it.
    return [*made, _Panel(f"mean time ({unit.name})", times, unit)] if told else made


def _line(axes: Axes, line: Points, points: Points, unit: TimeUnit, color: str) -> None:
    axes.plot([x for x, _ in line], [y * unit.per_s for _, y in line], color=color, zorder=3)
    style.dots(axes, [(x, y * unit.per_s) for x, y in points], color)


def _title(sweep: Sweep) -> str:
    """The finding: how busy the GPUs were at the level that completed most, or how many requests waited there."""
    rates = sweep.line("achieved_rate")
    best = max(rates, key=lambda point: point[1])[0] if rates else None
    busy, waiting = dict(sweep.line("server_gpu_utilization")), dict(sweep.line("server_waiting"))
    if best in busy:
        gpus = max((int(row.get("server_gpus") or 0) for row in sweep.rows), default=0)
        which = f"{gpus} GPUs, on average," if gpus > 1 else "The GPU"
        return f"{which} {'were' if gpus > 1 else 'was'} {percent(busy[best])} busy at {sweep.at(best)}, the peak rate"
    if best in waiting:
        return f"{number(waiting[best])} requests waited in the server at {sweep.at(best)}, the peak rate"
    return "Server metrics"


def replicas_figure(source: ReportSource, sweep: Sweep) -> Figure | None:
    """Completed requests/s of each replica against the levels; None with one replica."""
    frame = source.tables.get("replicas")
    rows = [] if frame is None else [row for row in frame.to_dicts() if sweep.x(row) is not None]
    names = {row["index"]: clean(row["name"] or f"replica {row['index']}", 60) for row in rows}
    lines = {
        index: replace(sweep, rows=tuple(row for row in rows if row["index"] == index)).line("achieved_rate")
        for index in sorted(names)
    }
    lines = {index: line for index, line in lines.items() if line}
    if len(lines) < 2:
        return None
    order = sorted(lines, key=lambda index: sum(y for _, y in lines[index]))
    named = list(lines) if len(lines) <= _MOST_NAMED else [order[0], order[-1]]
    colors = {index: style.SERIES[place] for place, index in enumerate(named)}
    figure, (axes,) = style.new_figure(_replicas_title(lines), sweep.about)
    style.level_axis(axes, sweep.levels, sweep.x_label)
    axes.set_ylabel("requests/s of a replica")
    axes.set_ylim(0, max(y for line in lines.values() for _, y in line) * 1.15 or 1.0)
    for index in sorted(lines, key=lambda each: each in colors):
        _line(axes, lines[index], lines[index], _PLAIN, colors.get(index, style.GRID))
    for index in named:
        axes.plot([], [], color=colors[index], label=names[index])
    axes.legend(loc="upper left")  # completed work rises, so that this corner is free
    style.label_ends(figure, axes, [(lines[i][-1][1], number(lines[i][-1][1]), colors[i]) for i in named])
    return figure


def _replicas_title(lines: Mapping[int, Points]) -> str:
    """The finding: how far apart the replicas are at the highest level that all of them have."""
    common = set.intersection(*({x for x, _ in line} for line in lines.values()))
    if not common:
        return f"{len(lines)} replicas"
    last = [dict(line)[max(common)] for line in lines.values()]
    if not min(last):
        return f"Of {len(lines)} replicas, some completed nothing at the highest level"
    ratio = max(last) / min(last)
    if ratio < _SAME:
        return f"{len(lines)} replicas complete the same, within 2 %"
    how = f"{number(ratio)} times as much as" if ratio >= 2 else f"{number((ratio - 1) * 100)} % more than"
    return f"The fastest of {len(lines)} replicas completes {how} the slowest"
