"""Tables of a benchmark: printed as they come, and appended to RESULTS.md when the run is for the record."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benches.lib.bars import Bar

__all__ = ["Report", "markdown_table"]

TITLE = """# Results

Appended by the commands that each entry names, `make bench-...` and `make soak`; newest last. Each entry belongs to the
host that it names: compare ratios, not absolute numbers. A bar reads `name value [lo,hi] bound`; it is ok when the
worse end of the interval keeps the bound.
"""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with aligned columns, so that it reads well as plain text too."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


class Report:
    """What a run has found so far."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self._texts: list[str] = []

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> None:
        """Print a table and keep it."""
        self.text(f"### {title}\n\n{markdown_table(header, rows)}\n" + (f"\n{note}\n" if note else ""))

    def text(self, text: str) -> None:
        """Print a text and keep it."""
        self._texts.append(text)
        print(f"\n{text}", flush=True)

    def bar(self, bar: Bar) -> None:
        """Print a bar and keep it."""
        self.bars.append(bar)
        print(bar.line(), flush=True)

    def append_to(self, path: Path, facts: Mapping[str, str], command: str) -> None:
        """Append the whole run to ``path``, which is started when it is not there."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        entry = [f"\n## {now}: `{command}`\n", *(f"- {name}: {value}" for name, value in facts.items()), ""]
        entry += self._texts
        if self.bars:
            entry += ["```", *(bar.line() for bar in self.bars), "```", ""]
        known = path.read_text(encoding="utf-8") if path.exists() else TITLE
        path.write_text(known + "\n".join(entry), encoding="utf-8")
