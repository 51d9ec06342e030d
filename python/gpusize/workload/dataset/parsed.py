"""What a reader makes of a file: rows, the line each begins on, and notes for the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpusize.base.errors import DatasetError
from gpusize.base.text import shown

__all__ = ["Parsed", "as_row"]


@dataclass
class Parsed:
    """Rows of a file.

    Args:
        rows: one dictionary per row.
        lines: line of each row, from 1; empty where a file has no lines.
        notes: what was accepted although it is not quite right.
    """

    rows: list[dict[str, Any]]
    lines: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def as_row(value: Any, where: str, number: int) -> dict[str, Any]:
    """A row from a JSON value: an object as it is, a text as ``{"prompt": text}``.

    Raises:
        DatasetError: anything else.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return {"prompt": value}
    raise DatasetError(f"row {number} is {shown(value)}, not an object", where, 'write rows such as {"prompt": "…"}')
