"""The figures of a comparison by name, and its files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.base.errors import UsageError
from gpusize.report.figures.compared import Sweep, against_figure, counts_figure, spent_figure, sweeps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COMPARED", "comparison_figures", "one_figure", "save_comparison"]

COMPARED: Final = {
    "rate": "requests/s of each side against the load, and speed-up over the first",
    "output_rate": "the same of output tokens/s",
    "runtime": "p95 of the runtime, and its ratio to the first side",
    "ttft": "p95 of the time to the first token, likewise",
    "spent": "energy, time of GPUs and CPU cores, and cost per request",
    "counts": "requests/s against the number of GPUs or instances, a line per load",
    "growth": "the most requests/s by number, with the law of scaling",
    "most": "of groups without counts, the most requests/s of each at any load",
    "ecdf": "share of requests done within a time, a figure for each load",
}
"""Kinds of figures of a comparison, with what they show."""

_AGAINST: Final = {
    "rate": "achieved rate",
    "output_rate": "output rate",
    "runtime": "p95 runtime",
    "ttft": "p95 ttft",
}


def comparison_figures(comparison: Comparison) -> dict[str, Figure]:
    """The figures that the comparison has data for, by name, in reading order.

    A kind alone is the name of a figure over the sweep with most loads; that of another loop, or of other pauses, has
    its loop and number in its name, as ``rate-open``. Distributions are named by their load, as ``ecdf-16-users``.
    """
    from gpusize.report.figures import style
    from gpusize.report.figures.distribution import ecdf_figure
    from gpusize.report.figures.growth import growth_figure
    from gpusize.report.figures.most import most_figure

    over: dict[str, Callable[[Sweep], Figure | None]] = {
        **{kind: _drawer(comparison, name) for kind, name in _AGAINST.items()},
        "spent": lambda sweep: spent_figure(comparison, sweep),
        "counts": lambda sweep: counts_figure(comparison, sweep),
    }
    made: dict[str, Figure | None] = {}
    with style.settings():
        for sweep, suffix in _named(sweeps(comparison)):
            for kind, draw in over.items():
                made[kind + suffix] = draw(sweep)
        made["growth"] = growth_figure(comparison)
        made["most"] = most_figure(comparison)
        for place in comparison.places:
            made[f"ecdf-{_file_part(place.name)}"] = ecdf_figure(comparison, place)
    return {name: figure for name, figure in made.items() if figure is not None}


def one_figure(comparison: Comparison, kind: str, *, dark: bool = False) -> Figure:
    """One of the figures by its name; ``dark`` for dark paper.

    Raises:
        UsageError: there is no such figure, or no data for it.
    """
    from gpusize.report.figures.style import darkened

    made = comparison_figures(comparison)
    if kind not in made:
        raise UsageError(f"this comparison has no figure {kind!r}", "kind", f"there are {', '.join(made) or 'none'}")
    return darkened(made[kind]) if dark else made[kind]


def save_comparison(comparison: Comparison, document: bytes, out_dir: Path) -> list[Path]:
    """Write comparison.json, a .csv and .parquet of each table, and the figures as plots/NAME.png and .svg.

    Args:
        comparison: what was compared.
        document: contents of comparison.json.
        out_dir: a folder; it is made where there is none.

    Returns:
        The files written.

    Raises:
        StoreError: the folder or a file cannot be written.
    """
    from gpusize.base.files import write_atomic
    from gpusize.report.export import write_summary
    from gpusize.report.figures.drawing import drawing
    from gpusize.report.figures.plots import save_figures

    written = [each for name, frame in comparison.tables.items() for each in write_summary(frame, out_dir, name)]
    write_atomic(out_dir / "comparison.json", document)
    written.append(out_dir / "comparison.json")
    with drawing():
        written += save_figures(comparison_figures(comparison), out_dir / "plots")
    return written


def _drawer(comparison: Comparison, name: str) -> Callable[[Sweep], Figure | None]:
    return lambda sweep: against_figure(comparison, sweep, name)


def _named(found: list[Sweep]) -> list[tuple[Sweep, str]]:
    """Each sweep with what its figures' names end in: nothing for the first."""
    suffixes: list[str] = []
    for number, sweep in enumerate(found):
        suffix = "" if number == 0 else f"-{sweep.loop}"
        suffixes.append(suffix if suffix not in suffixes else f"{suffix}-{number + 1}")
    return list(zip(found, suffixes, strict=True))


def _file_part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60]
