"""Figures of how a level was served: where the time went, queue, batches, energy, each GPU, percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.report.figures import style
from gpusize.report.summary.sweep import Points, Sweep
from gpusize.report.text import clean, number, percent, plain_number, time_unit

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["batch_figure", "energy_figure", "gpus_figure", "percentiles_figure", "queue_figure", "split_figure"]

_PARTS: Final = {
    "compute_infer_s": ("compute", style.HIGH),
    "compute_input_s": ("input", style.MID),
    "compute_output_s": ("output", style.LOW),
    "queue_s": ("queue", style.LIMIT),
    "server_other_s": ("other", style.OTHER),
    "network_s": ("network", style.AMBER),
    "client_s": ("client", style.GOOD),
}
_RAMP: Final = (style.LOW, style.MID, style.HIGH, style.OTHER, style.LIMIT, style.AMBER, style.GOOD)
_QUANTILES: Final = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


def _about(sweep: Sweep) -> str:
    """What was measured, and of how much: requests of a level, or levels where their requests are not known."""
    counts = [int(row["n"]) for row in sweep.rows if row.get("n")]
    between = f"{min(counts):,} to {max(counts):,}" if counts and min(counts) < max(counts) else f"{sum(counts[:1]):,}"
    n = f"n {between} requests a level" if counts else f"n {len(sweep.rows)} levels"
    return f"{sweep.about} · {n}"


def split_figure(sweep: Sweep, split: pl.DataFrame) -> Figure | None:
    """The parts of a request's mean time as bars on each other, a bar per level; None where no server told of any.

    Args:
        sweep: the sweep, for its axis and its name.
        split: columns as of ``gpusize.analysis.latency_split.split_rows``.
    """
    told = replace(sweep, rows=tuple(split.to_dicts()))
    lines = {column: dict(told.line(column)) for column in _PARTS}
    levels = sorted({x for line in lines.values() for x in line})
    if not levels:
        return None
    sums = [sum(line.get(x, 0.0) for line in lines.values()) for x in levels]
    unit = time_unit([max(sums)])
    figure, (axes,) = style.new_figure(
        _split_title(sweep, lines, levels, sums), f"{_about(sweep)} · means of a request"
    )
    axes.set_ylabel(f"mean time of a request ({unit.name})")
    axes.set_xlabel(sweep.x_label)
    places = list(range(len(levels)))
    bottoms = [0.0] * len(levels)
    ends = []
    for column, (name, color) in _PARTS.items():
        if not lines[column]:
            continue
        heights = [lines[column].get(x, 0.0) * unit.per_s for x in levels]
        axes.bar(places, heights, 0.74, bottom=bottoms, color=color, edgecolor=style.PAPER, linewidth=0.6, label=name)
        if heights[-1] > 0:
            ends.append((bottoms[-1] + heights[-1] / 2, name, color))
        bottoms = [low + high for low, high in zip(bottoms, heights, strict=True)]
    axes.set_ylim(0, max(bottoms) * 1.1 or 1.0)
    axes.set_xlim(-0.6, len(levels) - 0.4)
    shown = places if len(places) <= 20 else places[:: -(-len(places) // 20)]
    axes.set_xticks(shown, [plain_number(levels[k]) for k in shown])
    style.label_ends(figure, axes, ends)
    return figure


def _split_title(
    sweep: Sweep, lines: Mapping[str, Mapping[float, float]], levels: Sequence[float], sums: Sequence[float]
) -> str:
    """The finding: the largest part at the highest level."""
    last = levels[-1]
    column = max(_PARTS, key=lambda each: lines[each].get(last, 0.0))
    share = lines[column].get(last, 0.0) / sums[-1] if sums[-1] else 0.0
    return f"At {sweep.at(last)} {percent(share)} of the time is {_PARTS[column][0]}"


def queue_figure(sweep: Sweep) -> Figure | None:
    """Mean time of a request in the server's queue, per request that succeeded; None where no server told."""
    line = sweep.line("server_queue_s")
    if not line:
        return None
    unit = time_unit([max(y for _, y in line)])
    last = line[-1]
    title = f"A request waits {unit.show(last[1])} {unit.name} in the server at {sweep.at(last[0])}"
    return _one(sweep, "server_queue_s", f"queue per request ({unit.name})", title, unit.per_s, style.LIMIT)


