"""The picture of a plan: GPUs over users, rates, bounds or time, with a band for what is not known better."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.errors import PathMissing, UsageError
from gpusize.base.files import write_atomic
from gpusize.report.figures import style
from gpusize.report.plans.words import bound_text, finding, load_text, slo_text, unit_text
from gpusize.report.text import plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpusize.estimate.plan import Row, WhatIf

__all__ = ["check_place", "draw_plan", "plan_figure"]

WIDE: Final = 40.0
"""From this ratio of its ends on an axis is logarithmic: below, a straight line is easier to read."""
MOST_LABELS: Final = 12
MOST_LINES: Final = 2 * len(style.SERIES)
"""Colours once with a line, once with dashes."""


class _Line(NamedTuple):
    """One curve: its name, its rows with and without an answer in order along the axis, its colour, its dashes."""

    name: str
    rows: list[Row]
    refused: list[Row]
    color: str
    dashes: Any = "-"


def check_place(path: str | Path) -> None:
    """Refuse a file that no picture can be written to, before there is one.

    Raises:
        UsageError: its ending is of no picture.
        StoreError: its folder does not exist.
    """
    from gpusize.report.figures.load import check_ending

    check_ending(path, "plot")
    if not Path(path).parent.is_dir():
        raise PathMissing("no such folder", str(Path(path).parent), "make it, or choose another")


def draw_plan(plan: WhatIf, path: str | Path) -> Path:
    """Write the picture as .png, .svg or .pdf.

    Raises:
        UsageError: another ending, or no row with an answer.
        StoreError: the file cannot be written.
    """
    check_place(path)
    file, drawn = Path(path), BytesIO()
    with style.settings():
        plan_figure(plan).savefig(drawn, format=file.suffix[1:].lower())
    write_atomic(file, drawn.getvalue())
    return file


def plan_figure(plan: WhatIf) -> Figure:
    """GPUs over the plan's axis; one line for each bound and time besides.

    Raises:
        UsageError: no row has an answer.
    """
    if not plan.answered:
        raise UsageError("no row of the plan has an answer, so there is nothing to draw", None, "see its reasons")
    with style.settings():
        lines = _lines(plan)
        figure, (axes,) = style.new_figure(finding(plan), slo_text(plan))
        _axis(axes, plan)
        for line in lines:
            _draw(axes, plan, line, alone=len(lines) == 1)
        _refused(axes, plan, lines)
        _counts(axes, plan)
        if len(lines) > 1:
            _names(figure, axes, plan, lines)
        elif plan.price is not None:
            _money(axes, plan)
        if axes.get_legend_handles_labels()[0]:
            # More time for an answer needs fewer GPUs: there is room on the other side.
            axes.legend(loc="upper right" if plan.axis == "bound" else "upper left", handlelength=1.8)
    return figure


def _at(plan: WhatIf, row: Row) -> float:
    if plan.axis == "bound":
        return row.bound or 1.0
    if plan.axis == "growth":
        return float(list(dict.fromkeys(each.step for each in plan.rows)).index(row.step))
    return row.load


def _lines(plan: WhatIf) -> list[_Line]:
    """The rows with an answer, a line for each bound and time that is no axis."""
    groups: dict[str, list[Row]] = {}
    several = {row.step for row in plan.rows} if plan.axis != "growth" else set()
    for row in plan.rows:
        parts = [bound_text(row) if plan.axis != "bound" else "", row.step if len(several) > 1 else ""]
        groups.setdefault(" ".join(part for part in parts if part), []).append(row)
    kept = {
        name: sorted((row for row in rows if row.gpus is not None), key=lambda row: _at(plan, row))
        for name, rows in groups.items()
    }
    kept = {name: rows for name, rows in kept.items() if rows}
    if len(kept) > MOST_LINES:
        raise UsageError(f"{len(kept)} lines are too many for one picture", "plot", f"ask for at most {MOST_LINES}")
    return [
        _Line(
            name,
            rows,
            [row for row in groups[name] if row.gpus is None],
            style.SERIES[k % len(style.SERIES)],
            "-" if k < len(style.SERIES) else (0, (4, 1.5)),
        )
        for k, (name, rows) in enumerate(kept.items())
    ]


def _axis(axes: Axes, plan: WhatIf) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    places = sorted({_at(plan, row) for row in plan.rows})
    if plan.axis == "growth":
        names = list(dict.fromkeys(row.step for row in plan.rows))
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.xaxis.set_major_locator(FixedLocator(list(range(len(names)))))
        axes.xaxis.set_major_formatter(FixedFormatter(names))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"{load_text(plan, plan.rows[0])} now")
        return
    label = unit_text(plan)
    if plan.axis == "bound":
        label = "bound (s)" if plan.rows[0].bound_s is not None else "bound, as a multiple of the SLO's"
    if _wide(places):
        style.level_axis(axes, places, label)
        return
    axes.set_xlim(0, places[-1] * 1.03)
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(lambda value, _: plain_number(value, 6))


def _wide(values: Sequence[float]) -> bool:
    return len(values) > 1 and values[0] > 0 and values[-1] / values[0] >= WIDE


def _draw(axes: Axes, plan: WhatIf, line: _Line, *, alone: bool) -> None:
    xs = [_at(plan, row) for row in line.rows]
    counts = [row.gpus or 0 for row in line.rows]
    # Without an end to one side the band ends at the count itself there.
    low = [row.gpus_low or row.gpus or 0 for row in line.rows]
    high = [row.gpus_high or row.gpus or 0 for row in line.rows]
    axes.fill_between(xs, low, high, color=line.color, alpha=0.18, linewidth=0, zorder=2)
    look: dict[str, Any] = {"marker": "o", "markeredgecolor": style.PAPER, "linestyle": line.dashes}
    axes.plot(xs, counts, color=line.color, zorder=4, clip_on=False, **look)
    if alone:
        axes.plot([], [], color=line.color, marker="o", label="GPUs")
        axes.fill_between([], [], [], color=line.color, alpha=0.18, linewidth=0, label="interval")
    if plan.failed:
        known = [(x, row.failed.gpus) for x, row in zip(xs, line.rows, strict=True) if row.failed is not None]
        dotted: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.5}
        if known:
            axes.plot(*zip(*known, strict=True), color=line.color, zorder=3, **dotted)
            if not any(each.get_label() == _failed_text(plan) for each in axes.lines):
                axes.plot([], [], color=line.color if alone else style.MUTED, label=_failed_text(plan), **dotted)
    if alone:
        _numbers(axes, xs, counts, below=bool(plan.failed))


def _failed_text(plan: WhatIf) -> str:
    return f"GPUs that stand {plan.failed} failed replica{'' if plan.failed == 1 else 's'}"


def _names(figure: Figure, axes: Axes, plan: WhatIf, lines: Sequence[_Line]) -> None:
    """Each line's name at its end: at the right edge where it goes that far, else beside its last point."""
    edge = max(_at(plan, row) for row in plan.rows)
    ends = [(_at(plan, line.rows[-1]), float(line.rows[-1].gpus or 0), line) for line in lines]
    style.label_ends(figure, axes, [(y, line.name, line.color) for x, y, line in ends if x == edge])
    early: dict[tuple[float, float], list[_Line]] = {}
    for x, y, line in ends:
        if x < edge:
            early.setdefault((x, y), []).append(line)
    for (x, y), same in early.items():
        names = ", ".join(line.name for line in same)
        style.note(axes, names, (x, y), (8, 0), va="center", color=same[-1].color, size=9.5, bold=True)


