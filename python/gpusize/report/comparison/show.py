"""A comparison on the terminal, in Markdown, as JSON and as JUnit's XML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.gates import Judged
from gpusize.report.comparison.group_words import most_rows, scaled_rows, spent_rows
from gpusize.report.comparison.words import finding, gate_text, noise_rows, remarks, rows
from gpusize.report.markdown import escaped, table
from gpusize.report.summary.terminal import plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["document", "group_tables", "junit_xml", "markdown", "print_comparison"]

SCHEMA = 1
_TONES = {"worse": "bold red", "better": "green", "no evidence": "dim", "within these two runs": "dim"}
_LEFT = frozenset({"load", "figure", "side", "verdict"})


def print_comparison(
    comparison: Comparison,
    console: Console,
    judged: Sequence[Judged] = (),
    *,
    noise: bool = False,
    written: Sequence[Path] = (),
) -> None:
    """Print the answer, the tables, what is to be known beside them, what the gates say, and the files written."""
    from rich.text import Text

    console.print(Text(plain(console, finding(comparison)), style="bold"))
    if comparison.differences:
        _print_table(rows(comparison), console)
    for lines in group_tables(comparison):
        console.print()
        _print_table(lines, console)
    if noise or not (comparison.differences or comparison.by):
        _print_table(noise_rows(comparison.noise), console)
    for remark in remarks(comparison):
        line = Text("! ", style="bold yellow")
        line.append(plain(console, remark), style="not bold")
        console.print(line)
    for each in judged:
        console.print(Text(plain(console, gate_text(each)), style="bold red" if each.failed else ""))
    for path in written:
        console.print(str(path), soft_wrap=True)


def _print_table(lines: Sequence[Sequence[str]], console: Console) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    header, *body = lines
    for name in header:
        table.add_column(Text(plain(console, name)), justify="left" if name in _LEFT else "right")
    before = ""
    for row in body:
        # A load stands once above its figures.
        shown = ["" if row[0] == before and k == 0 else cell for k, cell in enumerate(row)]
        before = row[0]
        table.add_row(*(Text(plain(console, cell), style=_TONES.get(cell, "")) for cell in shown))
    console.print(table)


def markdown(comparison: Comparison, judged: Sequence[Judged] = (), *, noise: bool = False) -> str:
    """The comparison as Markdown, for a pull request."""
    parts = [f"**{escaped(finding(comparison))}**"]
    if comparison.differences:
        parts.append(_table(rows(comparison)))
    parts += [_table(lines) for lines in group_tables(comparison)]
    if noise or not (comparison.differences or comparison.by):
        parts.append(_table(noise_rows(comparison.noise)))
    said = [*remarks(comparison), *map(gate_text, judged)]
    if said:
        parts.append("\n".join(f"- {escaped(each)}" for each in said))
    return "\n\n".join(parts) + "\n"


def group_tables(comparison: Comparison) -> list[list[list[str]]]:
    """The tables of grouped runs that have rows: speed-up, the most of each count, what a request took."""
    made = (scaled_rows(comparison.scaled), most_rows(comparison), spent_rows(comparison))
    return [lines for lines in made if len(lines) > 1]


def _table(lines: Sequence[Sequence[str]]) -> str:
    return table(lines, [number for number, name in enumerate(lines[0]) if name in _LEFT])


def document(comparison: Comparison, judged: Sequence[Judged] = ()) -> dict[str, Any]:
    """The comparison as plain JSON types; what is not known is null."""
    return {
        "schema": SCHEMA,
        "finding": finding(comparison),
        "sides": [{"name": name, "runs": runs} for name, runs in comparison.sides.items()],
        "margin": comparison.margin,
        "in_turns": comparison.in_turns,
        "differences": [asdict(each) for each in comparison.differences],
        "noise": [asdict(each) for each in comparison.noise],
        "alone": comparison.alone,
        "left_out": comparison.left_out,
        "partly_known": comparison.partly_known,
        "failed": comparison.failed,
        "withheld": comparison.withheld,
        "differing": comparison.differing,
        "unlike": comparison.unlike,
        "unpaired": comparison.unpaired,
        "loads": comparison.loads,
        "broken": comparison.broken,
        "rounds": comparison.rounds,
        "by": comparison.by or None,
        "counts": comparison.counts,
        "scaled": [asdict(each) for each in comparison.scaled],
        "kept_up": comparison.kept_up if comparison.counts else {},
        "spent": [asdict(each) for each in comparison.spent],
        "untold": comparison.untold,
        "most": [asdict(each) for each in comparison.most],
        "law": None if comparison.law is None else asdict(comparison.law),
        "gates": [
            {
                "gate": each.gate.text,
                "side": each.difference.side,
                "load": each.difference.load,
                "figure": each.difference.figure,
                "change": each.difference.change,
                "p": each.p,
                "failed": each.failed,
                "judged": each.judged,
                "why_not": each.why_not or None,
            }
            for each in judged
        ],
    }


def junit_xml(judged: Sequence[Judged]) -> str:
    """What the gates say as JUnit's XML: a test case for each gate and load, an error where it cannot be judged."""
    failures, errors = sum(each.failed for each in judged), sum(not each.judged for each in judged)
    counts = {"tests": str(len(judged)), "failures": str(failures), "skipped": "0", "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": "gpusize compare", **counts})
    for each in judged:
        found = each.difference
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{found.side}.{found.load}", name=each.gate.text, time="0"
        )
        if each.failed:
            failure = ElementTree.SubElement(case, "failure", message=gate_text(each))
            failure.text = f"p {each.p:.2g}" if not math.isnan(each.p) else ""
        elif not each.judged:
            ElementTree.SubElement(case, "error", message=gate_text(each))
    root = ElementTree.Element("testsuites", counts)
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
