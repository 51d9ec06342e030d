"""Figures of a study: what a setting brings, as peak rate and as p95 runtime at each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.figures import style
from gpusize.report.text import clean, finite, number, plain_number, time_unit
from gpusize.studies.table import p95_by_level, varying

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["study_figures"]

Row = Mapping[str, Any]
_MOST_PANELS: Final = 4
_MOST_LINES: Final = 8
_RAMP: Final = (style.LOW, style.MID, style.HIGH, style.OTHER, style.LIMIT, style.AMBER, style.GOOD, style.MUTED)


@dataclass(frozen=True, slots=True)
class _Axis:
    """The setting on the x axis: its values in order, as numbers where all of them are such."""

    name: str
    values: tuple[Any, ...]
    numbers: bool

    def place(self, value: Any) -> float:
        return float(value) if self.numbers else float(self.values.index(value))

    def draw(self, axes: Axes, *, label: bool = True) -> None:
        shown = clean(self.name, 60) if label else ""
        if self.numbers:
            style.level_axis(axes, [float(each) for each in self.values], shown)
            return
        axes.set_xlim(-0.4, len(self.values) - 0.6)
        axes.set_xticks(range(len(self.values)), [clean(each, 16) for each in self.values])
        axes.set_xlabel(shown)


def study_figures(name: str, rows: Sequence[Row], levels: Sequence[Row]) -> dict[str, Figure]:
    """The figures that the study has data for: ``study-rate`` and ``study-p95``.

    The x axis is the setting with most values, of numbers before texts; each combination of the others is a line, or
    in ``study-p95`` a panel.

    Args:
        name: the study's.
        rows: of ``gpusize.studies.table.study_rows``.
        levels: of ``gpusize.studies.page.study_levels``.
    """
    known = [row for row in rows if row["peak_rate"] is not None]
    names = varying(known)
    if not known or not names:
        return {}
    axis = max((_axis(known, each) for each in names), key=lambda a: (a.numbers, len(a.values)))
    groups: dict[str, list[Row]] = {}
    for row in known:
        groups.setdefault(_others(row, names, axis.name), []).append(row)
    with style.settings():
        made = {"study-rate": _rate_figure(name, axis, groups), "study-p95": _p95_figure(name, axis, groups, levels)}
    return {key: figure for key, figure in made.items() if figure is not None}


def _axis(rows: Sequence[Row], name: str) -> _Axis:
    values = list(dict.fromkeys(row["settings"].get(name) for row in rows))
    numbers = all(finite(each) is not None and not isinstance(each, bool) for each in values)
    return _Axis(name, tuple(sorted(values) if numbers else values), numbers)


def _others(row: Row, names: Sequence[str], but: str) -> str:
    return ", ".join(f"{clean(name, 30)} {clean(row['settings'].get(name), 30)}" for name in names if name != but)


def _rate_figure(name: str, axis: _Axis, groups: Mapping[str, Sequence[Row]]) -> Figure:
    figure, (axes,) = style.new_figure(_rate_title(axis, groups), f"study {clean(name, 80)}")
    axis.draw(axes)
    axes.set_ylabel("peak rate (requests/s)")
    axes.set_ylim(0, max(row["peak_rate"] for rows in groups.values() for row in rows) * 1.15 or 1.0)
    ends = []
    for color, (group, rows) in zip(_RAMP, groups.items(), strict=False):
        points = sorted((axis.place(row["settings"].get(axis.name)), row["peak_rate"]) for row in rows)
        _line(axes, points, color, axis)
        ends.append((points[-1][1], number(points[-1][1]), color))
        axes.plot([], [], color=color, label=group)
    if len(groups) > 1:
        axes.legend(loc="upper left")
    style.label_ends(figure, axes, ends)
    return figure


def _rate_title(axis: _Axis, groups: Mapping[str, Sequence[Row]]) -> str:
    """The finding: which value of the setting brought most, and how much more than the least."""
    best = max((row for rows in groups.values() for row in rows), key=lambda row: row["peak_rate"])
    at = f"{clean(axis.name, 30)} {clean(best['settings'].get(axis.name), 30)}"
    title = f"Most at {at}: {plain_number(best['peak_rate'])} requests/s"
    same = next(rows for rows in groups.values() if best in rows)
    first = min(same, key=lambda row: axis.place(row["settings"].get(axis.name)))
    if axis.numbers and first is not best and first["peak_rate"]:
        was = clean(first["settings"].get(axis.name), 30)
        title += f", {plain_number(best['peak_rate'] / first['peak_rate'])} times those at {was}"
    return title


def _p95_figure(name: str, axis: _Axis, groups: Mapping[str, Sequence[Row]], levels: Sequence[Row]) -> Figure | None:
    p95_s = p95_by_level(levels)
    every = sorted({x for found in p95_s.values() for x in found})
    if not every:
        return None
    shown = every if len(every) <= _MOST_LINES else [every[k * (len(every) - 1) // (_MOST_LINES - 1)] for k in range(8)]
    highest = max(found[x] for found in p95_s.values() for x in found if x in shown)
    unit = time_unit([highest])
    panels = dict(list(groups.items())[:_MOST_PANELS])
    left = f", the first {len(panels)} of {len(groups)} kinds" if len(panels) < len(groups) else ""
    about = f"study {clean(name, 80)}; a line per level, named at its end{left}"
    figure, many = style.new_figure(f"p95 runtime at each level against {clean(axis.name, 40)}", about, len(panels))
    for axes, (group, rows) in zip(many, panels.items(), strict=True):
        axis.draw(axes, label=axes is many[-1])
        axes.set_ylabel(f"p95 runtime ({unit.name})")
        axes.set_ylim(0, highest * unit.per_s * 1.12 or 1.0)
        if group:
            axes.text(0.01, 0.97, group, transform=axes.transAxes, va="top", fontsize=9.5, color=style.MUTED)
        ends = []
        for color, x in zip(_RAMP, shown, strict=False):
            found = [(row, p95_s.get(row["name"], {}).get(x)) for row in rows]
            points = sorted(
                (axis.place(r["settings"].get(axis.name)), y * unit.per_s) for r, y in found if y is not None
            )
            if points:
                _line(axes, points, color, axis)
                ends.append((points[-1][1], plain_number(x, 6), color))
        style.label_ends(figure, axes, ends)
    return figure


def _line(axes: Axes, points: Sequence[tuple[float, float]], color: str, axis: _Axis) -> None:
    """Numbers are joined by a line; texts have no order, so that nothing lies between them."""
    if axis.numbers:
        axes.plot([x for x, _ in points], [y for _, y in points], color=color, zorder=3)
    style.dots(axes, points, color)
