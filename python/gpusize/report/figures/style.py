"""How the plots look: one palette, one set of matplotlib settings, and the small parts that every figure shares.

The palette is Okabe and Ito's, which stays apart under the common kinds of colour blindness; percentiles are three
steps of one hue, ordered by lightness, so that they keep their order on a grey printer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK: Final = "#1f2933"
MUTED: Final = "#6b7785"
GRID: Final = "#e3e7ec"
PAPER: Final = "#ffffff"
SHADE: Final = "#f1f3f6"
LOW: Final = "#7fb5d8"
MID: Final = "#0072b2"
HIGH: Final = "#0b3a5e"
LIMIT: Final = "#d55e00"
GOOD: Final = "#009e73"
OTHER: Final = "#b0589a"
AMBER: Final = "#b07d00"

PERCENTILES: Final = {"p50": LOW, "p95": MID, "p99": HIGH}
SERIES: Final = (MID, OTHER, AMBER, GOOD)
"""Colours of several SLOs in one figure, in order."""

GROUPS: Final = (MID, LIMIT, HIGH, OTHER, GOOD, AMBER, LOW, MUTED)
"""Colours of groups beside each other, in order; their markers and names at the ends tell them apart as well."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")

# Names of the page's CSS variables, so that an inlined figure follows a dark page.
CSS_NAMES: Final = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    SHADE: "shade",
    LOW: "low",
    MID: "mid",
    HIGH: "high",
    LIMIT: "limit",
    GOOD: "good",
    OTHER: "other",
    AMBER: "amber",
}

DARK: Final = {
    INK: "#e6eaef",
    MUTED: "#97a3b1",
    GRID: "#2c343d",
    PAPER: "#14181d",
    SHADE: "#1d232a",
    LOW: "#3f7fa8",
    MID: "#56b4e9",
    HIGH: "#bfe3f8",
    LIMIT: "#ff9650",
    GOOD: "#35c99c",
    OTHER: "#dd8fc8",
    AMBER: "#e3b341",
}
"""Each colour on dark paper; percentiles keep their order by lightness, the other way round."""

WIDTH_IN: Final = 8.4
HEIGHT_IN: Final = 4.7

_SETTINGS: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "lines.solid_capstyle": "round",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3.5,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "svg.fonttype": "path",
    "svg.hashsalt": "gpusize",
}


_LOOKS: Final = (
    "axes.",
    "figure.",
    "font.",
    "grid.",
    "legend.",
    "lines.",
    "markers.",
    "patch.",
    "path.",
    "savefig.",
    "svg.",
    "text.",
    "xtick.",
    "ytick.",
)


def settings() -> AbstractContextManager[None]:
    """The house settings as a context; nothing outside it changes."""
    import matplotlib as mpl

    # The user's own style sheet must not show; backends and the like are not ours to touch, and would not be restored.
    looks = {name: value for name, value in mpl.rcParamsDefault.items() if name.startswith(_LOOKS)}
    settings: Any = {**looks, **_SETTINGS}
    return mpl.rc_context(settings)


def darkened(figure: Figure) -> Figure:
    """The figure in its dark variant: every colour of the palette that an artist has becomes its pair in ``DARK``.

    It is changed in place, and returned. Ticks that are made later have the dark colours too.
    """
    from matplotlib.collections import Collection
    from matplotlib.colors import to_hex, to_rgba
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text

    def pair(color: Any) -> Any:
        if isinstance(color, str) and color == "none":
            return color
        alpha = to_rgba(color)[3]
        found = DARK.get(to_hex(color))
        return color if found is None or alpha == 0 else to_rgba(found, alpha)

    figure.canvas.draw()  # ticks are made when they are needed
    for each in figure.findobj():
        if isinstance(each, Line2D):
            each.set_color(pair(each.get_color()))
            each.set_markerfacecolor(pair(each.get_markerfacecolor()))
            each.set_markeredgecolor(pair(each.get_markeredgecolor()))
        elif isinstance(each, Text):
            each.set_color(pair(each.get_color()))
            if each.get_path_effects():
                each.set_path_effects([withStroke(linewidth=3, foreground=DARK[PAPER])])
        elif isinstance(each, Patch):
            face, edge = each.get_facecolor(), each.get_edgecolor()
            each.set_facecolor(pair(face))
            each.set_edgecolor(pair(edge))
        elif isinstance(each, Collection):
            each.set_facecolor([pair(color) for color in each.get_facecolor()])
            each.set_edgecolor([pair(color) for color in each.get_edgecolor()])
    for axes in figure.axes:
        axes.tick_params(which="both", color=DARK[MUTED], labelcolor=DARK[INK], grid_color=DARK[GRID])
    return figure


