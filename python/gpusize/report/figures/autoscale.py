"""A judged run as one picture on one time axis: load, replicas, latency, attainment, queue, cache, GPUs and power."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.analysis.compare.whole import KNOWN
from gpusize.estimate.plan.autoscale.judge.requests import timed_slo
from gpusize.report.figures import style
from gpusize.report.figures.over_time import time_scale
from gpusize.report.text import clean, number, percent, plain_number, time_unit

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.judge.track import Track
    from gpusize.estimate.plan.autoscale.judge.types import Judgement

__all__ = ["judged_figure"]

PANEL_IN: Final = 1.5
WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
"""Of the bins that load and latency are shown in."""
BINS: Final = (24, 300)
"""Fewest and most; between them as many as have ``IN_BIN`` requests on average."""
IN_BIN: Final = 20
MOST_POINTS: Final = 600
"""Of a gauge; beyond, means of stretches are shown."""
MOST_MARKS: Final = 80
"""Scale events that are marked, and steps of the load: more of them hide what they mark."""
NAMED: Final = 0.07
"""Share of the axis that the name of a step needs."""
SEEN: Final = 0.003
"""A gap of a smaller share of the axis cannot be seen."""
DASHES: Final[Any] = (0, (4, 2))
STEPS: Final[Any] = {"drawstyle": "steps-post"}
CHARS: Final = 14
"""So many characters fit beside the axes."""


class Panel(NamedTuple):
    """One of the figure: what it is called where it is left out, whether there is anything to draw, and who draws."""

    name: str
    has_data: bool
    draw: Callable[[_Drawing, Figure, Axes], None]


def judged_figure(found: Judgement) -> Figure:
    """The figure; panels without data are left out, and named below the title."""
    shown = _Drawing(found)
    panels = [each for each in panels_of(found) if each.has_data]
    left = [each.name for each in panels_of(found) if not each.has_data]
    with style.settings():
        figure, axes = style.new_figure(
            _title(found), _subtitle(found, left), len(panels), height_in=1.75 + PANEL_IN * len(panels)
        )
        for each in axes:
            each.set_xlim(0, found.duration_s * shown.scale)
            each.tick_params(labelbottom=each is axes[-1])
        axes[-1].set_xlabel(f"time since the start of the run ({shown.unit})")
        for panel, each in zip(panels, axes, strict=True):
            panel.draw(shown, figure, each)
            _unread(shown, each, panel)
        _mark_steps(shown, axes)
        return figure


def panels_of(found: Judgement) -> tuple[Panel, ...]:
    """Every panel, from the top down."""
    gauges = found.gauges
    return (
        Panel("load", bool(found.requests.due_s.size), _load),
        Panel("replicas", bool(found.ready or found.desired or found.needed), _replicas),
        Panel("latency", timed_slo(found.slos) is not None and found.requests.timed.size > 0, _latency),
        Panel("attainment", bool(found.slos), _attainment),
        Panel("queue", "running" in gauges or "waiting" in gauges, _queue),
        Panel("cache and GPU use", "cache" in gauges or "gpu_use" in gauges, _shares),
        Panel("GPU power", "gpu_power" in gauges, _power),
    )


class _Drawing:
    """What all panels share: the time axis and the bins."""

    def __init__(self, found: Judgement) -> None:
        import numpy as np

        self.found = found
        self.scale, self.unit = time_scale(found.duration_s)
        total = float(found.requests.sums[0, -1])
        most = min(max(BINS[0], total / IN_BIN), BINS[1])
        width_s = next((each for each in WIDTHS_S if found.duration_s / each <= most), WIDTHS_S[-1])
        whole = max(1, int(found.duration_s // width_s))
        self.edges_s = np.append(np.arange(whole) * float(width_s), found.duration_s)

    def line(
        self, axes: Axes, edges_s: NDArray[np.float64], values: NDArray[np.float64], color: str, **more: Any
    ) -> None:
        """One value between each two edges, as a staircase."""
        import numpy as np

        look = {"linewidth": 1.6, **STEPS, **more}
        values = np.append(values, values[-1])
        # What holds until a gap begins is drawn up to there.
        ends = np.flatnonzero(np.isnan(values[1:]) & ~np.isnan(values[:-1])) + 1
        edges_s, values = np.insert(edges_s, ends, edges_s[ends]), np.insert(values, ends, values[ends - 1])
        axes.plot(edges_s * self.scale, values, color=color, **look)

    def track(self, axes: Axes, track: Track, color: str, factor: float = 1.0, **more: Any) -> float | None:
        """A track, thinned where it has too many values; what it shows last."""
        import numpy as np

        at, values = _thinned(track)
        self.line(axes, np.append(at, track.end_s), values * factor, color, **more)
        known = values[~np.isnan(values)]
        return float(known[-1]) * factor if known.size else None


def _thinned(track: Track) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A track's changes; of more than can be seen the means of equal stretches."""
    import numpy as np

    same = (track.values[1:] == track.values[:-1]) | (np.isnan(track.values[1:]) & np.isnan(track.values[:-1]))
    kept = np.append(True, ~same)
    if kept.sum() <= MOST_POINTS:
        return track.at_s[kept], track.values[kept]
    edges = np.linspace(track.at_s[0], track.end_s, MOST_POINTS + 1)
    at = np.unique(np.concatenate([track.at_s, edges[:-1]]))
    values, length = track.at(at), np.diff(np.append(at, track.end_s))
    place = np.searchsorted(edges, at, "right") - 1
    known = ~np.isnan(values)
    sums = np.bincount(place[known], values[known] * length[known], MOST_POINTS)
    lengths = np.bincount(place[known], length[known], MOST_POINTS)
    return edges[:-1], np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), np.nan)