def _numbers(axes: Axes, xs: Sequence[float], counts: Sequence[int], *, below: bool) -> None:
    """Counts above their points, or below where another line is above, as far as they keep clear of each other."""
    import math

    low, high = axes.get_xlim()
    log = axes.get_xscale() == "log"
    last = -math.inf
    for x, count in zip(reversed(xs), reversed(counts), strict=True):
        place = math.log(x / low) / math.log(high / low) if log else (x - low) / (high - low)
        if abs(place - last) < 1 / MOST_LABELS:
            continue
        last = place
        # Not below where the axis is.
        down = below and count > 0.1 * max(counts)
        offset = (0, -15 if down else 7)
        style.note(axes, f"{count:,}", (x, count), offset, ha="center", bold=True, annotation_clip=False)


def _refused(axes: Axes, plan: WhatIf, lines: Sequence[_Line]) -> None:
    """Crosses at the foot where there is no answer, of several lines in their colours."""
    foot = axes.get_xaxis_transform()
    look: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 1.8, "linestyle": "none", "zorder": 6}
    alone = len(lines) == 1
    for number, line in enumerate(each for each in lines if each.refused):
        xs = [_at(plan, row) for row in line.refused]
        color = style.LIMIT if alone else line.color
        axes.plot(xs, [0.025 + 0.045 * number] * len(xs), color=color, transform=foot, **look)
    if any(line.refused for line in lines):
        axes.plot([], [], color=style.LIMIT if alone else style.MUTED, label="no answer", **look)


def _counts(axes: Axes, plan: WhatIf) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    known = [row for row in plan.rows if row.gpus is not None]
    most = max(max(row.gpus_high or 0, row.gpus or 0, row.failed.gpus if row.failed else 0) for row in known)
    least = min(row.gpus or 0 for row in known)
    if axes.get_xscale() == "log":
        # Both or none, so that what grows in proportion is straight.
        axes.set_yscale("log")
        axes.set_ylim(max(0.7, 0.7 * least), most * 1.6)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, most * 1.15 + 0.2)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value, 6))
    axes.set_ylabel("GPUs")


def _money(axes: Axes, plan: WhatIf) -> None:
    """What the counts cost, at the right edge: the same axis in another unit."""
    from matplotlib.ticker import LogLocator, NullLocator

    price = plan.price
    if price is None:
        return
    each = price.per_month

    def paid(gpus: Any) -> Any:
        return gpus * each

    def bought(money: Any) -> Any:
        return money / each

    beside = axes.secondary_yaxis("right", functions=(paid, bought))
    beside.spines["right"].set_visible(False)
    if axes.get_yscale() == "log":
        beside.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        beside.yaxis.set_minor_locator(NullLocator())
    beside.yaxis.set_major_formatter(lambda value, _: plain_number(value, 6))
    beside.set_ylabel(f"{price.currency or 'cost'} per month".strip())
