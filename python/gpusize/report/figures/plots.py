"""The figures of a result, and their files.

matplotlib is used without pyplot: figures are objects without global state, so that a notebook's own figures, and
threads, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.base.files import storing, write_atomic
from gpusize.estimate.question import Estimate
from gpusize.report.summary.source import ReportSource, each_slo, shown
from gpusize.report.summary.sweep import Sweep, sweeps_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "KINDS", "Drawn", "Kind", "figures", "save_figures", "save_plots", "svg_text"]

FORMATS: Final = ("png", "svg")


@dataclass(frozen=True, slots=True)
class Drawn:
    """What figures are drawn from: a result, one of its sweeps, and the estimates to show in it, the answer first."""

    source: ReportSource
    sweep: Sweep
    estimates: Sequence[Estimate]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of figure.

    Attributes:
        name: its name, and that of its files.
        caption: what stands below it in the page.
        draw: makes it; None where there is nothing to show.
        each_sweep: whether a second sweep of a result has one too.
        levels: whether it needs levels that lie on an axis.
        part: the part of the page that it stands in: ``answer``, ``load``, ``evidence``, ``time`` or ``server``.
    """

    name: str
    caption: str
    draw: Callable[[Drawn], Figure | None]
    each_sweep: bool = False
    levels: bool = True
    part: str = "load"


def _runtime(of: Drawn) -> Figure | None:
    from gpusize.report.figures.levels import latency_figure

    return latency_figure(of.sweep)


def _ttft(of: Drawn) -> Figure | None:
    from gpusize.report.figures.levels import latency_figure

    return latency_figure(of.sweep, "ttft")


def _itl(of: Drawn) -> Figure | None:
    from gpusize.report.figures.levels import latency_figure

    return latency_figure(of.sweep, "itl")


def _fit(of: Drawn) -> Figure | None:
    from gpusize.report.figures.fit import fit_figure

    slopes = [each for each in of.estimates if each.method == "slope"]
    # The line of the SLO that decides; of the first that has one, when that SLO is not of the kind that lines fit.
    fitted = next((each for each in (*slopes, *each_slo(slopes)) if each.details.get("points")), None)
    return None if fitted is None else fit_figure(of.sweep, fitted)


def _attainment(of: Drawn) -> Figure | None:
    from gpusize.report.figures.attainment import attainment_figure

    crossings = each_slo([each for each in of.estimates if each.method == "crossing"])
    answer = of.estimates[0] if of.estimates and of.estimates[0].method == "twin" else None
    return attainment_figure(of.sweep, crossings, answer)


def _throughput(of: Drawn) -> Figure | None:
    from gpusize.report.figures.levels import throughput_figure

    return throughput_figure(of.sweep)


def _replicas(of: Drawn) -> Figure | None:
    from gpusize.report.figures.server import replicas_figure

    return replicas_figure(of.source, of.sweep)


def _server(of: Drawn) -> Figure | None:
    from gpusize.report.figures.server import server_figure

    return server_figure(of.sweep)


def _over_time(of: Drawn) -> Figure | None:
    from gpusize.report.figures.over_time import over_time_figure

    return over_time_figure(of.source)


def _autoscale(of: Drawn) -> Figure | None:
    from gpusize.report.figures.judged_run import stored_figure

    return stored_figure(of.source)


def _split(of: Drawn) -> Figure | None:
    from gpusize.analysis.latency_split import split_rows
    from gpusize.report.figures.serving import split_figure

    return split_figure(of.sweep, split_rows(getattr(of.source, "levels", ())))


def _queue(of: Drawn) -> Figure | None:
    from gpusize.report.figures.serving import queue_figure

    return queue_figure(of.sweep)


def _batch(of: Drawn) -> Figure | None:
    from gpusize.report.figures.serving import batch_figure

    return batch_figure(of.sweep)


def _energy(of: Drawn) -> Figure | None:
    from gpusize.report.figures.serving import energy_figure

    return energy_figure(of.sweep)


def _gpus(of: Drawn) -> Figure | None:
    from gpusize.report.figures.serving import gpus_figure

    frame = of.source.tables.get("server")
    return None if frame is None else gpus_figure(of.sweep, frame)


def _percentiles(of: Drawn) -> Figure | None:
    from gpusize.report.figures.serving import percentiles_figure

    return percentiles_figure(of.sweep)


