"""A result as Markdown, for a pull request: the answer, the levels, what is to be known beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusize.estimate.question import Estimate
from gpusize.report.markdown import escaped, table
from gpusize.report.summary.columns import summary_columns, users_by_level
from gpusize.report.summary.source import ReportSource, shown
from gpusize.report.summary.sweep import Sweep, about, sweeps_of
from gpusize.report.summary.words import answer, interval_text
from gpusize.report.text import clean

__all__ = ["markdown"]

MOST_COLUMNS: Final = 8
"""A comment of a pull request is narrow."""
MOST_REMARKS: Final = 20


def markdown(source: ReportSource, estimates: Sequence[Estimate] = ()) -> str:
    """The answer with its interval, a table of levels for each kind of load, its warnings and the levels' alerts.

    Args:
        source: a result.
        estimates: its estimates, the answer first; without any there is no answer.
    """
    safe = [shown(each) for each in estimates]
    sweeps = sweeps_of(source)
    certificate = getattr(source, "certificate", None)
    answered = _answer(safe) if certificate is None or safe else f"**{escaped(clean(certificate.conclusion))}**"
    parts = [answered, escaped(about(source.meta))]
    parts += [_levels(sweep, users_by_level(safe)) for sweep in sweeps if sweep.rows]
    said = list(dict.fromkeys([*(text for each in safe[:1] for text in each.warnings), *_alerts(sweeps)]))
    lines = [f"- {escaped(clean(text))}" for text in said[:MOST_REMARKS]]
    if len(said) > MOST_REMARKS:
        lines.append(f"- and {len(said) - MOST_REMARKS} more, in report.html")
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])]) + "\n"


def _answer(estimates: Sequence[Estimate]) -> str:
    if not estimates:
        return "**No number of GPUs was asked for**"
    interval = interval_text(estimates[0])
    return f"**{escaped(answer(estimates[0]))}**" + (f" ({escaped(interval)})" if interval else "")


def _levels(sweep: Sweep, users: float | None) -> str:
    columns = summary_columns(sweep, users)
    kept = {each.key for each in sorted(columns, key=lambda each: each.rank)[:MOST_COLUMNS]}
    columns = [each for each in columns if each.key in kept]
    header = [f"{each.title} {each.unit}".strip() for each in columns]
    body = zip(*([cell.text for cell in each.cells] for each in columns), strict=True)
    return table([header, *map(list, body)], [number for number, each in enumerate(columns) if each.left])


def _alerts(sweeps: Sequence[Sweep]) -> Iterator[str]:
    for sweep in sweeps:
        for row in sweep.rows:
            for text in row.get("alerts") or ():
                yield f"{sweep.named(row)}: {text}"
