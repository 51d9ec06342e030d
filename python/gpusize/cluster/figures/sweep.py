"""A sweep as a picture: the time until scheduled over the rate, a line for each row of tests."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Final

from gpusize.base.files import write_atomic
from gpusize.report.figures import style
from gpusize.report.figures.drawing import drawing

if TYPE_CHECKING:
    from pathlib import Path

    from gpusize.cluster.sweep import Swept

__all__ = ["save_sweep"]

_COLORS: Final = (style.MID, style.AMBER, style.GOOD, style.OTHER, style.LOW, style.MUTED)


def save_sweep(swept: Swept, folder: Path) -> list[Path]:
    """Draw ``sweep.png``; filled marks kept the thresholds, open ones did not.

    Args:
        swept: the tests.
        folder: where it is written.

    Returns:
        The file; none where matplotlib failed, with a warning.

    Raises:
        StoreError: it cannot be written.
    """
    written: list[Path] = []
    with drawing(), style.settings():
        from gpusize.report.figures.shown_figure import ShownFigure

        figure = ShownFigure(figsize=(9.0, 5.2), dpi=110)
        axes = figure.add_subplot()
        ends = []
        groups = swept.tests.partition_by("nodes", "workers", maintain_order=True)
        for number, tests in enumerate(groups):
            color = _COLORS[number % len(_COLORS)]
            rows = tests.select("rate", "p99_s", "kept").rows()
            known = [(rate, p99) for rate, p99, _ in rows if p99 is not None and math.isfinite(p99)]
            axes.plot([each[0] for each in known], [each[1] for each in known], color=color, linewidth=1.6)
            for rate, p99, kept in rows:
                if p99 is not None and math.isfinite(p99):
                    axes.plot(rate, p99, "o", color=color, markerfacecolor=color if kept else "white", markersize=6)
                else:
                    # Too few were scheduled for a 99th percentile: it lies above all that is drawn.
                    edge = axes.get_xaxis_transform()
                    axes.plot(rate, 0.97, "^", color=color, markerfacecolor="white", markersize=8, transform=edge)
            nodes, workers = tests.select("nodes", "workers").row(0)
            if known:
                ends.append((known[-1][1], f"{nodes:,} nodes" + (f", {workers} workers" if workers else ""), color))
        axes.set_xlabel("workloads submitted per second")
        axes.set_ylabel("p99 until scheduled, seconds")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(y=0.15)
        title = (
            "How soon workloads are scheduled, by their rate\nfilled: thresholds kept; open: not; triangle: not reached"
        )
        axes.set_title(title, loc="left")
        style.label_ends(figure, axes, ends)
        figure.tight_layout()
        out = io.BytesIO()
        figure.savefig(out, format="png", bbox_inches="tight")
        write_atomic(folder / "sweep.png", out.getvalue())
        written.append(folder / "sweep.png")
    return written
