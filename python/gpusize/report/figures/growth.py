"""The most requests/s by the number of GPUs or instances, and the law that they follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.scaling_law import Carried, ScalingLaw
from gpusize.report.figures import style
from gpusize.report.text import number, plain_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

__all__ = ["growth_figure"]

_NAMES = {"linear": "linear", "amdahl": "Amdahl", "usl": "USL"}


def growth_figure(comparison: Comparison) -> Figure | None:
    """The most requests/s of each count with its interval, the law with its own, and what would be in proportion.

    Nothing was measured where it is shaded. Below, the efficiency: of one, over one of the smallest count. None where
    fewer than two counts show their most.
    """
    law = comparison.law
    if law is None or len(law.measured) < 2:
        return None
    first, last = law.measured[0], law.measured[-1]
    top = law.curve[-1].count if law.curve else last.count
    word = comparison.word
    figure, (upper, lower) = style.new_figure(_title(law, word), _about(law), 2)
    counts = [float(each.count) for each in law.measured]
    ticks = [*counts, float(top)] if top > last.count else counts
    for axes in (upper, lower):
        style.level_axis(axes, ticks, f"{word}s" if axes is lower else "")
        if top > last.count:
            axes.axvspan(last.count, axes.get_xlim()[1], color=style.SHADE, zorder=0, linewidth=0)
    xs = [each.count for each in law.curve] or [each.count for each in law.measured]
    each_one = first.rate.value / first.count
    upper.plot(xs, [each_one * x for x in xs], color=style.MUTED, linestyle=(0, (1, 2)), linewidth=1.3, zorder=2)
    lower.axhline(1.0, color=style.MUTED, linestyle=(0, (1, 2)), linewidth=1.3, zorder=2)
    ends = []
    if law.curve:
        for axes, part in (
            (upper, [each.rate for each in law.curve]),
            (lower, [each.efficiency for each in law.curve]),
        ):
            axes.plot(xs, [one.value for one in part], color=style.MID, zorder=3)
            edges = [
                [one.low for one in part],
                [one.high if math.isfinite(one.high) else 1e3 * one.value for one in part],
            ]
            axes.fill_between(xs, edges[0], edges[1], color=style.MID, alpha=0.16, linewidth=0, zorder=1)
        ends = [(law.curve[-1].rate.value, _NAMES[law.name], style.MID)]
        ends += [(each_one * top, "in proportion", style.MUTED)] if law.name != "linear" else []
    points = [(float(each.count), each.rate.value) for each in law.measured]
    shares = [(float(each.count), each.efficiency.value) for each in law.measured]
    style.dots(upper, points, style.LIMIT)
    style.dots(lower, shares, style.LIMIT)
    for each in law.measured:
        for axes, one in ((upper, each.rate), (lower, each.efficiency)):
            axes.plot([each.count] * 2, [one.low, one.high], color=style.LIMIT, linewidth=1.3, marker="_", zorder=3)
    upper.set_ylim(0, 1.12 * _top(law.measured, law.curve, each_one * top))
    lower.set_ylim(0, 1.15 * max([1.0, *(each.efficiency.high for each in law.measured)]))
    upper.set_ylabel("most requests/s")
    lower.set_ylabel("efficiency")
    style.label_ends(figure, upper, ends)
    return figure


def _top(measured: Sequence[Carried], curve: Sequence[Carried], ideal: float) -> float:
    values = [each.rate.high for each in measured] + [each.rate.value for each in curve]
    return max([*values, min(ideal, 2 * max(values))])


def _title(law: ScalingLaw, word: str) -> str:
    first, last = law.measured[0], law.measured[-1]
    between = f" [{number(last.speed_up.low)}, {number(last.speed_up.high)}]"
    words = f"{word}{'s' if last.count != 1 else ''}"
    return f"{last.count} {words} answer {number(last.speed_up.value)}{between} times as much as {first.count}"


def _about(law: ScalingLaw) -> str:
    runs = sum(each.runs for each in law.measured)
    base = f"n {len(law.measured)} counts, {runs} runs, {law.loop} loop · bars and band: 95 %"
    if law.sigma is None or law.kappa is None:
        return f"{base} · {law.why_not}"
    s, k = law.sigma, law.kappa
    ends = f"s {plain_number(s.value)} [{plain_number(s.low)}, {plain_number(s.high)}]"
    kappa = f"k {k.value:.2g} [{k.low:.2g}, {k.high:.2g}]"
    return f"{base} · {_NAMES[law.name]}: {ends}, {kappa}"