def batch_figure(sweep: Sweep) -> Figure | None:
    """Mean inferences per execution of the model; None where no server told."""
    line = sweep.line("server_batch_size")
    if not line:
        return None
    most = max(line, key=lambda point: point[1])
    title = f"Batches are of {plain_number(most[1])} at most, at {sweep.at(most[0])}"
    return _one(sweep, "server_batch_size", "inferences per execution", title, 1.0, style.MID)


def _one(sweep: Sweep, column: str, label: str, title: str, scale: float, color: str) -> Figure:
    figure, (axes,) = style.new_figure(title, _about(sweep))
    style.level_axis(axes, sweep.levels, sweep.x_label)
    _draw(figure, axes, sweep.line(column), sweep.points(column), label, scale, color)
    return figure


def _draw(figure: Figure, axes: Axes, line: Points, points: Points, label: str, scale: float, color: str) -> None:
    axes.set_ylabel(label)
    axes.plot([x for x, _ in line], [y * scale for _, y in line], color=color, zorder=3)
    style.dots(axes, [(x, y * scale) for x, y in points], color)
    axes.set_ylim(0, max(y for _, y in points) * scale * 1.15 or 1.0)
    style.label_ends(figure, axes, [(line[-1][1] * scale, number(line[-1][1] * scale), color)])


def energy_figure(sweep: Sweep) -> Figure | None:
    """Energy per request (mean power of all GPUs over requests/s) and per output token; None without power.

    A level in which not every GPU told of its power has no point.
    """
    panels = {
        "server_energy_per_request_j": ("J per request", style.AMBER),
        "server_energy_per_output_token_j": ("J per output token", style.GOOD),
    }
    known = {column: how for column, how in panels.items() if sweep.line(column)}
    if not known:
        return None
    line = sweep.line(next(iter(known)))
    least = min(line, key=lambda point: point[1])
    what = next(iter(known.values()))[0].removeprefix("J per ")
    title = f"Least energy per {what} at {sweep.at(least[0])}: {plain_number(least[1])} J"
    figure, every = style.new_figure(title, f"{_about(sweep)} · all GPUs together", len(known))
    for axes, (column, (label, color)) in zip(every, known.items(), strict=True):
        style.level_axis(axes, sweep.levels, sweep.x_label if axes is every[-1] else "")
        _draw(figure, axes, sweep.line(column), sweep.points(column), label, 1.0, color)
    return figure