def _load(of: _Drawing, figure: Figure, axes: Axes) -> None:
    import numpy as np

    found, edges = of.found, of.edges_s
    width = np.diff(edges)
    due = found.requests.between(edges[:-1], np.append(edges[1:-1], np.inf)).due / width
    placed = np.searchsorted(found.requests.end_s, np.append(edges[:-1], np.inf), "left")
    ended = np.diff(found.requests.ended[0][placed]) / width
    axes.set_ylabel("requests/s")
    of.line(axes, edges, due, style.AMBER, zorder=3)
    of.line(axes, edges, ended, style.MID, zorder=4)
    ends = [(float(due[-1]), "offered", style.AMBER), (float(ended[-1]), "answered ok", style.MID)]
    steps = [each.step for each in found.responses]
    top = max(float(due.max()), float(ended.max()), 1e-9)
    if steps and all(step.unit == "requests/s" for step in steps):
        corners = []
        for step in steps:
            corners += [(step.at_s, step.before), (step.at_s + step.ramp_s, step.after), (step.until_s, step.after)]
        x, y = [at * of.scale for at, _ in corners], [value for _, value in corners]
        axes.plot(x, y, color=style.INK, linestyle=DASHES, linewidth=1.1, zorder=2)
        ends.append((y[-1], "asked for", style.INK))
        top = max(top, *y)
    axes.set_ylim(0, 1.18 * top)
    style.label_ends(figure, axes, ends)


def _replicas(of: _Drawing, figure: Figure, axes: Axes) -> None:
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    found = of.found
    axes.set_ylabel("replicas")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    ends, highest = [], 1.0
    if found.needed is not None:
        values = found.needed.replicas.astype(float)
        of.line(axes, found.needed.edges_s, values, style.MID, zorder=2)
        ends.append((float(values[-1]), "needed", style.MID))
        highest = max(highest, float(values.max()))
    looks: tuple[tuple[Track | None, str, str, dict[str, Any]], ...] = (
        (found.ready, "ready", style.GOOD, {}),
        (found.desired, "asked for", style.INK, {"linestyle": DASHES}),
    )
    for track, name, color, look in looks:
        if track is None:
            continue
        last = of.track(axes, track, color, zorder=3, **look)
        if last is not None:
            ends.append((last, name, color))
            highest = max(highest, float(np.nanmax(track.values)))
    if found.ready is not None and len(changes := found.ready.changes()) <= MOST_MARKS:
        for each in changes:
            color = style.GOOD if each.after > each.before else style.AMBER
            axes.axvline(each.at_s * of.scale, color=color, linewidth=0.6, alpha=0.55, zorder=1)
    axes.set_ylim(0, 1.15 * highest)
    style.label_ends(figure, axes, ends)


