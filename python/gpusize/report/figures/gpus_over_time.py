"""GPUs over time as a picture: the rate, the GPUs of each course, and the share of requests within the SLOs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.base.files import write_atomic
from gpusize.base.units import format_duration
from gpusize.estimate.question import gpus_text
from gpusize.report.figures.style import AMBER, GOOD, LIMIT, LOW, MID, MUTED, OTHER, label_ends, new_figure, settings
from gpusize.report.plans.gpus_over_time import conclusion
from gpusize.report.text import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpusize.estimate.plan.over_time.types import Course, OverTime

__all__ = ["draw_over_time", "over_time_figure"]

COLOURS: Final = {"static": MUTED, "planned": MID, "reactive": OTHER}
SCALED: Final = (OTHER, AMBER, GOOD)
"""Of autoscalers, in turn."""
WIDTHS: Final = {"static": 1.8, "planned": 2.4}
WIDTH: Final = 1.3
"""Courses may lie upon each other: what is drawn later is thinner."""
NS_PER_S: Final = 1e9
SEEN: Final = 0.004
"""A start delay of a smaller part of the time cannot be seen."""
THIN: Final = "\n(thin: asked for)"
SPAN_S: Final = 300.0


def draw_over_time(found: OverTime, path: str | Path) -> Path:
    """Write the picture into a .png, .svg or .pdf.

    Raises:
        UsageError: another ending, or there is nothing to draw.
        StoreError: the file cannot be written.
    """
    from gpusize.report.figures.load import check_ending

    check_ending(path, "plot")
    file, image = Path(path), BytesIO()
    figure = over_time_figure(found)
    with settings():
        figure.savefig(image, format=file.suffix[1:].lower())
    write_atomic(file, image.getvalue())
    return file


def over_time_figure(found: OverTime) -> Figure:
    """The figure.

    Raises:
        UsageError: there is no course to draw.
    """
    from matplotlib.ticker import MaxNLocator

    if not found.courses:
        raise UsageError(f"there is nothing to draw: {found.reason}", None, None)
    with settings():
        unit, scale = _unit(found.duration_s)
        figure, (rate, gpus, kept) = new_figure(_title(found), _subtitle(found), 3, height_in=7.4)
        edges = found.edges_ns / NS_PER_S / scale
        rate.stairs(found.rates, edges, color=LOW, fill=True, linewidth=0)
        rate.set_ylabel("requests/s")
        rate.set_ylim(bottom=0)
        for course in found.courses:
            _steps(gpus, found, course, scale)
        gpus.set_ylabel(f"GPUs{THIN if _delay_shows(found) else ''}")
        gpus.set_ylim(bottom=0)
        gpus.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        _shares(kept, found, scale)
        kept.set_xlabel(f"time after the start ({unit})")
        kept.set_xlim(0, found.duration_s / scale)
        # Their ends may coincide: a legend names them, in the order of the table.
        if found.scaled:
            # Names of policies may be long: above the axes there is room for a row of them.
            gpus.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=4, handlelength=1.2, columnspacing=1.4)
        else:
            gpus.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.2)
        target = found.static.targets[found.static.binding]
        label_ends(figure, kept, [(target, f"asked for\n{target:.4g}", LIMIT)])
        return figure


def _steps(axes: Axes, found: OverTime, course: Course, scale: float) -> None:
    import numpy as np

    colour = _colour(found, course)
    ready_ns, ready = course.schedule.ready()
    lines = [(ready_ns, ready, WIDTHS.get(course.policy, WIDTH))]
    if _delay_shows(found) and course.schedule.at_ns.size > 1:
        lines.append((course.schedule.at_ns, course.schedule.asked, 0.7))
    for at_ns, replicas, width in lines:
        at = np.append(at_ns / NS_PER_S, found.duration_s) / scale
        inside = at_ns / NS_PER_S < found.duration_s
        at = np.append(at[:-1][inside], at[-1])
        values = replicas[inside] * found.replica_gpus
        style = (0, (4, 2)) if course.policy == "static" else "solid"
        label = clean(course.policy, 24) if width > 1 else None
        axes.step(
            at, np.append(values, values[-1]), where="post", color=colour, linewidth=width, label=label, linestyle=style
        )


def _colour(found: OverTime, course: Course) -> str:
    return SCALED[found.scaled.index(course) % len(SCALED)] if course in found.scaled else COLOURS[course.policy]


def _delay_shows(found: OverTime) -> bool:
    return found.rules.start_delay_s > SEEN * found.duration_s


def _shares(axes: Axes, found: OverTime, scale: float) -> None:
    """The share within the SLO that is nearest to being missed, over the five minutes before each time."""
    import numpy as np

    lowest = 1.0
    for course in found.courses:
        served = course.served
        at_s, share = served.rolling(course.binding, SPAN_S)
        axes.plot(at_s / scale, share, color=_colour(found, course), linewidth=1.2)
        known = share[np.isfinite(share)]
        lowest = min(lowest, float(known.min())) if known.size else lowest
    target = found.static.targets[found.static.binding]
    axes.axhline(target, color=LIMIT, linewidth=1.1, zorder=1)
    bottom = min(lowest, target)
    axes.set_ylim(max(-0.02, bottom - 0.06 * (1 - bottom) - 0.005), 1.0 + 0.03 * (1 - bottom) + 0.001)
    axes.set_ylabel("within the SLO,\nlast 5 min")


def _title(found: OverTime) -> str:
    best = min(
        found.scaled or found.courses[1:] or found.courses, key=lambda course: (not course.keeps, course.gpu_hours)
    )
    if best is found.static:
        return conclusion(found)
    saved = found.saved(best)
    word = "fewer" if saved >= 0 else "more"
    against = f"{gpus_text(found.static.peak_gpus)} all the time"
    text = f"{clean(best.policy, 40)}: {abs(saved):.0%} {word} GPU-hours than {against}"
    # Saved at the users' expense is not saved.
    return text if best.keeps else f"{text}, but an SLO is missed"


def _subtitle(found: OverTime) -> str:
    rules = found.rules
    # Autoscalers that are simulated go by rules of their own.
    down = "" if found.scaled else f", scaled down after {format_duration(rules.scale_down_after_s)}"
    return (
        f"{clean(' and '.join(found.objectives), 60)}; windows of {format_duration(rules.window_s)}, start delay "
        f"{format_duration(rules.start_delay_s)}{down}"
    )


def _unit(length_s: float) -> tuple[str, float]:
    for name, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if length_s >= (3 if name == "days" else 2) * size:
            return name, size
    return "s", 1.0
