"""What commands that compare have in common: options, gates, and how the answer is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpusize.cli.command import option

if TYPE_CHECKING:
    from gpusize.analysis.compare.comparison import Comparison
    from gpusize.analysis.compare.gates import Gate

__all__ = ["FailIf", "Figures", "Junit", "Margin", "Wanted", "Written"]

FORMATS: Final = ("table", "md")
FAILED: Final = 1
NOT_JUDGED: Final = 2

Figures = Annotated[
    list[str] | None,
    option(
        "Compare this figure: 'p95 runtime', 'mean ttft', 'achieved rate', 'output rate', 'error share'.",
        "TEXT",
        names=("--figure",),
        show_default="the usual ones",
    ),
]
Margin = Annotated[str, option("Differences within this share do not matter.", "SHARE", show_default="2%")]
FailIf = Annotated[
    list[str] | None,
    option("Exit with 1 if the evidence shows this change, with 2 if it cannot tell: 'p95 runtime > +5%'.", "GATE"),
]
Junit = Annotated[Path | None, option("Write the results of the gates as JUnit XML.", "FILE")]
Written = Annotated[str, option("Print a table, or md: Markdown.", "NAME", names=("--format",))]


@dataclass(frozen=True)
class Wanted:
    """How a comparison is judged and shown; made before anything is measured or read.

    Raises:
        UsageError: no such format, or a file for gates without gates.
        ConfigError: a gate that does not parse.
    """

    fail_if: list[str] | None
    junit: Path | None
    written: str
    json: bool
    noise: bool = False
    out: Path | None = None
    gates: list[Gate] = field(init=False)

    def __post_init__(self) -> None:
        from gpusize.analysis.compare.gates import Gate
        from gpusize.base.errors import UsageError

        if self.written not in FORMATS:
            raise UsageError(f"there is no format {self.written!r}", "format", f"there are {', '.join(FORMATS)}")
        if self.junit is not None and not self.fail_if:
            raise UsageError("there are no gates to write", "junit", "give --fail-if")
        object.__setattr__(self, "gates", [Gate.parse(text) for text in self.fail_if or ()])

    @property
    def figures(self) -> list[str]:
        """The figures that the gates judge."""
        return [gate.figure for gate in self.gates]

    def show(self, found: Comparison) -> int:
        """Print a comparison and write the file of its gates.

        Returns:
            The exit code: 1 where a gate failed, else 2 where one could not be judged.
        """
        from gpusize.analysis.compare.gates import judge
        from gpusize.base.files import write_atomic
        from gpusize.cli.shared import note
        from gpusize.report.comparison.show import document, junit_xml, markdown, print_comparison
        from gpusize.report.export import dumps
        from gpusize.report.figures.comparison import save_comparison
        from gpusize.report.summary.terminal import make_console

        judged = judge(found, self.gates)
        if self.junit is not None:
            write_atomic(self.junit, junit_xml(judged).encode())
        written = []
        if self.out is not None:
            written = save_comparison(found, dumps(document(found, judged)).encode(), self.out)
        if self.json:
            typer.echo(dumps(document(found, judged)), nl=False)
        elif self.written == "md":
            typer.echo(markdown(found, judged, noise=self.noise), nl=False)
        else:
            print_comparison(found, make_console(), judged, noise=self.noise, written=written)
        failed = sum(each.failed for each in judged)
        if failed:
            note(f"{failed} of {len(judged)} gates failed")
        blind = sum(not each.judged for each in judged)
        if blind:
            note(f"{blind} of {len(judged)} gates could not be judged")
        return FAILED if failed else NOT_JUDGED if blind else 0
