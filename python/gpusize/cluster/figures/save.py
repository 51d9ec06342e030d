"""The pictures of a test, written into a folder."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.files import write_atomic
from gpusize.cluster.figures.layouts import detailed_figure, general_figure
from gpusize.cluster.figures.overview import overview_figure
from gpusize.report.figures import style
from gpusize.report.figures.drawing import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpusize.cluster.phases.timed import Timed

__all__ = ["LAYOUTS", "save_figures"]

LAYOUTS: Final[dict[str, Callable[[Timed], Figure]]] = {"general": general_figure, "detailed": detailed_figure}


def save_figures(timed: Timed, folder: Path, layout: str = "general") -> list[Path]:
    """Draw a layout and the overview.

    Args:
        timed: the test.
        folder: where ``LAYOUT.png`` and ``overview.png`` are written.
        layout: of `LAYOUTS`.

    Returns:
        The files; without those that matplotlib failed at, with a warning.

    Raises:
        StoreError: one cannot be written.
    """
    written: list[Path] = []
    for name, draw in ((layout, LAYOUTS[layout]), ("overview", overview_figure)):
        with drawing(), style.settings():
            out = io.BytesIO()
            draw(timed).savefig(out, format="png")
            write_atomic(folder / f"{name}.png", out.getvalue())
            written.append(folder / f"{name}.png")
    return written
