"""The doctor's findings as a table and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.doctor import Finding

__all__ = ["doctor_document", "print_findings"]

_STYLE: Final = {"ok": "green", "warn": "bold yellow", "lacks": "dim"}
_WIDE: Final = 100


def doctor_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The one document of ``gpusize doctor --json``; times in seconds."""
    rows = [{**asdict(finding), "todo": finding.todo or None} for finding in findings]
    return {"can_measure": not any(finding.prevents for finding in findings), "findings": rows}


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """A line for each, under its group; what to do stands below it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            table.add_row(Text(group, style="bold"))
        bad = "prevents" if finding.prevents else finding.verdict
        mark = Text(finding.verdict, style="bold red" if finding.prevents else _STYLE[finding.verdict])
        table.add_row(Text(f"  {clean(finding.name)}"), mark, Text(clean(finding.value)))
        if finding.todo:
            table.add_row("", "", Text(clean(finding.todo), style="bold" if bad != "lacks" else "dim"))
    console.print(table)
