"""What several commands print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusize.answer import Verdict
    from gpusize.estimate import Estimate
    from gpusize.result import Result

__all__ = ["conclude", "note", "print_json", "print_result"]


def note(text: str) -> None:
    """One line on standard error, harmless whatever a server or a file has put into it."""
    from gpusize.textio import shown

    sys.stderr.write(f"gpusize: {shown(text, 600)}\n")


def print_json(result: Result, estimates: Sequence[Estimate]) -> None:
    """The one document of ``--json`` on standard output."""
    from gpusize.report.export import dumps, result_document

    sys.stdout.write(dumps(result_document(result, estimates, result.truth)))


def print_result(result: Result, estimates: Sequence[Estimate], written: Sequence[Path] = ()) -> None:
    """Summary, estimates, and where everything lies."""
    from gpusize.report.tables import make_console, print_estimates, print_sections, print_summary

    console = make_console()
    print_summary(result, console)
    print_sections(result, console)
    if estimates:
        console.print()
        print_estimates(estimates, console, result.truth)
    if written:
        console.print()
    for path in written:
        console.print(str(path), soft_wrap=True)


def conclude(verdict: Verdict) -> int:
    """Say why the exit code is not 0, and return it."""
    if verdict.why:
        note(verdict.why)
    return verdict.code
