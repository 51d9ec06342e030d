"""Figures across results: one GPU against several, instances against concurrency, a CPU against GPUs.

They are drawn from a frame with a row per group and load (several takes of one are averaged, their range is a bar):

    group   what is compared, as text: ``1 GPU``, ``4 GPUs``, ``cpu``
    load    concurrency, rate, or any number that is on the x axis
    value   the figure that is compared, in the unit that the caller names
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.report.figures import style
from gpusize.report.text import clean, number, plain_number

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpusize.report.summary.source import ReportSource

__all__ = ["across_frame", "instances_figure", "plain_ticks", "ratio_figure"]

_COLUMNS: Final = ("group", "load", "value")

Lines = dict[str, dict[float, list[float]]]


def across_frame(sources: Mapping[str, ReportSource], value: str = "achieved_rate") -> pl.DataFrame:
    """The frame of several results.

    Args:
        sources: results by the group that they belong to.
        value: a column of the summary.

    Returns:
        Columns ``group``, ``load`` (concurrency, or rate of an open loop) and ``value``, a row per level visit that
        was measured to its end and has both.
    """
    import polars as pl

    rows = [
        (group, float(load), float(row[value]))
        for group, source in sources.items()
        for row in source.summary.to_dicts()
        if row.get("state", "done") == "done" and row.get(value) is not None
        and (load := row["rate"] if row.get("kind") == "open" else row["concurrency"]) is not None
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={"group": pl.String, "load": pl.Float64, "value": pl.Float64}, orient="row")


def ratio_figure(
    frame: pl.DataFrame,
    label: str = "requests/s",
    *,
    baseline: str | None = None,
    ideal: Mapping[str, float] | None = None,
    x_label: str = "concurrency (requests in flight)",
    log: bool = False,
) -> Figure:
    """Each group against the load, and below it its ratio to the baseline at the same load.

    Args:
        frame: columns ``group``, ``load``, ``value``.
        label: what the value is, with its unit.
        baseline: the group that the others are divided by; the first by default.
        ideal: ratios that would be in proportion, by group, as 4.0 for four GPUs; drawn dotted in the lower pane.
        x_label: what the load is, with its unit.
        log: whether the upper axis is logarithmic, as for a CPU against GPUs.

    Raises:
        UsageError: columns are missing, there are fewer than two groups, or no such baseline.
    """
    lines = _lines(frame)
    base = next(iter(lines)) if baseline is None else baseline
    if base not in lines or len(lines) < 2:
        what = f"there is no group {clean(base, 60)!r}" if base not in lines else "one group has nothing beside it"
        raise UsageError(what, "baseline", f"there are {', '.join(clean(each, 40) for each in lines)}")
    ratios = {group: _ratio(line, lines[base]) for group, line in lines.items() if group != base}
    with style.settings():
        figure, (upper, lower) = style.new_figure(_title(ratios, base, label), _about(frame, lines), 2)
        levels = sorted({x for line in lines.values() for x in line})
        style.level_axis(upper, levels, "")
        style.level_axis(lower, levels, clean(x_label, 60))
        upper.set_ylabel(clean(label, 40))
        lower.set_ylabel(f"over {clean(base, 20)}")
        colors = dict(zip(lines, _colors(len(lines)), strict=True))
        values = [y for line in lines.values() for ys in line.values() for y in ys]
        if log:
            upper.set_yscale("log")
            upper.set_ylim(min(y for y in values if y > 0) / 1.5, max(values) * 1.5)
            plain_ticks(upper)
        else:
            upper.set_ylim(0, max(values) * 1.15 or 1.0)
        _draw(figure, upper, lines, colors)
        wanted = [ideal[group] for group in ratios if ideal and group in ideal]
        most = max([1.0, *wanted, *(y for line in ratios.values() for y in line.values())])
        lower.set_ylim(0, most * 1.15)
        lower.axhline(1.0, color=style.MUTED, linewidth=1.0, zorder=2)
        for group in ratios:
            if ideal and group in ideal:
                lower.axhline(ideal[group], color=colors[group], linestyle=(0, (1, 2)), linewidth=1.3, zorder=2)
        _draw(figure, lower, {g: {x: [y] for x, y in line.items()} for g, line in ratios.items()}, colors)
    return figure


def instances_figure(
    frame: pl.DataFrame, label: str = "requests/s", *, transpose: bool = False, load_name: str = "concurrency"
) -> Figure:
    """The value against the load, a line per group; transposed, against the groups, a line per load.

    Args:
        frame: columns ``group`` (for the transpose numbers, such as ``4``), ``load``, ``value``.
        label: what the value is, with its unit.
        transpose: whether groups are on the x axis.
        load_name: what the load is called.

    Raises:
        UsageError: columns are missing, or the transpose is of groups that are no numbers.
    """
    lines = _lines(frame)
    if transpose:
        try:
            places = {group: float(group) for group in lines}
        except ValueError:
            raise UsageError("groups on an axis have to be numbers", "frame", "name them 1, 2, 4") from None
        loads = sorted({x for line in lines.values() for x in line})
        turned: Lines = {}
        for x in loads:
            turned[plain_number(x, 6)] = {places[g]: line[x] for g, line in lines.items() if x in line}
        lines, x_label, what = turned, "instances or GPUs", load_name
    else:
        x_label, what = load_name, "instances or GPUs"
    best = max(((y, g, x) for g, line in lines.items() for x, ys in line.items() for y in ys), key=lambda e: e[0])
    at = f"{x_label} {plain_number(best[2])}, {what} {clean(best[1], 30)}"
    with style.settings():
        figure, (axes,) = style.new_figure(
            f"Most at {at}: {plain_number(best[0])} {clean(label, 40)}", f"{_about(frame, lines)} · a line per {what}"
        )
        style.level_axis(axes, sorted({x for line in lines.values() for x in line}), clean(x_label, 60))
        axes.set_ylabel(clean(label, 40))
        axes.set_ylim(0, best[0] * 1.15 or 1.0)
        _draw(figure, axes, lines, dict(zip(lines, _colors(len(lines)), strict=True)))
    return figure


def _lines(frame: pl.DataFrame) -> Lines:
    missing = [name for name in _COLUMNS if name not in frame.columns]
    if missing:
        raise UsageError(f"the frame has no column {missing[0]}", "frame", f"give {', '.join(_COLUMNS)}")
    lines: Lines = {}
    for group, load, value in frame.select(_COLUMNS).drop_nulls().iter_rows():
        lines.setdefault(str(group), {}).setdefault(float(load), []).append(float(value))
    if not lines:
        raise UsageError("the frame has no values", "frame", "give a row per group and load")
    return {group: dict(sorted(line.items())) for group, line in lines.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _ratio(line: Mapping[float, list[float]], base: Mapping[float, list[float]]) -> dict[float, float]:
    return {x: _mean(ys) / _mean(base[x]) for x, ys in line.items() if x in base and _mean(base[x]) > 0}


def _colors(count: int) -> list[str]:
    return [style.GROUPS[k % len(style.GROUPS)] for k in range(count)]


def _draw(figure: Figure, axes: Axes, lines: Lines, colors: Mapping[str, str]) -> None:
    ends = []
    for group, line in lines.items():
        if not line:
            continue
        points = [(x, _mean(ys)) for x, ys in line.items()]
        axes.plot([x for x, _ in points], [y for _, y in points], color=colors[group], zorder=3)
        style.dots(axes, points, colors[group])
        ranges: Any = [(x, min(ys), max(ys)) for x, ys in line.items() if len(ys) > 1]
        for x, low, high in ranges:
            axes.plot([x, x], [low, high], color=colors[group], linewidth=1.2, zorder=2)
        ends.append((points[-1][1], clean(group, 14), colors[group]))
    style.label_ends(figure, axes, ends)


def plain_ticks(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Ticks of a logarithmic axis as plain numbers, at 1 and 3 of every ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def _title(ratios: Mapping[str, Mapping[float, float]], base: str, label: str) -> str:
    """The finding: the ratio at the highest load that both have, of the group with the largest."""
    last = {group: list(line.items())[-1] for group, line in ratios.items() if line}
    if not last:
        return "No load is common to the baseline and another group"
    group, (x, ratio) = max(last.items(), key=lambda each: each[1][1])
    return f"{clean(group, 30)}: {number(ratio)} times {clean(base, 30)} in {clean(label, 30)} at {plain_number(x)}"


def _about(frame: pl.DataFrame, lines: Lines) -> str:
    takes = max(len(ys) for line in lines.values() for ys in line.values())
    several = f", up to {takes} takes each (bars: their range)" if takes > 1 else ""
    return f"n {frame.height} levels{several}"
