"""A figure that a notebook shows by itself.

matplotlib leaves that to pyplot, which has to be set up first and keeps figures of its own.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from matplotlib.figure import Figure

__all__ = ["ShownFigure"]

_CSS_DPI: Final = 96
"""Pixels of a page to the inch."""


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows as PNG where it is the value of a cell, without a magic line."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture in its own resolution, and the size in a page's pixels at which it is shown."""
        out = BytesIO()
        self.savefig(out, format="png")
        width, height = self.get_size_inches()
        return out.getvalue(), {"width": round(width * _CSS_DPI), "height": round(height * _CSS_DPI)}
