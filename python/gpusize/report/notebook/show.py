"""Results, estimates, plans and comparisons as HTML for a notebook: ``_repr_html_`` of each comes here.

A piece of HTML stands in a page that is not ours, light or dark, beside others of its kind. So its style counts inside
it only, it brings its own paper and ink, no script and nothing from elsewhere, and texts of servers are escaped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.comparison.show import group_tables
from gpusize.report.comparison.words import finding, noise_rows, remarks
from gpusize.report.comparison.words import rows as comparison_rows
from gpusize.report.figures.drawing import drawing
from gpusize.report.figures.plots import KINDS, Drawn
from gpusize.report.page.html import inline_svg
from gpusize.report.plans import words as plan_words
from gpusize.report.plans.plan import plan_columns, why_none
from gpusize.report.summary import words
from gpusize.report.summary.columns import (
    BAD,
    FAINT,
    GOOD,
    Cell,
    Column,
    notes,
    run_notes,
    summary_columns,
    users_by_level,
)
from gpusize.report.summary.source import ReportSource, each_slo, shown
from gpusize.report.summary.sweep import judged_slos, sweeps_of
from gpusize.report.text import clean, number, plain_number

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from gpusize.analysis.compare.comparison import Comparison
    from gpusize.estimate.plan import WhatIf
    from gpusize.estimate.question import Estimate

__all__ = ["comparison_html", "estimate_html", "plan_html", "result_html"]

PICTURES: Final = ("attainment", "runtime")
"""The figure that stands beside the answer; the second where a result has not the first."""
_VERDICTS: Final = {"worse": BAD, "better": GOOD, "no evidence": FAINT, "within these two runs": FAINT}
_TEXTS: Final = frozenset({"load", "figure", "side", "verdict"})


def result_html(source: ReportSource, estimates: Sequence[Estimate] = (), problem: str = "") -> str:
    """A result: the answer and what weakens it, the table of levels, and the attainment picture.

    Args:
        source: a result.
        estimates: its estimates, the answer first.
        problem: why there are none.
    """
    sweeps = sweeps_of(source)
    users = users_by_level(estimates)
    tables = [(each.loop if len(sweeps) > 1 else "", summary_columns(each, users)) for each in sweeps]
    judged = judged_slos(sweeps)
    return _render(
        "result.html.j2",
        headline=words.answer(shown(estimates[0])) if estimates else "",
        facts=_facts(shown(estimates[0])) if estimates else [("no answer", clean(problem))] if problem else [],
        about=sweeps[0].about,
        tables=tables,
        slos=[(f"SLO {k + 1}" if len(judged) > 1 else "SLO", slo.text) for k, slo in judged],
        notes=[*(each for sweep in sweeps for each in notes(sweep)), *run_notes(source)],
        picture=_picture(source, estimates) if any(each.levels for each in sweeps) else None,
    )


def estimate_html(estimate: Estimate) -> str:
    """An answer in one sentence, what it rests on, and of several SLOs the answer to each."""
    best = shown(estimate)
    each = each_slo([best]) if best.per_slo else []
    columns = [
        _column("SLO", (part.slo or "" for part in each), left=True),
        _column("GPUs", (plain_number(part.gpus, 9) for part in each)),
        _column("interval", (words.interval_text(part) for part in each), left=True),
        _column("unrounded", (number(part.gpus_raw) for part in each)),
        _column("remark", (words.remark(part) for part in each), left=True),
    ]
    return _render(
        "answer.html.j2", headline=words.answer(best), about="", facts=_facts(best), table=columns if each else []
    )


def plan_html(plan: WhatIf) -> str:
    """A plan: its finding, a row for each answer, and why rows have none."""
    facts = [*(("assumes", text) for text in plan.assumptions), *(("weakens it", text) for text in plan.warnings)]
    facts += [("no answer", why_none(plan))] if any(row.gpus is None for row in plan.rows) else []
    facts.append(("measure next", words.next_text(plan)))
    return _render(
        "answer.html.j2",
        headline=plan_words.finding(plan),
        about=plan_words.slo_text(plan),
        facts=_told(facts),
        table=plan_columns(plan),
    )


def comparison_html(comparison: Comparison) -> str:
    """A comparison: the finding, a row for each difference, and what a reader has to know beside it."""
    others = [*group_tables(comparison), noise_rows(comparison.noise)]
    lines = comparison_rows(comparison) if comparison.differences else others[0]
    header, *body = lines
    columns = [
        Column(name, name, "", tuple(Cell(row[k], _VERDICTS.get(row[k], "")) for row in body), 0, name in _TEXTS)
        for k, name in enumerate(header)
    ]
    facts = _told(("know that", text) for text in remarks(comparison))
    return _render("answer.html.j2", headline=finding(comparison), about="", facts=facts, table=columns)


def _facts(best: Estimate) -> list[tuple[str, str]]:
    facts: list[tuple[str, str | None]] = [
        ("capacity", words.capacity_text(best)),
        ("interval", words.interval_text(best)),
        ("decides", words.decides_text(best)),
        ("neighbours", words.neighbours_text(best)),
        ("method", words.method_text(best)),
        ("falls back", best.fallback),
    ]
    facts += [("why", best.reason)] if best.answered else []
    facts += [("weakens it", text) for text in best.warnings]
    facts += [("changes it", text) for text in best.changes]
    return _told([*facts, ("measure next", words.next_text(best))])


def _told(facts: Iterable[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """Those that have a text, safe to show; a name that repeats stands once."""
    told: list[tuple[str, str]] = []
    before = ""
    for name, text in facts:
        if text:
            told.append(("" if name == before else name, clean(text)))
            before = name
    return told


def _column(title: str, texts: Iterable[str], *, left: bool = False) -> Column:
    return Column(title, title, "", tuple(Cell(text) for text in texts), 0, left)


def _picture(source: ReportSource, estimates: Sequence[Estimate]) -> Markup | None:
    """The figure beside the answer, as SVG whose ids no other piece of the notebook has; None where none can be."""
    from markupsafe import Markup

    from gpusize.report.figures import style

    drawn = Drawn(source, sweeps_of(source)[0], [shown(each) for each in estimates])
    kinds = {kind.name: kind for kind in KINDS}
    with drawing(), style.settings():
        for name in PICTURES:
            figure = kinds[name].draw(drawn)
            if figure is not None:
                of = f"{name} {source.path} {drawn.estimates}"
                own = hashlib.blake2b(of.encode(), digest_size=6).hexdigest()
                return Markup(inline_svg(f"{name}-{own}", figure))  # noqa: S704 (matplotlib escapes the text in it)
    return None


def _render(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("gpusize.report.notebook", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
