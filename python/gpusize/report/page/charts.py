"""Figures as points, for the page's own script: what it draws anew in the reader's width, with values to point at.

They are read off the figures themselves, so that a picture, its file and the page show one thing. A figure that holds
more than lines, points and shades stays a picture.

Of a figure, `chart` gives what the script reads; places are data, texts are not escaped:

- ``t`` title, ``x`` label of the x axis, ``u`` its unit, ``lv`` whether it has levels (else time), ``log``, ``xs`` the
  x values that can be pointed at, ``lims`` the range of x, linear and log
- ``keys`` (colour, text) of what has no room for its name beside the line; the page's template shows them
- ``r`` what pointing shows: (name, colour, texts by ``xs``)
- ``p`` panels: ``l`` label, ``up`` room above in pixels, ``y`` log or not, ``lims`` as above, ``s`` lines (how, colour,
  points), ``n`` notes (x, y, right and up in pixels, how, colour, text), ``e`` names at the right edge (y, colour,
  text)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.figures import style
from gpusize.report.text import percent, plain_number, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["chart"]

Point = tuple[float, float]
PIXELS: Final = 4 / 3
"""In a point of text."""
_PALE: Final = ("low", "limit", "good", "other", "amber")
_FAR: Final = 1e9
_FINE: Final = 1.5
"""Points of width up to which a line is no series: an interval, or a mark."""
_FIGURE: Final = re.compile(r"[\d.,]+%?$")
_ROOM: Final = (24, 38)
"""Pixels above a panel, without and with names of levels."""


def chart(figure: Figure) -> dict[str, Any] | None:
    """What the script draws of a figure; None where it has to stay a picture."""
    from matplotlib.ticker import FixedLocator

    every = figure.axes
    if not every or any(each.collections or each.images or _patches(each) is None for each in every):
        return None
    if len({each.get_position().x0 for each in every}) > 1:
        return None
    if not _is_numeric(every[-1]):
        return None
    levels = isinstance(every[-1].xaxis.get_major_locator(), FixedLocator)
    panels = [_Panel(each) for each in every]
    xs = sorted({x for each in (panels if levels else panels[:1]) for _, _, at in each.values for x, _ in at})
    if not xs:
        return None
    read = _at_level if levels else _in_course
    label, limits = every[-1].get_xlabel(), _x_limits(every[-1], xs, levels=levels)
    unit = label.removeprefix("concurrency (").rstrip(")") if label.startswith("concurrency") else _unit(label)
    return {
        "t": figure.texts[0].get_text() if figure.texts else "",
        "x": label,
        "u": unit,
        "lv": levels,
        # One level alone spans nothing on a log axis: the page draws it on a linear one.
        "log": every[-1].get_xscale() == "log" and limits[1] is not None,
        "xs": [_short(x) for x in xs],
        "lims": limits,
        "keys": [list(each) for each in dict.fromkeys(key for each in panels for key in each.keys)],
        "r": [[name, color, read(at, xs, each.unit)] for each in panels for name, color, at in each.values],
        "p": [each.told() for each in panels],
    }


def _is_numeric(axes: Axes) -> bool:
    """Whether the ticks of x stand at what they say, and are no names such as p95."""
    for label in _any(axes.get_xticklabels()):
        x, said = float(label.get_position()[0]), re.sub(r"[\s,$]|\\mathdefault|[{}]", "", label.get_text())
        if re.match(r"[A-Za-z]", said):
            return False
        if re.fullmatch(r"-?[0-9.]+", said) and not math.isclose(float(said), x, rel_tol=1e-2, abs_tol=1e-9):
            return False
    return True


def _x_limits(axes: Axes, xs: Sequence[float], *, levels: bool) -> list[list[float] | None]:
    """The range of x, linear and log; None for an axis that has no such."""
    low, high = axes.get_xlim()
    if not levels:
        return [[_short(low), _short(high)], None]
    pad = 0.05 * ((xs[-1] - xs[0]) or xs[-1] or 1.0)
    linear = [_short(max(0.0, xs[0] - pad)), _short(xs[-1] + pad)] if axes.get_xscale() == "log" else [low, high]
    above = next((x for x in xs if x > 0), math.inf)
    if above >= xs[-1]:
        return [linear, None]
    margin = (xs[-1] / above) ** 0.05
    return [linear, [_short(above / margin), _short(xs[-1] * margin)]]


class _Panel:
    """One axes: its lines, and what stands at its right edge and within."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._label = axes.get_ylabel()
        self._texts = list(_texts(axes))
        self.unit = _unit(self._label)
        legend = axes.get_legend()
        handles = [] if legend is None else [each for each in legend.legend_handles if each is not None]
        self._legend = [(_color(each), str(each.get_label())) for each in handles]
        said = [(color, text) for where, _, _, _, color, text in self._texts if where == "corner"]
        self.keys = [*self._legend, *said]
        self._edge = {color: text for where, _, _, _, color, text in self._texts if where == "edge"}
        self._lines = [line for line in _any(axes.lines) if len(line.get_xdata(orig=True))]
        self.values = self._values()

    def told(self) -> dict[str, Any]:
        axes, log = self._axes, self._axes.get_yscale() == "log"
        limits = [_short(each) for each in axes.get_ylim()]
        # Rings first: what they hold would cover the points that they are around.
        lines = sorted(self._lines, key=lambda line: _kind(line) != "ring")
        drawn = [*self._shades(), *(each for line in lines for each in self._drawn(line))]
        heights = [y for how, _, at in drawn if how in ("main", "dot") for _, y in at if y > 0]
        logged = [_short(min(heights) / 1.3), limits[1]] if heights and "%" not in self._label else None
        notes = [
            [x, limits[1] if where == "top" else y, *offset, _ink(color), text]
            for where, x, y, offset, color, text in self._texts
            if where in ("note", "top")
        ]
        return {
            "l": self._label,
            "up": _ROOM[any(where == "top" for where, *_ in self._texts)],
            "y": log,
            "lims": [[0.0, limits[1]], limits] if log else [limits, logged],
            "s": drawn,
            "n": notes,
            "e": [[y, _ink(color), text] for color, text in self._edge.items() if (y := self._end(color)) is not None],
        }

    def _values(self) -> list[tuple[str, str, list[Point]]]:
        """(name, colour, points) of what can be pointed at: of dots, or where there are none of lines."""
        found: dict[str, list[Point]] = {}
        dots = any(_kind(line) == "dot" for line in self._lines)
        for line in self._lines:
            if _kind(line) == ("dot" if dots else "main"):
                known = [each for each in _points(line) if math.isfinite(each[1])]
                found.setdefault(_color(line), []).extend(known)
        named = {**dict(self._legend), **{color: text for color, text in self._edge.items() if not _FIGURE.match(text)}}
        plain = self._label.partition(" (")[0]
        return [
            (named.get(color, plain), color, sorted(points))
            for color, points in found.items()
            if points and (color in named or color in self._edge)
        ]

    def _end(self, color: str) -> float | None:
        """How high a colour's line ends."""
        last = None
        for line in self._lines:
            if _color(line) == color and _kind(line) in ("main", "fine", "dash"):
                last = next((_short(y) for _, y in reversed(_points(line)) if math.isfinite(y)), last)
        return last

    def _drawn(self, line: Any) -> Iterator[tuple[str, str, list[list[float]]]]:
        kind, color, points = _kind(line), _color(line), _points(line)
        if kind == "ring":
            # Each by itself, as a line from it to itself: what joins them would be a ring as well.
            for each in points:
                yield "ring dot", color, _pairs([each, each])
                yield "hole dot", "paper", _pairs([each, each])
            return
        for run in _unbroken(points):
            yield kind, color, _pairs(_steps(run) if line.get_drawstyle() == "steps-post" else run)

    def _shades(self) -> Iterator[tuple[str, str, list[list[float]]]]:
        low, high = self._axes.get_ylim()
        for left, right in _patches(self._axes) or ():
            yield "span", "shade", _pairs([(left, low), (left, high), (right, high), (right, low)])