def gpus_figure(sweep: Sweep, server: pl.DataFrame) -> Figure | None:
    """Utilization of each GPU, its memory over its own, its power over its own limit (in W where no limit is known).

    Args:
        sweep: the sweep, for its axis, and for which visits count.
        server: columns as of ``gpusize.analysis.tables.server_rows``.
    """
    known = {(row.get("run"), row.get("visit")): row.get("state", "done") for row in sweep.rows}
    panels: dict[str, dict[str, Points]] = {}
    rows = [row for row in server.to_dicts() if row["labels"] is not None and row["mean"] is not None]
    values = {(r["run"], r["visit"], r["metric"], r["source"], r["labels"]): r["mean"] for r in rows}
    limits = any(row["metric"] == "gpu_power_limit" for row in rows)
    wanted = {
        "GPU busy (%)": ("gpu_utilization", None),
        "memory of its own (%)": ("gpu_memory_used", "gpu_memory_total"),
        "power of its limit (%)" if limits else "power (W)": ("gpu_power", "gpu_power_limit" if limits else None),
    }
    for label, (metric, whole) in wanted.items():
        for key in dict.fromkeys((r["source"], r["labels"]) for r in rows if r["metric"] == metric):
            told = []
            for row in rows:
                if (row["metric"], row["source"], row["labels"]) != (metric, *key):
                    continue
                most = 1.0 if whole is None else values.get((row["run"], row["visit"], whole, *key))
                scale = 1.0 if metric == "gpu_power" and whole is None else 100.0
                if most and (row["run"], row["visit"]) in known:
                    state = known[row["run"], row["visit"]]
                    told.append({**row, "value": scale * row["mean"] / most, "state": state})
            line = replace(sweep, rows=tuple(told)).line("value")
            if line:
                panels.setdefault(label, {})[key[1]] = line
    if not panels:
        return None
    gpus = list(dict.fromkeys(gpu for lines in panels.values() for gpu in lines))
    colors = {gpu: _RAMP[k % len(_RAMP)] for k, gpu in enumerate(gpus)}
    label, lines = next(iter(panels.items()))
    lasts = {gpu: line[-1][1] for gpu, line in lines.items()}
    between = f"{plain_number(min(lasts.values()))} to {plain_number(max(lasts.values()))}"
    one = plain_number(next(iter(lasts.values())))
    title = f"{label.partition(' (')[0]} at the highest level: {between if len(lasts) > 1 else one} {label[-2]}"
    about = f"{_about(sweep)} · {len(gpus)} GPU{'' if len(gpus) == 1 else 's'}, each against its own"
    figure, every = style.new_figure(title, about, len(panels))
    for axes, (label, lines) in zip(every, panels.items(), strict=True):
        style.level_axis(axes, sweep.levels, sweep.x_label if axes is every[-1] else "")
        axes.set_ylabel(label)
        top = max(y for line in lines.values() for _, y in line)
        axes.set_ylim(0, 103.0 if "%" in label and top <= 103 else top * 1.15 or 1.0)
        ends = []
        for gpu, line in lines.items():
            axes.plot([x for x, _ in line], [y for _, y in line], color=colors[gpu], zorder=3)
            style.dots(axes, line, colors[gpu])
            ends.append((line[-1][1], _gpu_name(gpu, gpus), colors[gpu]))
        style.label_ends(figure, axes, ends)
    return figure


def _gpu_name(label: str, gpus: Sequence[str]) -> str:
    from gpusize.observe.metrics.prometheus_text import parse_labels

    found = parse_labels(label) or {}
    name = next(iter(found.values()), label)
    return clean(name, 12) if len(gpus) > 1 and len(name) <= 12 else f"GPU {gpus.index(label)}"


def percentiles_figure(sweep: Sweep) -> Figure | None:
    """Runtime at p50, p90, p95 and p99, a line per level (of many, seven spread evenly); None without any."""
    lines = {name: dict(sweep.line(f"runtime_{name}_s")) for name in _QUANTILES}
    levels = sorted({x for line in lines.values() for x in line})
    if not levels:
        return None
    most = len(_RAMP)
    shown = levels if len(levels) <= most else [levels[k * (len(levels) - 1) // (most - 1)] for k in range(most)]
    unit = time_unit([max(y for line in lines.values() for y in line.values())])
    last = levels[-1]
    title = f"Percentiles of runtime, {len(levels)} levels"
    if lines["p50"].get(last) and last in lines["p99"]:
        ratio = plain_number(lines["p99"][last] / lines["p50"][last])
        title = f"p99 is {ratio} times p50 at {sweep.at(last)}"
    figure, (axes,) = style.new_figure(title, _about(sweep))
    axes.set_xlabel("percentile of runtime")
    axes.set_ylabel(f"runtime ({unit.name})")
    axes.set_xticks(range(len(_QUANTILES)), list(_QUANTILES))
    axes.set_xlim(-0.2, len(_QUANTILES) - 0.8)
    ends, top = [], 0.0
    for color, x in zip(_RAMP, shown, strict=False):
        points = [(float(k), line[x] * unit.per_s) for k, line in enumerate(lines.values()) if x in line]
        axes.plot([k for k, _ in points], [y for _, y in points], color=color, zorder=3)
        style.dots(axes, points, color)
        ends.append((points[-1][1], plain_number(x, 6), color))
        top = max(top, *(y for _, y in points))
    axes.set_ylim(0, top * 1.12 or 1.0)
    style.label_ends(figure, axes, ends)
    return figure
