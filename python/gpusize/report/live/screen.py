"""What a live view is drawn on: lines that stay, and below them a part that is drawn anew."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Screen", "Terminal"]


class Screen(Protocol):
    """Lines that stay, and below them a part that is drawn anew."""

    def say(self, line: str) -> None:
        """Add a line that stays."""

    def draw(self, view: RenderableType) -> None:
        """Draw the part below the lines."""

    def clear(self) -> None:
        """Nothing is drawn below the lines until there is something again."""

    def close(self) -> None:
        """Leave the lines, and nothing below them."""


class Terminal:
    """A terminal, by rich.

    Args:
        file: of the terminal.
    """

    def __init__(self, file: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=file, markup=False, emoji=False, highlight=False)
        # The callback draws: no thread of its own that could redraw a half-updated state.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def say(self, line: str) -> None:
        """As `Screen.say`."""
        from rich.text import Text

        self._live.console.print(Text(line))

    def draw(self, view: RenderableType) -> None:
        """As `Screen.draw`."""
        self._live.update(view, refresh=True)

    def clear(self) -> None:
        """As `Screen.clear`."""
        from rich.text import Text

        self._live.update(Text(""))

    def close(self) -> None:
        """As `Screen.close`."""
        self._live.stop()
