"""The figures of a result, and their files.

matplotlib is used without pyplot: figures are objects without global state, so that a notebook's own figures, and
threads, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.files import storing, write_atomic
from gpusize.report.summary.source import ReportSource, each_slo, view_estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "figures", "save_figures", "save_plots", "svg_text"]

FORMATS: Final = ("png", "svg")


def figures(source: ReportSource, estimates: Sequence[Any] = ()) -> dict[str, Figure]:
    """The figures that the result has data for, by name, in reading order.

    Names: ``runtime`` (percentiles against concurrency or rate), ``fit`` (the slope method's line), ``throughput``,
    ``attainment`` (share of requests within each SLO, with the capacity), ``replicas`` (rate of each), ``server`` (what
    servers and GPUs said), ``over_time`` (the first run from its start to its end). Of pooled runs of both loops the
    smaller sweep's have its loop in their names, as ``runtime-open``.

    Args:
        source: a result, or anything with the properties of ``ReportSource``.
        estimates: estimates whose lines and crossings are drawn, the answer first.
    """
    from gpusize.report.figures import levels, style
    from gpusize.report.figures.attainment import attainment_figure
    from gpusize.report.figures.fit import fit_figure
    from gpusize.report.figures.over_time import over_time_figure
    from gpusize.report.figures.server import replicas_figure, server_figure
    from gpusize.report.summary.sweep import sweeps_of

    sweep, *others = sweeps_of(source)
    views = [view_estimate(each) for each in estimates]
    slopes = [each for each in views if each.method == "slope"]
    # The line of the SLO that decides; of the first that has one, when that SLO is not of the kind that lines fit.
    fitted = next((each for each in (*slopes, *each_slo(slopes)) if each.points), None)
    crossings = each_slo([each for each in views if each.method == "crossing"])
    answer = views[0] if views and views[0].method == "twin" else None
    over_time = over_time_figure(source)
    if not sweep.levels:
        return {} if over_time is None else {"over_time": over_time}
    with style.settings():
        made = {
            "runtime": levels.runtime_figure(sweep),
            "fit": fit_figure(sweep, fitted) if fitted is not None else None,
            "attainment": attainment_figure(sweep, crossings, answer),
            "throughput": levels.throughput_figure(sweep),
            "replicas": replicas_figure(source, sweep),
            "server": server_figure(sweep),
            "over_time": over_time,
        }
        for other in others:
            drawn = {
                "runtime": levels.runtime_figure(other),
                "attainment": attainment_figure(other, (), None),
                "throughput": levels.throughput_figure(other),
            }
            made |= {f"{name}-{other.short}": figure for name, figure in drawn.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def save_plots(
    source: ReportSource, estimates: Sequence[Any], out_dir: Path, formats: Sequence[str] = FORMATS
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
    for name, figure in made.items():
        for suffix in formats:
            file = out_dir / f"{name}.{suffix}"
            # Without a date the same result gives the same bytes.
            metadata = {"Date": None} if suffix == "svg" else {"Software": "gpusize"}
            drawn = BytesIO()
            with style.settings():
                figure.savefig(drawn, format=suffix, metadata=metadata)
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
