"""The live view below a notebook's cell: one output of plain text, which is shown anew."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Notebook", "in_notebook"]

WIDTH: Final = 100
HEIGHT: Final = 40
EVERY_S: Final = 0.5
"""Time between two drawings: each is a message to the page, and is kept with the notebook until the next."""


class Handle(Protocol):
    """Where IPython has put an output."""

    def update(self, obj: Any, **more: Any) -> None:
        """Show something else there."""


def in_notebook() -> bool:
    """Whether this program is the kernel of a notebook. Nothing is imported for it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Notebook:
    """An output below the running cell; a `gpusize.report.live.screen.Screen`.

    Args:
        display: as ``IPython.display.display``, which is taken by default.
        now: a clock in seconds, for tests.
    """

    def __init__(
        self, display: Callable[..., Handle | None] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._display = display
        self._now = now
        self._handle: Handle | None = None
        self._lines: list[str] = []
        self._view = ""
        self._shown: str | None = None
        self._shown_s = float("-inf")

    def say(self, line: str) -> None:
        """As `Screen.say`."""
        self._lines.append(line)
        self._show()

    def draw(self, view: RenderableType) -> None:
        """As `Screen.draw`, at most each ``EVERY_S``."""
        if self._now() - self._shown_s < EVERY_S:
            return
        from io import StringIO

        from rich.console import Console

        out = StringIO()
        console = Console(
            file=out, width=WIDTH, height=HEIGHT, color_system=None, markup=False, emoji=False, highlight=False
        )
        console.print(view)
        self._view = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        self._show()

    def clear(self) -> None:
        """As `Screen.clear`."""
        self._view = ""

    def close(self) -> None:
        """As `Screen.close`."""
        self._view = ""
        self._show()

    def _show(self) -> None:
        text = "\n".join([*self._lines, *([self._view] if self._view else [])])
        if not text or text == self._shown:
            return
        self._shown, self._shown_s = text, self._now()
        if self._handle is not None:
            self._handle.update(Plain(text))
            return
        if self._display is None:
            from IPython.display import display

            self._display = display
        self._handle = self._display(Plain(text), display_id=True)


class Plain:
    """Text that IPython shows as it is.

    Attributes:
        text: its lines.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text
