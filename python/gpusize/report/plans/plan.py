"""A plan on the terminal and in files: one row per answer, what it rests on, and why rows have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.files import write_atomic
from gpusize.report.export import dumps, write_summary
from gpusize.report.plans.words import bound_text, finding, interval_text, load_text, slo_text, unit_text
from gpusize.report.summary.columns import BAD, FAINT, GOOD, Cell, Column
from gpusize.report.summary.terminal import facts_table, fitted_table, plain
from gpusize.report.summary.words import METHODS, next_text
from gpusize.report.text import DASH, clean, number, percent, plain_number

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.estimate.plan import Row, WhatIf

__all__ = ["plan_columns", "print_plan", "why_none", "write_plan"]

BAR: Final = 24
"""Characters of the bar of the largest count."""
ALIKE: Final = 0.01
"""Capacities that differ by less are not told apart."""
CROSSING: Final = {"crossing": "where attainment crosses what the SLO needs; GPUs in proportion"}


def print_plan(plan: WhatIf, console: Console, written: Sequence[Path] = ()) -> None:
    """Print the table, what it rests on, and the files that were written."""
    from rich.text import Text

    def say(text: str, style: str = "") -> Text:
        return Text(plain(console, text), style=style)

    console.print(say(finding(plan), "bold"))
    console.print(say(slo_text(plan), "dim"))
    console.print()
    console.print(fitted_table(plan_columns(plan, utf=console.encoding.startswith("utf")), console))
    console.print()
    console.print(facts_table(_facts(plan), console, dict.fromkeys(("weakens it", "no answer"), "yellow")))
    if written:
        console.print()
    for path in written:
        console.print(str(path), soft_wrap=True)


def plan_columns(plan: WhatIf, *, utf: bool = True) -> list[Column]:
    """The columns that a plan has something to say in; ``utf`` for bars that need it."""
    rows = plan.rows

    def made(key: str, title: str, unit: str, rank: int, show: Callable[[Row], str], *, left: bool = False) -> Column:
        return Column(key, title, unit, tuple(Cell(show(row)) for row in rows), rank, left)

    columns = [
        made("step", "when", "", 0, lambda row: row.step, left=True),
        made("bound", "bound", "", 0, bound_text),
        made("load", *_head(plan), 0, lambda row: plain_number(row.load, 6)),
    ]
    if plan.kind == "token_rate":
        columns.append(made("rate", "rate", "req/s", 3, lambda row: number(row.rate)))
    if len({row.step for row in rows}) == 1:
        del columns[0]
    columns = [each for each in columns if each.key != "bound" or any(cell.text for cell in each.cells)]
    columns.append(made("gpus", "GPUs", "", 0, lambda row: DASH if row.gpus is None else f"{row.gpus:,}"))
    columns.append(made("interval", "interval", "", 1, interval_text))
    columns.append(Column("bar", "drawn", "", tuple(Cell(text, FAINT) for text in _bars(plan, utf=utf)), 9, left=True))
    columns.append(made("raw", "unrounded", "", 6, lambda row: number(row.gpus_raw)))
    if plan.failed:
        columns += _failure_columns(plan)
    if plan.price is not None:
        columns += _cost_columns(plan, made)
    if len({row.method for row in rows}) > 1:
        columns.append(made("method", "method", "", 1, lambda row: row.method, left=True))
    if any(row.raised for row in rows):
        columns.append(made("note", "", "", 4, lambda row: "raised" if row.raised else "", left=True))
    return columns


def _head(plan: WhatIf) -> tuple[str, str]:
    return {"users": ("users", ""), "rate": ("rate", "req/s"), "token_rate": ("tokens", "tok/s")}[plan.kind]


def _bars(plan: WhatIf, *, utf: bool) -> list[str]:
    """Bars of the counts: full up to the count, light from there to its upper end."""
    most = max((row.gpus_high or row.gpus or 0 for row in plan.rows), default=0)
    full, light = ("█", "░") if utf else ("#", ".")
    texts = []
    for row in plan.rows:
        if row.gpus is None or not most:
            texts.append("")
            continue
        size = max(1, round(BAR * row.gpus / most))
        high = max(size, round(BAR * (row.gpus_high or row.gpus) / most))
        texts.append(full * size + light * (high - size))
    return texts


def _failure_columns(plan: WhatIf) -> list[Column]:
    which = f"{plan.failed} fail{'s' if plan.failed == 1 else ''}"
    cells, counts = [], []
    for row in plan.rows:
        found = row.failed
        tone = "" if found is None else GOOD if found.kept else BAD
        cells.append(Cell(DASH if found is None else percent(found.attainment), tone))
        counts.append(Cell(DASH if found is None else f"{found.gpus:,}"))
    return [
        Column("failed", which, "within SLO", tuple(cells), 1),
        Column("failed_gpus", which, "GPUs that stand it", tuple(counts), 2),
    ]


def _cost_columns(plan: WhatIf, made: Callable[..., Column]) -> list[Column]:
    currency = clean((plan.price and plan.price.currency) or "", 8)

    def column(key: str, per: str, unit: str, rank: int) -> Column:
        title = f"{currency or 'cost'}/{per}"
        return made(key, title, unit, rank, lambda row: _money(getattr(row.cost, key, None)))

    return [
        column("per_hour", "hour", "", 3),
        column("per_month", "month", "", 1),
        column("per_million_requests", "1M", "req", 4),
        column("per_million_tokens", "1M", "tok", 5),
    ]


def _money(amount: float | None) -> str:
    if amount is None:
        return DASH
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:,.2f}" if amount >= 1 else number(amount)


def _facts(plan: WhatIf) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if plan.capacity is not None and plan.tested_gpus:
        unit = "requests in flight" if plan.kind == "users" else "requests/s"
        tested = f"{plan.tested_gpus} GPU{'' if plan.tested_gpus == 1 else 's'} tested"
        facts.append(("capacity", f"{plain_number(plan.capacity)} {unit} on the {tested}{_simulated(plan)}"))
    answered = {row.method for row in plan.rows if row.gpus is not None}
    facts += [("method", f"{name}: {(METHODS | CROSSING).get(name, '')}") for name in sorted(answered, reverse=True)]
    facts += [("assumes", f"• {clean(text)}") for text in (*plan.assumptions, *_own_assumptions(plan))]
    facts += [("weakens it", f"• {clean(text)}") for text in plan.warnings]
    facts += [("no answer", f"• {text}") for text in _reasons(plan)]
    return [*facts, ("measure next", next_text(plan))]


def _simulated(plan: WhatIf) -> str:
    """What as many GPUs as the tested ones carry by the unrounded counts, where that is not their capacity.

    The capacity of users is read off the measured curve, and that of rates is of the fewest GPUs; unrounded counts are
    of as many simulated replicas as they say, whose fit is not the curve, and of which more share a queue.
    """
    tested = plan.tested_gpus or 0
    carried = [
        tested * load / row.gpus_raw
        for row in plan.rows
        if row.method == "twin" and row.gpus_raw and not row.raised and (load := row.users or row.rate)
    ]
    if not carried or plan.capacity is None or all(abs(each / plan.capacity - 1) < ALIKE for each in carried):
        return ""
    low, high = plain_number(min(carried)), plain_number(max(carried))
    # Users who pause are more than are in flight: without its unit it would read as another capacity.
    unit = "users" if plan.kind == "users" else "requests/s"
    ends = low if low == high else f"{low} to {high}"
    return f"; in the simulated clusters of the rows as many GPUs carry {ends} {unit}"


def _own_assumptions(plan: WhatIf) -> list[str]:
    """What the columns beside the counts take for granted."""
    texts = []
    if plan.kind == "token_rate" and plan.tokens:
        texts.append(f"requests/s are tokens/s over the {number(plan.tokens, 4)} output tokens of a measured answer")
    if plan.failed:
        texts.append(
            f"{'a replica that fails is' if plan.failed == 1 else 'replicas that fail are'} gone for good, and the "
            "same load goes to the others; the moment of the failure is not simulated"
        )
    if plan.price is not None:
        texts.append("a month has 730 hours; costs per request and token hold while the load is there, day and night")
    if any(row.raised for row in plan.rows):
        texts.append("raised: an easier row needs as many, so the smaller count here was chance")
    return texts


def _reasons(plan: WhatIf) -> list[str]:
    """Each reason once, with the rows that it is about."""
    about: dict[str, list[Row]] = {}
    for row in plan.rows:
        if row.gpus is None:
            about.setdefault(clean(row.reason or "reason unknown", 600), []).append(row)
    return [f"{_rows_text(plan, rows)}: {reason}" for reason, rows in about.items()]


def _rows_text(plan: WhatIf, rows: Sequence[Row]) -> str:
    if len(rows) == len(plan.rows):
        return "all rows" if len(rows) > 1 else load_text(plan, rows[0])
    loads = list(dict.fromkeys(plain_number(row.load, 6) for row in rows))
    bounds = [text for text in dict.fromkeys(bound_text(row) for row in rows) if text]
    steps = list(dict.fromkeys(row.step for row in rows)) if len({row.step for row in plan.rows}) > 1 else []
    parts = [f"{', '.join(loads)} {unit_text(plan)}", ", ".join(bounds), ", ".join(steps)]
    return "; ".join(part for part in parts if part)


def why_none(plan: WhatIf) -> str:
    """The reason of the first row without an answer."""
    return next((clean(row.reason, 600) for row in plan.rows if row.reason), "reason unknown")


def write_plan(plan: WhatIf, folder: Path) -> list[Path]:
    """Write plan.json, plan.csv, plan.parquet and, where there is an answer, plots/plan.png and .svg.

    Raises:
        StoreError: a file cannot be written.
    """
    from gpusize.report.figures.plots import save_figures

    written = write_summary(plan.frame, folder, "plan")
    # The rows alone are in the other two; this one says what they rest on too.
    write_atomic(folder / "plan.json", dumps(plan).encode())
    figures: dict[str, Any] = {"plan": plan.plot()} if plan.answered else {}
    return [*written, *(save_figures(figures, folder / "plots") if figures else [])]
