"""Figures of a comparison: sides beside each other against the load, and below that their ratio to the first.

Values are those of the comparison's own levels, a geometric mean over the runs of a side with a bar over their range;
ratios are its differences, with their 95 % intervals. Closed and open loops have axes of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.differences import Difference, difference
from gpusize.analysis.compare.figures import Figure as Compared
from gpusize.analysis.compare.figures import figure as compared
from gpusize.analysis.compare.matching import Place
from gpusize.analysis.delivery.intended import ramp_text
from gpusize.analysis.pooling import load_of
from gpusize.report.comparison.group_words import shown_in
from gpusize.report.figures import style
from gpusize.report.text import clean, number, plain_number, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Sweep", "against_figure", "counts_figure", "spent_figure", "sweeps"]

_LOG_FROM: Final = 8.0
"""Ratio of the largest value to the smallest from which an axis is logarithmic."""
_SHOWN: Final = 14
"""Characters of a side's name beside its line."""

Lines = dict[str, dict[float, list[float]]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Loads of one kind that lie on one axis.

    Attributes:
        loop: ``closed`` or ``open``.
        places: by concurrency or rate, ascending.
    """

    loop: str
    places: Mapping[float, Place]

    @property
    def label(self) -> str:
        """What is on the axis, with its unit."""
        return "offered rate (requests/s)" if self.loop == "open" else "concurrency (requests in flight)"

    def at(self, x: float) -> str:
        """A load in a sentence."""
        return self.places[x].name


def sweeps(comparison: Comparison) -> list[Sweep]:
    """The loads that all sides have by their loop and what else tells them apart; ramps lie on no axis."""
    found: dict[tuple[str, str], dict[float, Place]] = {}
    for place in comparison.places:
        level = next(level for k in range(len(place.levels)) for level in place.measured(k))
        if ramp_text(level.setting):
            continue
        x = level.concurrency if level.concurrency is not None else level.rate
        loop = "closed" if level.concurrency is not None else "open"
        if x is not None:
            found.setdefault((loop, json.dumps(json.loads(load_of(level))[-1])), {})[float(x)] = place
    made = [Sweep(loop, dict(sorted(places.items()))) for (loop, _), places in found.items()]
    return sorted(made, key=lambda sweep: -len(sweep.places))


def against_figure(comparison: Comparison, sweep: Sweep, name: str) -> Figure | None:
    """One figure of every side against the load, and below it the ratio of each to the first side.

    Where sides have counts and the figure is a rate, the ratio is the speed-up, what would be in proportion is dotted,
    and loads that were kept up with have none. None where fewer than two sides have the figure.

    Args:
        comparison: what was compared.
        sweep: the loads on the axis.
        name: as ``achieved rate`` or ``p95 runtime``.
    """
    of = compared(name)
    lines = _lines(comparison, sweep, of)
    if len(lines) < 2:
        return None
    first, *others = comparison.sides
    ratios = {side: _ratios(comparison, sweep, of, side) for side in others if side in lines}
    unit = time_unit([y for line in lines.values() for ys in line.values() for y in ys]) if of.unit == "s" else None
    scale, shown = (unit.per_s, unit.name) if unit else (1.0, of.unit)
    up = bool(comparison.counts) and of.better == "more"
    title = _title(ratios, sweep, of.name, first, up=up)
    about = _about(sweep, lines)
    if up:
        about += " · speed-up at the same load"
    if any(math.isfinite(each.low) for line in ratios.values() for each in line.values()):
        within = all(each.design == "within" for line in ratios.values() for each in line.values())
        about += ", 95 % intervals" if up else " · below 95 % intervals"
        about += " within the runs" if within else ""
    figure, (upper, lower) = style.new_figure(title, about, 2)
    style.level_axis(upper, list(sweep.places), "")
    style.level_axis(lower, list(sweep.places), sweep.label)
    upper.set_ylabel(f"{of.name} ({shown})")
    lower.set_ylabel("speed-up" if up else f"over {clean(first, 16)}")
    colors = _colors(comparison)
    values = [scale * y for line in lines.values() for ys in line.values() for y in ys]
    # A rate rises with the load on both sides; what asks for a logarithmic axis is that one side has many times more.
    _value_axis(upper, values, log=_far_apart(lines) if of.better == "more" else None)
    _draw_sides(figure, upper, lines, colors, scale)
    _draw_ratios(figure, lower, ratios, colors, _ideals(comparison, ratios) if up else {})
    return figure


def counts_figure(comparison: Comparison, sweep: Sweep, name: str = "achieved rate") -> Figure | None:
    """A rate against the count of GPUs or instances, a line per load (of many, seven spread evenly).

    None where sides have no counts, or fewer than two have the figure.
    """
    of = compared(name)
    lines = _lines(comparison, sweep, of) if comparison.counts else {}
    if len(lines) < 2:
        return None
    loads = list(sweep.places)
    most = len(style.GROUPS) - 1
    few = "" if len(loads) <= most else f", {most} of them"
    loads = loads if len(loads) <= most else [loads[k * (len(loads) - 1) // (most - 1)] for k in range(most)]
    turned: Lines = {
        sweep.at(x): {float(comparison.counts[side]): line[x] for side, line in lines.items() if x in line}
        for x in loads
    }
    best = max((_mean(ys), side, x) for side, line in lines.items() for x, ys in line.items())
    word = comparison.word
    figure, (axes,) = style.new_figure(
        f"Most of those measured: {plain_number(best[0])} {of.unit}, {clean(best[1], 30)} at {sweep.at(best[2])}",
        f"{_about(sweep, lines)} · a line per load{few}",
    )
    style.level_axis(axes, [float(count) for count in comparison.counts.values()], f"{word}s")
    axes.set_ylabel(f"{of.name} ({of.unit})")
    colors = {load: (style.GROUPS[k], style.MARKERS[k]) for k, load in enumerate(turned)}
    _value_axis(axes, [y for line in turned.values() for ys in line.values() for y in ys], log=False)
    _draw_sides(figure, axes, turned, colors, 1.0)
    return figure


def spent_figure(comparison: Comparison, sweep: Sweep) -> Figure | None:
    """What a request took on each side against the load, a pane for each figure that is known; None without any.

    Energy, time of GPUs and of CPU cores, and cost, with their 95 % intervals over runs.
    """
    places = {place.name: x for x, place in sweep.places.items()}
    found = [each for each in comparison.spent if each.load in places]
    names = list(dict.fromkeys(each.figure for each in found))
    # Time of GPUs per token is shown as what it costs, and else says what it does per request.
    names = [name for name in names if name != "GPU time per output token"]
    if not names:
        return None
    bars = " · bars: 95 % intervals over runs" if any(math.isfinite(each.low) for each in found) else ""
    title = _spent_title(comparison, sweep, names)
    figure, every = style.new_figure(title, f"{_n(sweep)}{bars}", len(names))
    figure.subplots_adjust(left=0.12)
    colors = _colors(comparison)
    for axes, name in zip(every, names, strict=True):
        rows = [each for each in found if each.figure == name]
        style.level_axis(axes, list(sweep.places), sweep.label if axes is every[-1] else "")
        scale, unit = shown_in(max(each.value for each in rows), rows[0].unit)
        axes.set_ylabel(_split_label(name, unit), fontsize=9)
        _value_axis(axes, [scale * each.value for each in rows])
        ends = []
        for side in comparison.sides:
            mine = sorted(
                (places[each.load], *(scale * y for y in (each.value, each.low, each.high)))
                for each in rows
                if each.side == side
            )
            if mine:
                color, marker = colors[side]
                axes.plot([x for x, *_ in mine], [y for _, y, *_ in mine], color=color, zorder=3)
                style.dots(axes, [(x, y) for x, y, *_ in mine], color, marker)
                _bars(axes, [(x, low, high) for x, _, low, high in mine], color)
                ends.append((mine[-1][1], clean(side, _SHOWN), color))
        style.label_ends(figure, axes, ends)
    return figure


def _spent_title(comparison: Comparison, sweep: Sweep, names: Sequence[str]) -> str:
    """The finding: the side that takes the least of the last figure at the highest load."""
    last = list(sweep.places)[-1]
    rows = [each for each in comparison.spent if each.load == sweep.at(last) and each.figure == names[-1]]
    if not rows:
        return f"What a request takes: {', '.join(names)}"
    least = min(rows, key=lambda each: each.value)
    unit = f" {clean(least.unit, 8)}" if least.unit else ""
    return f"Least {least.figure} at {sweep.at(last)}: {clean(least.side, 24)}, {plain_number(least.value)}{unit}"


def _split_label(name: str, unit: str) -> str:
    head, _, tail = name.partition(" per ")
    head, tail = (f"{head} per million", tail.removeprefix("million ")) if "million" in tail else (f"{head} per", tail)
    return f"{head}\n{tail} ({clean(unit, 8)})" if unit else f"{head}\n{tail}"


def _lines(comparison: Comparison, sweep: Sweep, of: Compared) -> Lines:
    """By side and load the values of its runs."""
    made: Lines = {}
    for k, side in enumerate(comparison.sides):
        for x, place in sweep.places.items():
            values = [found.value for level in place.measured(k) if of.is_known(found := of.measure(level))]
            if values:
                made.setdefault(side, {})[x] = values
    return made


def _ratios(comparison: Comparison, sweep: Sweep, of: Compared, side: str) -> dict[float, Difference]:
    """By load the difference to the first side; without those of an open loop that was kept up with."""
    k = list(comparison.sides).index(side)
    but = comparison.kept_up.get(side, ()) if of.better == "more" else ()
    found = {}
    for x, place in sweep.places.items():
        a, b = ([None if level is None else of.measure(level) for level in place.levels[i]] for i in (0, k))
        one = difference(side, place.name, of, a, b, paired=comparison.in_turns.get(side) != "no")
        if place.name not in but and not math.isnan(one.change):
            found[x] = one
    return found


def _ideals(comparison: Comparison, sides: Mapping[str, Any]) -> dict[str, float]:
    smallest = next(iter(comparison.counts.values()))
    return {side: comparison.counts[side] / smallest for side in sides if side in comparison.counts}


def _title(ratios: Mapping[str, Mapping[float, Difference]], sweep: Sweep, name: str, first: str, *, up: bool) -> str:
    """The finding: at the highest load, the side that is furthest from the first."""
    last = {side: list(line.items())[-1] for side, line in ratios.items() if line}
    if not last:
        return (
            "No speed-up: the loads were kept up with" if up else f"{name}: nothing to set against {clean(first, 20)}"
        )
    side, (x, found) = max(last.items(), key=lambda each: abs(math.log1p(each[1][1].change)))
    between = f" [{number(1 + found.low)}, {number(1 + found.high)}]" if math.isfinite(found.low) else ""
    return f"{clean(side, 24)}: {number(1 + found.change)}{between} times {clean(first, 20)} in {name} at {sweep.at(x)}"


def _n(sweep: Sweep) -> str:
    """How much it rests on: loads, and runs a side."""
    runs = [sum(level is not None for level in side) for place in sweep.places.values() for side in place.levels]
    between = f"{min(runs)} to {max(runs)}" if min(runs) < max(runs) else f"{runs[0]}"
    loads = len(sweep.places)
    return f"n {loads} load{'s' if loads != 1 else ''}, {between} run{'s' if max(runs) != 1 else ''} a side"


def _about(sweep: Sweep, lines: Lines) -> str:
    several = any(len(ys) > 1 for line in lines.values() for ys in line.values())
    return f"{_n(sweep)}{' · bars: range of runs' if several else ''}"


def _mean(values: Sequence[float]) -> float:
    """Geometric, as differences have it."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _colors(comparison: Comparison) -> dict[str, tuple[str, str]]:
    """By side its colour and marker."""
    return {
        side: (style.GROUPS[k % len(style.GROUPS)], style.MARKERS[k % len(style.MARKERS)])
        for k, side in enumerate(comparison.sides)
    }


def _far_apart(lines: Lines) -> bool:
    """Whether sides differ by so much at one load that one of them would lie on the axis."""
    loads = {x for line in lines.values() for x in line}
    means = [[_mean(line[x]) for line in lines.values() if x in line] for x in loads]
    return max(max(each) / min(each) for each in means) >= _LOG_FROM


def _value_axis(axes: Axes, values: Sequence[float], *, log: bool | None = None) -> None:
    """From 0, or logarithmic where values lie far apart."""
    from gpusize.report.figures.across import plain_ticks

    known = [value for value in values if value > 0]
    if log or (log is None and max(known) / min(known) >= _LOG_FROM):
        axes.set_yscale("log")
        axes.set_ylim(min(known) / 1.5, max(known) * 1.5)
        plain_ticks(axes)
    else:
        axes.set_ylim(0, max(known) * 1.2)


def _draw_sides(figure: Figure, axes: Axes, lines: Lines, colors: Mapping[str, tuple[str, str]], scale: float) -> None:
    ends = []
    for side, line in lines.items():
        color, marker = colors[side]
        points = [(x, scale * _mean(ys)) for x, ys in line.items()]
        axes.plot([x for x, _ in points], [y for _, y in points], color=color, zorder=3)
        style.dots(axes, points, color, marker)
        _bars(axes, [(x, scale * min(ys), scale * max(ys)) for x, ys in line.items() if len(ys) > 1], color)
        ends.append((points[-1][1], clean(side, _SHOWN), color))
    style.label_ends(figure, axes, ends)


def _draw_ratios(
    figure: Figure,
    axes: Axes,
    ratios: Mapping[str, Mapping[float, Difference]],
    colors: Mapping[str, tuple[str, str]],
    ideals: Mapping[str, float],
) -> None:
    points = {side: [(x, 1 + each.change) for x, each in line.items()] for side, line in ratios.items()}
    known = [y for line in points.values() for _, y in line] or [1.0]
    if max(known) >= _LOG_FROM or min(known) <= 1 / _LOG_FROM:
        _value_axis(axes, [*known, 1.0, *ideals.values()], log=None)
    else:
        highs = [1 + each.high for line in ratios.values() for each in line.values() if math.isfinite(each.high)]
        top = max([1.0, *known, *ideals.values()])
        axes.set_ylim(0, min(max([top, *highs]), 1.6 * top) * 1.1)
    axes.axhline(1.0, color=style.MUTED, linewidth=1.0, zorder=2)
    ends = []
    for side, line in points.items():
        color, marker = colors[side]
        if side in ideals:
            axes.axhline(ideals[side], color=color, linestyle=(0, (1, 2)), linewidth=1.3, zorder=2)
        if line:
            axes.plot([x for x, _ in line], [y for _, y in line], color=color, zorder=3)
            style.dots(axes, line, color, marker)
            bars = [(x, 1 + each.low, 1 + each.high) for x, each in ratios[side].items() if math.isfinite(each.low)]
            _bars(axes, bars, color)
            ends.append((line[-1][1], clean(side, _SHOWN), color))
    if ideals:
        left = axes.get_xlim()[0]
        style.note(axes, "in proportion", (left, max(ideals.values())), (4, 3), color=style.MUTED, size=8)
    style.label_ends(figure, axes, ends)


def _bars(axes: Axes, bars: Sequence[tuple[float, float, float]], color: str) -> None:
    for x, low, high in bars:
        if math.isfinite(low) and math.isfinite(high):
            axes.plot([x, x], [low, high], color=color, linewidth=1.3, marker="_", markersize=5, zorder=2)