KINDS: Final = (
    Kind(
        "runtime",
        "Percentiles of runtime. Points are repeats; the line joins their means.",
        _runtime,
        each_sweep=True,
    ),
    Kind("ttft", "Percentiles of the time to the first token, from when a request was due.", _ttft, each_sweep=True),
    Kind("itl", "Percentiles of the time between tokens.", _itl, each_sweep=True),
    Kind("percentiles", "Runtime by percentile; a line per level, named at its end.", _percentiles),
    Kind(
        "fit", "The straight line of the slope method. Nothing was measured where it is shaded.", _fit, part="evidence"
    ),
    Kind(
        "attainment",
        "Share of requests that ended ok within the bound; the bars are 95 % intervals.",
        _attainment,
        each_sweep=True,
        part="answer",
    ),
    Kind("throughput", "Completed work. Dotted: what it would be without queueing.", _throughput, each_sweep=True),
    Kind(
        "replicas",
        "Completed requests/s of each replica; with equal shares the lines coincide.",
        _replicas,
        part="server",
    ),
    Kind("server", "Metrics of servers and GPUs: means over the level, all GPUs together.", _server, part="server"),
    Kind(
        "split",
        "Where the mean time of a request goes. Network is what the other parts leave over.",
        _split,
        part="server",
    ),
    Kind("queue", "Mean time in the server's queue, per request that succeeded.", _queue, part="server"),
    Kind("batch", "Inferences per execution of the model.", _batch, part="server"),
    Kind(
        "gpus",
        "Each GPU against its own memory and its own power limit: means over the whole level.",
        _gpus,
        part="server",
    ),
    Kind("energy", "Mean power of all GPUs over completed requests/s, and per output token.", _energy, part="server"),
    Kind(
        "over_time",
        "The run from start to end; vertical lines are levels, hatched ones the generator's own limit.",
        _over_time,
        levels=False,
        part="time",
    ),
    Kind(
        "autoscale",
        "The run beside the series that were pulled for it. Vertical lines are steps of the load, and of the replicas: "
        "green to more, yellow to fewer. Where it is shaded nobody read the replicas.",
        _autoscale,
        levels=False,
        part="time",
    ),
)
"""Every figure of a result, in reading order. One more figure is what draws it, and an entry here."""


def figures(source: ReportSource, estimates: Sequence[Estimate] = ()) -> dict[str, Figure]:
    """The figures that the result has data for, by name, in reading order: those of `KINDS`.

    Of pooled runs of both loops the smaller sweep's have its loop in their names, as ``runtime-open``.

    Args:
        source: a result, or anything with the properties of ``ReportSource``.
        estimates: estimates whose lines and crossings are drawn, the answer first.
    """
    from gpusize.report.figures import style

    sweep, *others = sweeps_of(source)
    of = Drawn(source, sweep, [shown(each) for each in estimates])
    with style.settings():
        made = {kind.name: kind.draw(of) for kind in KINDS if sweep.levels or not kind.levels}
        for other in others if sweep.levels else ():
            alone = Drawn(source, other, ())
            made |= {f"{kind.name}-{other.short}": kind.draw(alone) for kind in KINDS if kind.each_sweep}
    return {name: figure for name, figure in made.items() if figure is not None}


def save_plots(
    source: ReportSource, estimates: Sequence[Estimate], out_dir: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every figure as ``<out_dir>/<name>.<format>``; returns the files written.

    Raises:
        UsageError: a format other than png and svg.
        StoreError: the folder or a file cannot be written.
    """
    return save_figures(figures(source, estimates), out_dir, formats)


def save_figures(made: Mapping[str, Figure], out_dir: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write figures that exist already; as ``save_plots``."""
    from io import BytesIO

    from gpusize.report.figures import style

    unknown = [each for each in formats if each not in FORMATS]
    if unknown:
        raise UsageError(f"unknown plot format {unknown[0]!r}", todo=f"use one of {', '.join(FORMATS)}")
    with storing(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    written = []
    # Settings are checked one by one whenever they begin, which takes as long as a small figure.
    with style.settings():
        for name, figure in made.items():
            for suffix in formats:
                file = out_dir / f"{name}.{suffix}"
                # Without a date the same result gives the same bytes.
                metadata = {"Date": None} if suffix == "svg" else {"Software": "gpusize"}
                drawn = BytesIO()
                figure.savefig(drawn, format=suffix, metadata=metadata, facecolor="auto")
                write_atomic(file, drawn.getvalue())
                written.append(file)
    return written


def svg_text(figure: Figure) -> str:
    """A figure as SVG text."""
    from io import StringIO

    from gpusize.report.figures import style

    out = StringIO()
    with style.settings():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return out.getvalue()
