"""The figure of a whole run over time: rates, runtimes, requests in flight and replicas, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.throughput import KEPT_UP
from gpusize.report.figures import style
from gpusize.report.figures.timeline import Timeline, timeline
from gpusize.report.summary.source import ReportSource, SloView
from gpusize.report.summary.sweep import Sweep, sweeps_of
from gpusize.report.text import number, plain_number, time_unit

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["over_time_figure", "plain_ticks", "time_scale"]

_PANEL_IN: Final = 1.72
_TAIL: Final = 0.1
"""Share of the run that is cut off when only the last requests end in it: lines then end where the load does."""
_LABEL_CHARS: Final = 14
"""So many characters fit beside the axes."""
_WIDE: Final = 0.055
"""Share of the axis that a level's name needs."""
_NAME_CHARS: Final = 10
"""So many characters fit into that."""
_STEP: Final[Any] = {"drawstyle": "steps-post"}


def over_time_figure(source: ReportSource) -> Figure | None:
    """The (first) run of a result over time; None where it has no records."""
    levels = list(getattr(source, "levels", ()))
    first = levels[0].run if levels else None
    rows = {int(row["visit"]): row for row in source.summary.to_dicts() if row.get("run") == first}
    made = timeline([level for level in levels if level.run == first], rows)
    if made is None:
        return None
    sweeps = sweeps_of(source)
    rates = any(span.open_loop for span in made.spans)
    sweep = next((each for each in sweeps if each.open_loop == rates), sweeps[0])
    slo = next((each for each in sweep.slos if each.metric == "runtime" and each.bound_s), None)
    with style.settings():
        return _draw(made, sweep, slo)


def _draw(made: Timeline, sweep: Sweep, slo: SloView | None) -> Figure:
    panels = 3 + bool(made.replicas)
    figure, axes = style.new_figure(finding(made, sweep), sweep.about, panels, height_in=1.75 + _PANEL_IN * panels)
    scale, unit = time_scale(made.length_s)
    for each in axes:
        each.set_xlim(0, _shown_s(made) * scale)
        each.tick_params(labelbottom=each is axes[-1])
    axes[-1].set_xlabel(f"time since the start of the run ({unit})")
    _rates(figure, axes[0], made, scale)
    _runtimes(figure, axes[1], made, scale, slo)
    _in_flight(figure, axes[2], made, scale)
    if made.replicas:
        _replicas(figure, axes[3], made, scale)
    _mark_levels(axes, made, scale)
    return figure


def _shown_s(made: Timeline) -> float:
    """Seconds that the figure shows: the load, and what came after it when that took long."""
    load_s = max(span.end_s for span in made.spans)
    return load_s if (1 - _TAIL) * made.length_s <= load_s < made.length_s else made.length_s


def _at_edge(made: Timeline, values: NDArray[np.float64]) -> float:
    """What a line shows at the right edge: of the last bin that lies within it."""
    return float(values[_shown_bins(made) - 1])


def _shown_bins(made: Timeline) -> int:
    """Bins that lie within the figure as a whole."""
    return max(1, min(int(_shown_s(made) / made.width_s + 1e-6), made.offered.size))


def _line(axes: Axes, made: Timeline, values: NDArray[np.float64], scale: float, color: str, **more: Any) -> None:
    """One value per bin as a staircase: it holds for the whole bin."""
    import numpy as np

    shown = _shown_bins(made)
    edges = np.append(np.arange(shown) * made.width_s, _shown_s(made)) * scale
    axes.plot(edges, np.append(values[:shown], values[shown - 1]), color=color, linewidth=1.6, **_STEP, **more)


def _last(values: NDArray[np.float64]) -> float | None:
    import numpy as np

    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None


def _rates(figure: Figure, axes: Axes, made: Timeline, scale: float) -> None:
    axes.set_ylabel("requests/s")
    asked = [corner for span in made.spans if span.open_loop for corner in span.asked]
    top = max(float(made.offered.max()), float(made.achieved.max()), *(y for _, y in asked), 1e-9)
    axes.set_ylim(0, top * 1.22)
    ends = []
    if any(span.open_loop for span in made.spans):
        _line(axes, made, made.offered, scale, style.AMBER, zorder=3)
        ends.append((_at_edge(made, made.offered), "offered", style.AMBER))
        for span in made.spans:
            if span.open_loop:
                corners = [(x * scale, y) for x, y in span.asked]
                dashes: Any = {"linestyle": (0, (4, 2)), "linewidth": 1.1}
                axes.plot([x for x, _ in corners], [y for _, y in corners], color=style.INK, zorder=2, **dashes)
        ends.append((made.spans[-1].asked[-1][1], "asked for", style.INK))
    _line(axes, made, made.achieved, scale, style.MID, zorder=4)
    ends.append((_at_edge(made, made.achieved), "achieved", style.MID))
    style.label_ends(figure, axes, ends)