def _at_level(points: Sequence[Point], xs: Sequence[float], unit: str) -> list[str]:
    """What stands at each x; of repeats all."""
    at: dict[float, list[str]] = {}
    for x, y in points:
        at.setdefault(x, []).append(_value(y, unit))
    return [", ".join(at.get(x, ())) for x in xs]


def _in_course(points: Sequence[Point], xs: Sequence[float], unit: str) -> list[str]:
    """What a staircase shows at each x: its last value until then."""
    from bisect import bisect_right

    starts = [x for x, _ in points]
    found = [bisect_right(starts, x) - 1 for x in xs]
    return ["" if k < 0 else _value(points[k][1], unit) for k in found]


def _value(y: float, unit: str) -> str:
    if unit == "%":
        # A GPU may take more power than its limit.
        return ratio(y / 100) if y > 100 else percent(y / 100)
    return f"{plain_number(y)} {unit}".strip()


def _kind(line: Any) -> str:
    """How a line is drawn: its points (``dot``, ``ring``), dashed, thin, or as it is."""
    if line.get_linestyle() == "None":
        return "ring" if line.get_markerfacecolor() == "none" else "dot"
    if line.get_transform() != line.axes.transData and not _level(line):
        return "thin"
    if line.get_linestyle() != "-":
        return "dash"
    return "main" if line.get_linewidth() > _FINE else "fine"


