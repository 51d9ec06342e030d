"""A certificate in words: for the terminal, and for the report page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.analysis.proof.blocks import LEAST_BLOCKS
from gpusize.base.units import format_duration
from gpusize.estimate.certificate import percent_text
from gpusize.estimate.question import gpus_text
from gpusize.report.text import clean, count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from gpusize.estimate.certificate import Certificate, Side

__all__ = ["certificate_rows", "print_certificate"]

_STYLES: Final = {"kept": "green", "not kept": "red", "undecided": "yellow"}
MOST_CHARS: Final = 600


def certificate_rows(certificate: Certificate) -> list[tuple[str, str]]:
    """Label and text of each line that is shown."""
    rows = [("conclusion", clean(certificate.conclusion, MOST_CHARS)), ("load", clean(certificate.load_text))]
    for side in certificate.sides:
        rows += _side_rows(side)
    state = {"running": "it was not measured to its end", "interrupted": "it was interrupted"}.get(certificate.state)
    return [
        *rows,
        ("errors", certificate.errors_text),
        *(("assumes", text) for text in certificate.assumptions),
        *([("state", state)] if state else []),
    ]


def _side_rows(side: Side) -> list[tuple[str, str]]:
    name = gpus_text(side.gpus)
    how = "" if side.how == "as asked" else f" (measured on {gpus_text(side.at_gpus)} with {side.load_text})"
    rows = [(name, clean(f"{side.verdict}{how}: {side.why}", MOST_CHARS))]
    if side.judged is None:
        return rows
    for each in side.judged.slos:
        if not each.requests:
            rows.append(("", clean(f"{each.slo}: {_none_counts(side)}", MOST_CHARS)))
            continue
        shares = f"{percent_text(each.attainment)} of {count(each.requests)} {each.of}"
        unknown = f", {count(each.unknown)} of which do not tell" if each.unknown else ""
        # With fewer requests than are the least nothing is said: their interval would read as a verdict.
        known = f"between {percent_text(each.low)} and {percent_text(each.high)} of all such {each.of}"
        bounds = (
            known if side.judged.enough and each.blocks >= LEAST_BLOCKS else f"too few to say of all such {each.of}"
        )
        blocks = f"{count(each.blocks)} block{'' if each.blocks == 1 else 's'} of {count(each.block)} {each.of}"
        rows.append(("", clean(f"{each.slo}: {shares} within{unknown}; {bounds}; {blocks}", MOST_CHARS)))
    # Where none counts, what is left out is said there.
    counted = any(each.requests for each in side.judged.slos)
    left = (
        f"; the load generator was the limit in {side.left_out} levels, which do not count"
        if side.left_out and counted
        else ""
    )
    left = left.replace("in 1 levels, which do", "in 1 level, which does")
    spent = f"{count(side.requests)} requests in {side.levels} level{'' if side.levels == 1 else 's'}"
    rows.append(
        ("", f"{spent}, {format_duration(round(side.length_s))}; {count(side.judged.warmup)} were warm-up{left}")
    )
    return rows


def _none_counts(side: Side) -> str:
    """Why no request of a side counts."""
    if not side.levels:
        return "no request counts, as no level was measured to its end"
    why = "all the others were warm-up" if side.left_out else "all were warm-up"
    if side.left_out == side.levels:
        why = "the load generator was the limit whenever it was measured"
    elif side.left_out:
        why = f"the load generator was the limit in {side.left_out} of {side.levels} levels, and {why}"
    return f"no request counts: {why}"


def print_certificate(certificate: Certificate, console: Console, written: Sequence[Path] = ()) -> None:
    """Print a certificate, a line each, and where it lies."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, text in certificate_rows(certificate):
        verdict = next((style for name, style in _STYLES.items() if text.startswith((f"{name}:", f"{name} ("))), "")
        table.add_row(label, Text(text, style="bold" if label == "conclusion" else verdict))
    console.print(Text("Certificate", style="bold"))
    console.print(table)
    if written:
        console.print()
    for path in written:
        console.print(str(path), soft_wrap=True)
