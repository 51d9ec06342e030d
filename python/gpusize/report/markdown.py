"""Markdown as GitHub reads it: tables, and text in which nothing is markup."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

__all__ = ["escaped", "table"]

_MARKUP: Final = frozenset("\\|*_`<>[]~$&#")


def escaped(text: str) -> str:
    """A line of text that shows as it is: no markup, no HTML, no reference to a person."""
    shown = "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in text)
    # GitHub looks for names after all escapes are done; a comment parts them.
    return shown.replace("@", "@<!-- -->")


def table(lines: Sequence[Sequence[str]], left: Collection[int] = ()) -> str:
    """A table.

    Args:
        lines: the header, then the rows; plain text.
        left: numbers of the columns, from 0, that are texts; the others stand to the right.
    """
    header, *body = ([escaped(cell) for cell in row] for row in lines)
    marks = ["---" if number in left else "---:" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *body))