def _level(line: Any) -> bool:
    """Whether it lies across the whole figure."""
    return line.axes is not None and line.get_transform() == line.axes.get_yaxis_transform(which="grid")


def _points(line: Any) -> list[Point]:
    """Its points in data; of one across the whole axes, its ends far outside."""
    xs = [float(x) for x in line.get_xdata(orig=True)]
    ys = [float(y) for y in line.get_ydata(orig=True)]
    axes = line.axes
    if axes is not None and line.get_transform() == axes.get_xaxis_transform(which="grid"):
        ys = list(axes.get_ylim())
    elif _level(line):
        xs = [-_FAR, _FAR]
    return list(zip(xs, ys, strict=True))


def _unbroken(points: Sequence[Point]) -> Iterator[list[Point]]:
    run: list[Point] = []
    for each in (*points, (0.0, math.nan)):
        if math.isfinite(each[1]):
            run.append(each)
        elif run:
            yield run
            run = []


def _steps(points: Sequence[Point]) -> list[Point]:
    """The corners of a staircase whose values hold until the next point."""
    corners = [points[0]]
    for x, y in points[1:]:
        corners += [(x, corners[-1][1]), (x, y)]
    return corners


def _texts(axes: Axes) -> Iterator[tuple[str, float, float, tuple[int, int, str], str, str]]:
    """(where, x, y, (right, up, how), colour, text) of each; ``edge``, ``top``, ``note`` or ``corner``."""
    for each in _any(axes.texts):
        if not hasattr(each, "xyann"):
            yield "corner", 0.0, 0.0, (0, 0, ""), style.CSS_NAMES.get(str(each.get_color()), "ink"), each.get_text()
            continue
        (x, y), (dx, dy) = each.xy, each.xyann
        coords, color = each.xycoords, style.CSS_NAMES.get(str(each.get_color()), "ink")
        how = {"right": "end", "center": "middle"}.get(str(each.get_ha()), "start")
        down = 10 if each.get_va() == "top" else 0
        offset = (round(dx * PIXELS), round(dy * PIXELS - down), f"{how} rim")
        where = "note" if coords == "data" else "edge" if coords == "axes fraction" else "corner"
        if coords == ("data", "axes fraction"):
            where = "top"
        elif coords == ("axes fraction", "data"):
            yield "edge", 0.0, _short(float(y)), offset, color, "SLO"
        yield where, _short(float(x)), _short(float(y)), offset, color, each.get_text()


def _patches(axes: Axes) -> list[tuple[float, float]] | None:
    """The stretches of x that are shaded; None where something else is filled."""
    found = []
    for each in _any(axes.patches):
        if each.get_transform() != axes.get_xaxis_transform(which="grid") and not hasattr(each, "get_x"):
            return None
        if not hasattr(each, "get_x") or each.get_height() != 1:
            return None
        found.append((float(each.get_x()), float(each.get_x() + each.get_width())))
    return found


def _color(line: Any) -> str:
    color = line.get_color() if hasattr(line, "get_color") else style.INK
    if hasattr(line, "get_markerfacecolor") and line.get_linestyle() == "None":
        face = line.get_markerfacecolor()
        color = line.get_markeredgecolor() if face == "none" else face
    return style.CSS_NAMES.get(str(color), "ink")


def _ink(color: str) -> str:
    """The shade of a colour that texts have: dark enough to be read."""
    return f"{color}-ink" if color in _PALE else color


def _any(artists: Any) -> list[Any]:
    """Parts of a figure as objects of any type: matplotlib's own types leave out half of their methods."""
    return list(artists)


def _unit(label: str) -> str:
    """What stands in brackets."""
    found = re.search(r"\(([^()]*)\)$", label)
    return found[1] if found else ""


def _pairs(points: Sequence[Point]) -> list[list[float]]:
    return [[_short(x), _short(y)] for x, y in points]


def _short(x: float) -> float:
    """Six digits: more than any picture shows."""
    return float(f"{x:.6g}")