def new_figure(
    title: str, subtitle: str, panels: int = 1, *, height_in: float | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with ``panels`` axes on top of each other, its finding as title and what it shows below that."""
    from gpusize.report.figures.shown_figure import ShownFigure

    if height_in is None:
        height_in = HEIGHT_IN if panels == 1 else HEIGHT_IN + 2.1 * (panels - 1)
    figure = ShownFigure(figsize=(WIDTH_IN, height_in), dpi=150)
    figure.subplots_adjust(left=0.095, right=0.865, top=1 - 0.98 / height_in, bottom=0.56 / height_in, hspace=0.16)
    figure.text(0.022, 1 - 0.16 / height_in, title, fontsize=12.5, fontweight="bold", va="top", ha="left")
    figure.text(0.022, 1 - 0.44 / height_in, subtitle, fontsize=9.5, color=MUTED, va="top", ha="left")
    grid = figure.subplots(panels, 1, sharex=True, squeeze=False)
    axes = [row[0] for row in grid]
    for each in axes:
        each.grid(visible=False, axis="x")
    return figure, axes


def note(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    *,
    color: str = INK,
    size: float = 9,
    bold: bool = False,
    **more: Any,
) -> None:
    """Text ``offset`` points from a point of the data, with a rim of paper colour that keeps it legible on a line."""
    from matplotlib.patheffects import withStroke

    rim = [withStroke(linewidth=3, foreground=PAPER)]
    weight = "bold" if bold else "normal"
    look = {"color": color, "fontsize": size, "fontweight": weight, "path_effects": rim, "zorder": 7, **more}
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **look)


def dots(axes: Axes, points: Sequence[tuple[float, float]], color: str, marker: str = "o", **more: Any) -> None:
    """Unconnected markers with an edge of paper colour, which keeps those that overlap apart."""
    look: dict[str, Any] = {"marker": marker, "markerfacecolor": color, "linestyle": "none", "zorder": 4}
    look |= {"markeredgecolor": PAPER, "markeredgewidth": 0.9, "clip_on": False, **more}
    axes.plot([x for x, _ in points], [y for _, y in points], **look)


def mark_crossing(axes: Axes, x: float, y: float) -> None:
    """The point that an estimate rests on: a ring at (x, y) and a dotted line down to the axis."""
    axes.plot([x, x], [0, y], color=INK, linewidth=1.1, linestyle=(0, (1, 1.5)), zorder=2)
    ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": PAPER, "markeredgecolor": INK}
    axes.plot([x], [y], linestyle="none", markeredgewidth=1.8, zorder=6, **ring)


def level_axis(axes: Axes, levels: Sequence[float], label: str) -> None:
    """The x axis of a sweep: the tested levels as ticks, on a log scale when they span a factor of 12 or more."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    known = sorted(set(levels))
    if len(known) > 2 and known[0] > 0 and known[-1] / known[0] >= 12:
        axes.set_xscale("log", base=2)
        low, high = known[0], known[-1]
        margin = (high / low) ** 0.05
        axes.set_xlim(low / margin, high * margin)
    elif known:
        # A level of one moment has the rate 0: an axis from 0 to 0 has no length.
        margin = max((known[-1] - known[0]) * 0.05, known[-1] * 0.04) or 1.0
        axes.set_xlim(max(0.0, known[0] - margin), known[-1] + margin)
    ticks = _spread(axes, known)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


_LABEL_PT: Final = 13.7


def _spread(axes: Axes, values: list[float], least: float = 0.045) -> list[float]:
    """Those of the values that keep a share ``least`` of the axis between each other, first and last included."""
    import math

    def at(value: float) -> float:
        low, high = axes.get_xlim()
        if axes.get_xscale() == "log":
            return math.log(value / low) / math.log(high / low)
        return (value - low) / ((high - low) or 1.0)

    kept = values[:1]
    for value in values[1:]:
        if at(value) - at(kept[-1]) >= least:
            kept.append(value)
    if values and kept[-1] != values[-1]:
        kept[-1:] = [values[-1]] if len(kept) > 1 else [kept[0], values[-1]]
    return kept


def label_ends(figure: Figure, axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names at the right edge, each beside the end of its line: (y, text, colour); pushed apart where they collide."""
    import math

    if not ends:
        return
    low, high = axes.get_ylim()
    log = axes.get_yscale() == "log"

    def at(y: float) -> float:
        if log:
            return math.log(max(y, low) / low) / math.log(high / low)
        return (y - low) / ((high - low) or 1.0)

    # The height of a line of text, as a share of the axes: both in display pixels.
    least = _LABEL_PT / 72 * figure.dpi / axes.get_window_extent().height
    order = sorted(ends, key=lambda end: end[0])
    placed = pushed_apart([at(y) for y, _, _ in order], least)
    for where, (_, text, color) in zip(placed, order, strict=True):
        axes.annotate(
            text,
            (1.0, where),
            xycoords="axes fraction",
            xytext=(7, 0),
            textcoords="offset points",
            color=color,
            va="center",
            ha="left",
            fontsize=9.5,
            fontweight="bold",
            annotation_clip=False,
        )


def pushed_apart(wanted: Sequence[float], least: float) -> list[float]:
    """Places ``least`` apart and within the axes, as near to those wanted (ascending) as can be in squares.

    Pools neighbours that collide around their mean (isotonic regression of the places less their offsets).
    """
    pools: list[tuple[float, int]] = []
    for number, place in enumerate(wanted):
        pools.append((place - number * least, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, m), (high, n) = pools[-2:]
            pools[-2:] = [((m * low + n * high) / (m + n), m + n)]
    bottoms = [bottom for bottom, count in pools for _ in range(count)]
    highest = 1.0 - (len(wanted) - 1) * least
    return [min(max(bottom, 0.0), max(highest, 0.0)) + number * least for number, bottom in enumerate(bottoms)]