def _runtimes(figure: Figure, axes: Axes, made: Timeline, scale: float, slo: SloView | None) -> None:
    import numpy as np

    every = np.concatenate([each[np.isfinite(each)] for each in made.percentiles.values()])
    unit = time_unit([float(every.max())] if every.size else [])
    axes.set_ylabel(f"runtime ({unit.name})")
    if not every.size:
        return
    low, high = float(every.min()), float(every.max())
    bound = slo.bound_s if slo is not None and slo.bound_s is not None else None
    shown = [low, high, *([bound] if bound is not None and bound < 4 * high else [])]
    if high > 30 * max(low, 1e-9):
        axes.set_yscale("log")
        axes.set_ylim(max(min(shown), 1e-9) * unit.per_s / 1.5, max(shown) * unit.per_s * 1.8)
    else:
        axes.set_ylim(0, max(shown) * unit.per_s * 1.15)
    ends = []
    for name, values in made.percentiles.items():
        _line(axes, made, values * unit.per_s, scale, style.PERCENTILES[name], zorder=3)
        last = _last(values[: _shown_bins(made)])
        ends += [] if last is None else [(last * unit.per_s, name, style.PERCENTILES[name])]
    plain_ticks(axes)
    if slo is not None and bound is not None and bound * unit.per_s <= axes.get_ylim()[1]:
        axes.axhline(bound * unit.per_s, color=style.LIMIT, linestyle=(0, (5, 3)), linewidth=1.4, zorder=2)
        ends.append((bound * unit.per_s, _slo_label(slo), style.LIMIT))
    elif slo is not None:
        from gpusize.report.figures.levels import draw_slo

        draw_slo(axes, slo, unit)
    style.label_ends(figure, axes, ends)


def _slo_label(slo: SloView) -> str:
    """The bound as it stands beside the axis, where no line crosses it."""
    text = slo.text.replace("runtime ", "").replace("<=", "≤")
    return text if len(text) <= _LABEL_CHARS else "SLO"


def plain_ticks(axes: Axes) -> None:
    """Figures at the ticks of y as people write them, on a log scale too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axes.get_yscale() == "log":
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if high > 100 * low else (1.0, 3.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def _in_flight(figure: Figure, axes: Axes, made: Timeline, scale: float) -> None:
    axes.set_ylabel("requests in flight")
    closed = [span for span in made.spans if not span.open_loop]
    top = max(float(made.in_flight.max()), *(y for span in closed for _, y in span.asked), 1.0)
    axes.set_ylim(0, top * 1.15)
    _line(axes, made, made.in_flight, scale, style.MID, zorder=3)
    ends = [(_at_edge(made, made.in_flight), "in flight", style.MID)]
    if made.waiting.max() >= 1:
        _line(axes, made, made.waiting, scale, style.LIMIT, zorder=4)
        ends.append((_at_edge(made, made.waiting), "not yet sent", style.LIMIT))
    for span in closed:
        corners = [(x * scale, y) for x, y in span.asked]
        dashes: Any = {"linestyle": (0, (4, 2)), "linewidth": 1.1}
        axes.plot([x for x, _ in corners], [y for _, y in corners], color=style.INK, zorder=5, **dashes)
    if closed:
        ends.append((closed[-1].asked[-1][1], "asked for", style.INK))
    style.label_ends(figure, axes, ends)


def _replicas(figure: Figure, axes: Axes, made: Timeline, scale: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylabel("replicas")
    highest = max(float(values.max()) for _, values in made.replicas.values())
    axes.set_ylim(0, max(highest, 1.0) * 1.25)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    looks: dict[str, tuple[str, Any]] = {"ready": (style.GOOD, "-"), "wanted": (style.INK, (0, (4, 2)))}
    ends = []
    for name, (times_s, values) in made.replicas.items():
        color, dashes = looks[name]
        axes.plot(times_s * scale, values, color=color, linestyle=dashes, linewidth=1.6, **_STEP)
        ends.append((float(values[-1]), name, color))
    style.label_ends(figure, axes, ends)


def _mark_levels(axes: Sequence[Axes], made: Timeline, scale: float) -> None:
    """Where levels begin, what they are, and which of them are in doubt."""
    total = made.length_s
    named_until = 0.0
    for span in sorted(made.spans, key=lambda each: each.start_s):
        for each in axes:
            each.axvline(span.start_s * scale, color=style.MUTED, linewidth=0.7, zorder=1)
            if span.limited:
                hatch: Any = {
                    "facecolor": "none",
                    "edgecolor": style.AMBER,
                    "alpha": 0.3,
                    "hatch": "///",
                    "linewidth": 0.0,
                }
                each.axvspan(span.start_s * scale, span.end_s * scale, zorder=0.5, **hatch)
        doubt = "generator-limited" if span.limited else "not delivered" if span.delivered is False else ""
        room = (span.end_s - span.start_s) / total
        wide = _WIDE * max(1.0, len(span.name) / _NAME_CHARS)
        if span.start_s < named_until or room < wide:
            continue
        named_until = span.start_s + wide * total
        place = {"textcoords": "offset points", "xycoords": ("data", "axes fraction")}
        text: Any = {**place, "fontsize": 8.5}
        axes[0].annotate(span.name, (span.start_s * scale, 1.0), xytext=(1, 2), color=style.INK, **text)
        if doubt and room >= 2 * wide:
            axes[0].annotate(doubt, (span.start_s * scale, 1.0), xytext=(1, 13), color=style.LIMIT, **text)


_PILE: Final = 0.1
"""Share of the most requests in flight from which they were piling up."""
_CAUGHT_UP: Final = 0.15
"""Share of the most requests in flight at which the pile is gone: the load of the time is still there."""
_SHORT: Final = 0.1
"""Quantile of the runtimes that stands for one without waiting."""
_BINS: Final = 4
"""Bins that a stretch needs, to be none of chance."""


def time_scale(length_s: float) -> tuple[float, str]:
    """What seconds are multiplied with, and the unit that makes."""
    if length_s <= 300:
        return 1.0, "s"
    return (1 / 60, "min") if length_s <= 3 * 3600 else (1 / 3600, "h")


def finding(made: Timeline, sweep: Sweep) -> str:
    """The finding: whether the target kept up, and from where on it did not; of a closed loop the best level's rate."""
    spans = [span for span in made.spans if span.open_loop and span.offered_per_s > 0]
    if not spans:
        best = None if sweep.open_loop else sweep.best("achieved_rate")
        if best is not None:
            return f"Most was answered with {plain_number(best[0])} in flight: {plain_number(best[1])} requests/s"
        most_of = max(made.spans, key=lambda span: span.achieved_per_s)
        return f"Most was answered with {most_of.name} in flight: {plain_number(most_of.achieved_per_s)} requests/s"
    behind = _behind(made)
    if behind is None:
        most = max(span.offered_per_s for span in spans)
        return f"All that was offered was answered, up to {number(most)} requests/s"
    start_s, end_s, offered, achieved = behind
    scale, unit = time_scale(made.length_s)
    caught_up = _caught_up(made, start_s)
    if caught_up is not None:
        before, after, took_s = caught_up
        who = f"{before} replica{'s' if before != 1 else ''} answered {number(achieved)} of {number(offered)} offered"
        return f"{who} requests/s; {after} caught up in {plain_number(took_s * scale)} {unit}"
    when = f"From {plain_number(start_s * scale)} to {plain_number(end_s * scale)} {unit}"
    return f"{when}, {number(achieved)} of {number(offered)} offered requests/s were answered"