def _latency(of: _Drawing, figure: Figure, axes: Axes) -> None:
    import numpy as np

    from gpusize.analysis.metrics import METRICS
    from gpusize.report.figures.over_time import plain_ticks

    slo = timed_slo(of.found.slos)
    assert slo is not None  # noqa: S101 (the panel is there only then)
    assert slo.bound_s is not None  # noqa: S101
    found = of.found.requests.quantiles(of.edges_s, [0.5, 0.95, 0.99])
    known = found[~np.isnan(found)]
    unit = time_unit([float(known.max())] if known.size else [slo.bound_s])
    axes.set_ylabel(f"{METRICS[slo.metric].label} ({unit.name})")
    low, high = (float(known.min()), float(known.max())) if known.size else (slo.bound_s, slo.bound_s)
    shown = [low, high, *([slo.bound_s] if slo.bound_s < 4 * high else [])]
    if high > 30 * max(low, 1e-9):
        axes.set_yscale("log")
        axes.set_ylim(max(min(shown), 1e-9) * unit.per_s / 1.5, max(shown) * unit.per_s * 1.8)
    else:
        axes.set_ylim(0, max(shown) * unit.per_s * 1.15)
    ends = []
    for (name, color), values in zip(style.PERCENTILES.items(), found, strict=True):
        of.line(axes, of.edges_s, values * unit.per_s, color, zorder=3)
        ended = values[~np.isnan(values)]
        ends += [(float(ended[-1]) * unit.per_s, name, color)] if ended.size else []
    plain_ticks(axes)
    bound = slo.bound_s * unit.per_s
    if bound <= axes.get_ylim()[1]:
        axes.axhline(bound, color=style.LIMIT, linestyle=(0, (5, 3)), linewidth=1.4, zorder=2)
        text = f"{plain_number(bound)} {unit.name}"
        ends.append((bound, text if len(text) <= CHARS else "SLO", style.LIMIT))
    style.label_ends(figure, axes, ends)


def _attainment(of: _Drawing, figure: Figure, axes: Axes) -> None:
    import numpy as np

    found = of.found
    shares = 100 * found.windows.shares[:-1]
    lowest, ends = 100.0, []
    for place, (slo, values) in enumerate(zip(found.slos, shares, strict=True)):
        color = style.SERIES[place % len(style.SERIES)]
        of.line(axes, found.edges_s, values, color, zorder=3)
        known = values[~np.isnan(values)]
        name = clean(slo.metric, CHARS) if len(found.slos) > 1 else "within"
        ends += [(float(known[-1]), name, color)] if known.size else []
        lowest = min([lowest, 100 * slo.share, *known.tolist()])
    for target in sorted({slo.share for slo in found.slos}):
        axes.axhline(100 * target, color=style.LIMIT, linestyle=(0, (5, 3)), linewidth=1.4, zorder=2)
        ends.append((100 * target, f"{100 * target:.4g} %", style.LIMIT))
    room = max(100 - lowest, 0.5)
    axes.set_ylim(max(-2.0, lowest - 0.08 * room), 100 + 0.06 * room)
    axes.set_ylabel("within the SLO (%)" if len(found.slos) == 1 else "within SLOs (%)")
    style.label_ends(figure, axes, ends)


def _queue(of: _Drawing, figure: Figure, axes: Axes) -> None:
    _gauges(of, figure, axes, "requests", {"running": ("at work", style.MID), "waiting": ("waiting", style.OTHER)})


def _shares(of: _Drawing, figure: Figure, axes: Axes) -> None:
    looks = {"cache": ("KV cache", style.MID), "gpu_use": ("GPU use", style.AMBER)}
    _gauges(of, figure, axes, "mean (%)", looks, of.found.percent_factors)


def _power(of: _Drawing, figure: Figure, axes: Axes) -> None:
    _gauges(of, figure, axes, "all GPUs (kW)", {"gpu_power": ("power", style.MID)}, {"gpu_power": 1e-3})


def _gauges(
    of: _Drawing,
    figure: Figure,
    axes: Axes,
    label: str,
    looks: Mapping[str, tuple[str, str]],
    factors: Mapping[str, float] | None = None,
) -> None:
    import numpy as np

    axes.set_ylabel(label)
    ends, highest = [], 1e-9
    for name, (called, color) in looks.items():
        track = of.found.gauges.get(name)
        if track is None:
            continue
        factor = (factors or {}).get(name, 1.0)
        last = of.track(axes, track, color, factor, zorder=3)
        if last is not None:
            ends.append((last, called, color))
            highest = max(highest, float(np.nanmax(_thinned(track)[1])) * factor)
    axes.set_ylim(0, 1.15 * highest)
    style.label_ends(figure, axes, ends)


def _unread(of: _Drawing, axes: Axes, panel: Panel) -> None:
    """Shade the stretches in which nobody read the replicas."""
    track = of.found.ready
    if panel.name != "replicas" or track is None:
        return
    for since, until in track.unknown():
        if until - since > SEEN * of.found.duration_s:
            axes.axvspan(since * of.scale, until * of.scale, facecolor=style.SHADE, edgecolor="none", zorder=0.5)


def _mark_steps(of: _Drawing, axes: Sequence[Axes]) -> None:
    """Where the load changes, in all panels, and to what above the first."""
    steps = [each.step for each in of.found.responses]
    if len(steps) > MOST_MARKS:
        return
    named_until = 0.0
    for step in steps:
        for each in axes:
            each.axvline(step.at_s * of.scale, color=style.MUTED, linewidth=0.7, zorder=1)
        if step.at_s < named_until:
            continue
        named_until = step.at_s + NAMED * of.found.duration_s
        unit = "/s" if step.unit == "requests/s" else f" {step.unit}"
        name = f"{plain_number(step.after)}{unit}"
        place: Any = {"textcoords": "offset points", "xycoords": ("data", "axes fraction"), "fontsize": 8.5}
        axes[0].annotate(name, (step.at_s * of.scale, 1.0), xytext=(1, 2), color=style.INK, **place)


def _title(found: Judgement) -> str:
    if not found.slos:
        return "The run, its replicas and its GPUs"
    share, slo = min(
        zip(found.whole.shares, found.slos, strict=False),
        key=lambda each: -1.0 if each[0] is None else (each[0] - each[1].share) / max(1e-9, 1 - each[1].share),
    )
    text = f"{'Kept' if found.keeps else 'Missed'}: {percent(share)} within {clean(str(slo), 40)}"
    if found.paid is None:
        return text
    part = f" in {percent(found.known_share)} of the time" if found.known_share < KNOWN else ""
    return f"{text}, {number(found.paid.gpu_hours)} GPU-hours{part}"


def _subtitle(found: Judgement, left: Sequence[str]) -> str:
    parts = []
    if found.scaling is not None:
        parts.append(
            f"{plain_number(found.scaling.mean)} ready replicas on average, {plain_number(found.scaling.peak)} at most"
        )
    if found.elasticity is not None:
        under, over = (percent(each) for each in (found.elasticity.under_share, found.elasticity.over_share))
        parts.append(f"too few {under} of the time, too many {over}")
    unread = [] if found.ready is None else found.ready.unknown()
    if any(until - since > SEEN * found.duration_s for since, until in unread):
        parts.append("shaded: nobody read the replicas")
    if left:
        parts.append(f"no data for: {', '.join(left)}")
    return "; ".join(parts) or "what the records and the pulled series tell"