def _caught_up(made: Timeline, since_s: float) -> tuple[int, int, float] | None:
    """Replicas when requests began to pile up and when the pile was gone, and seconds from its top to its end.

    None where the pile did not go, or no more replicas were ready by then.
    """
    import numpy as np

    if "ready" not in made.replicas:
        return None
    peak = int(np.argmax(made.in_flight))
    gone = np.flatnonzero(made.in_flight[peak:] <= _CAUGHT_UP * made.in_flight[peak])
    end = peak + int(gone[0]) if gone.size else 0
    if not gone.size or (end + 1) * made.width_s > max(span.end_s for span in made.spans):
        return None
    times_s, values = made.replicas["ready"]
    at = np.clip(np.searchsorted(times_s, [since_s, end * made.width_s], "right") - 1, 0, None)
    before, after = (round(float(each)) for each in values[at])
    return (before, after, (end - peak) * made.width_s) if after > before else None


def _behind(made: Timeline) -> tuple[float, float, float, float] | None:
    """The stretch in which most piled up: from when, to when, offered and achieved requests/s; None without one."""
    import numpy as np

    peak = int(np.argmax(made.in_flight))
    low = np.flatnonzero(made.in_flight[: peak + 1] <= _PILE * made.in_flight[peak])
    first = int(low[-1]) + 1 if low.size else 0
    if peak - first + 1 < _BINS:
        return None
    offered, achieved = (float(each[first : peak + 1].mean()) for each in (made.offered, made.achieved))
    if achieved >= KEPT_UP * offered or _only_in_flight(made, first, peak):
        return None
    return first * made.width_s, (peak + 1) * made.width_s, offered, achieved


def _only_in_flight(made: Timeline, first: int, peak: int) -> bool:
    """Whether what was not answered yet is what any server has in flight at that rate: rate times runtime (Little)."""
    import numpy as np

    medians = made.percentiles.get("p50", np.full(made.offered.size, np.nan))[first:]
    known = medians[np.isfinite(medians)]
    if not known.size:
        return False
    rate = float(made.offered[max(first, peak - _BINS) : peak + 1].max())
    waiting = float(made.in_flight[peak]) - rate * float(np.quantile(known, _SHORT))
    return waiting <= (1 - KEPT_UP) * float(made.offered[first : peak + 1].sum()) * made.width_s
