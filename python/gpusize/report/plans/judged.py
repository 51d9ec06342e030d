"""A judged run on a terminal: its stages, what followed each step of the load, what was paid, and what weakens it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.analysis.compare.whole import FILE, KNOWN
from gpusize.base.units import format_duration
from gpusize.report.plans.judged_findings import finding_text
from gpusize.report.summary.columns import BAD, FAINT, GOOD, Cell, Column
from gpusize.report.summary.terminal import facts_table, fitted_table, plain
from gpusize.report.text import DASH, clean, count, duration, number, percent, plain_number, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.estimate.plan.autoscale.judge.responses import After, Response
    from gpusize.estimate.plan.autoscale.judge.types import Judgement, Stage

__all__ = ["conclusion", "print_judgement", "write_judgement"]


DIGITS: Final = 4
MOST_ROWS: Final = 24
"""Stages or steps that a table shows; autoscale.json has all."""


def print_judgement(found: Judgement, console: Console, written: Sequence[Path] = ()) -> None:
    """Print the answer in a sentence, a row per stage, a row per step of the load, and what they rest on."""
    from rich.text import Text

    def said(text: str, style: str = "") -> None:
        console.print(Text(plain(console, text), style=style))

    said(conclusion(found), "bold")
    console.print()
    console.print(fitted_table(_stage_columns(found), console))
    _left_out(len(found.stages), "stages", said)
    names = [*map(str, found.slos)]
    for place, name in enumerate(names):
        said(f"SLO{f' {place + 1}' if len(names) > 1 else ''}: {clean(name)}", "dim")
    if found.responses:
        console.print()
        console.print(fitted_table(_step_columns(found), console))
        _left_out(len(found.responses), "steps of the load", said)
    console.print()
    console.print(
        facts_table(((name, clean(text, 600)) for name, text in _facts(found)), console, {"weakens it": "yellow"})
    )
    for path in written:
        console.print(str(path), soft_wrap=True)


def _left_out(count_: int, what: str, said: object) -> None:
    if count_ > MOST_ROWS:
        said(f"{count_ - MOST_ROWS} more {what} are in {FILE}", "dim")  # type: ignore[operator]


def conclusion(found: Judgement) -> str:
    """The answer in one sentence."""
    shares = found.whole.shares
    each = [
        f"{percent(share)} of the requests within {clean(str(slo), 60)}"
        for slo, share in zip(found.slos, shares, strict=False)
    ]
    text = " and ".join(each) or "no SLO was judged"
    if found.slos:
        text = f"{'SLOs kept' if found.keeps else 'SLOs missed'}: {text}" if len(each) > 1 else _one(found, text)
    if found.paid is None:
        return f"{text}; no series says how many replicas there were"
    parts = [f"{number(found.paid.gpu_hours, DIGITS)} GPU-hours"]
    if found.paid.cost is not None:
        parts.append(f"cost {_money(found, found.paid.cost)}")
    if found.scaling is not None:
        mean, peak = plain_number(found.scaling.mean), count(found.scaling.peak)
        parts.append(f"{mean} ready replicas on average, {peak} at most")
    known = found.known_share
    since = f"in the {percent(known)} of the time that is known: " if known < KNOWN else ""
    return f"{text}; {since}{', '.join(parts)}"


def _one(found: Judgement, text: str) -> str:
    return f"SLO {'kept' if found.keeps else 'missed'}: {text}"


def _money(found: Judgement, amount: float) -> str:
    return f"{number(amount, DIGITS)} {found.terms.currency}".strip()


def _stage_columns(found: Judgement) -> list[Column]:
    stages = [*found.stages[:MOST_ROWS], *([found.whole] if len(found.stages) > 1 else [])]

    def column(key: str, title: str, unit: str, rank: int, cells: Iterator[Cell]) -> Column:
        return Column(key, title, unit, tuple(cells), rank)

    made = [
        Column("stage", "stage", "", tuple(Cell(clean(each.name, 40)) for each in stages), 0, left=True),
        column("at", "begins", "at", 4, (Cell(duration(each.from_s), FAINT) for each in stages)),
        column("n", "requests", "", 2, (Cell(count(each.requests)) for each in stages)),
    ]
    for place in range(len(found.slos)):
        title = f"SLO {place + 1}" if len(found.slos) > 1 else "within SLO"
        made.append(column(f"slo{place}", title, "", 0, (_share(found, each, place) for each in stages)))
    if found.needed is not None:
        made.append(column("needed", "needed", "replicas", 1, (_number(each.needed) for each in stages)))
    made.append(column("ready", "ready", "replicas", 1, (_number(each.ready) for each in stages)))
    made.append(column("hours", "paid", "GPU-hours", 0, (_number(each.gpu_hours, DIGITS) for each in stages)))
    return made


def _number(value: float | None, digits: int = 3) -> Cell:
    return Cell(DASH, FAINT) if value is None else Cell(number(value, digits))


def _share(found: Judgement, stage: Stage, place: int) -> Cell:
    share = stage.shares[place]
    if share is None:
        return Cell(DASH, FAINT)
    return Cell(percent(share), GOOD if found.slos[place].met_by(share) else BAD)


def _step_columns(found: Judgement) -> list[Column]:
    rows = found.responses[:MOST_ROWS]

    def column(key: str, title: str, unit: str, rank: int, cells: Iterator[Cell]) -> Column:
        return Column(key, title, unit, tuple(cells), rank)

    made = [
        Column("step", "step of the load", "", tuple(Cell(_step(each)) for each in rows), 0, left=True),
        column("at", "at", "", 1, (Cell(duration(each.step.at_s), FAINT) for each in rows)),
    ]
    for key, title, unit, rank in (
        ("desired", "asked for", "s after it", 0),
        ("ready", "ready", "s after it", 0),
        ("serving", "serving", "s after it", 2),
        ("enough", "enough", "s after it", 1),
    ):
        if key != "enough" or found.needed is not None:
            made.append(column(key, title, unit, rank, (_after(getattr(each, key)) for each in rows)))
    if found.slos:
        made.append(column("recovered", "SLO kept again", "s after it", 0, (_recovered(each) for each in rows)))
    return made


def _step(response: Response) -> str:
    step = response.step
    unit = "/s" if step.unit == "requests/s" else f" {step.unit}"
    text = f"{plain_number(step.before)} to {plain_number(step.after)}{unit}"
    return f"{text} in {duration(step.ramp_s)}" if step.ramp_s else text


def _after(after: After | None) -> Cell:
    """Between which two readings: ``15 to 30``."""
    if after is None:
        return Cell(DASH, FAINT)
    low, high = (plain_number(each) for each in after)
    return Cell(low if low == high else f"{low} to {high}")


def _recovered(response: Response) -> Cell:
    found = response.recovery
    if not found.fell:
        return Cell("never lost", FAINT)
    return Cell("not before the next", BAD) if found.after_s is None else Cell(plain_number(found.after_s))


def _facts(found: Judgement) -> Iterator[tuple[str, str]]:
    below, judged = found.below
    empty = found.edges_s.size - 1 - judged
    text = f"{count(below)} of {count(judged)} windows of {format_duration(found.terms.window_s)} below an SLO"
    if found.slos:
        yield "windows", text + (f"; {count(empty)} without requests count as neither" if empty else "")
    if found.elasticity is not None:
        yield from _provisioned(found)
    elif found.why_not:
        yield "needed", f"not known: {found.why_not}"
    if found.scaling is not None:
        yield from _scaled(found)
    if found.paid is not None:
        yield from _paid(found)
    for each in found.findings:
        yield ("weakens it" if each.warns else "told"), f"• {finding_text(each)}"
    for text in () if found.needed is None else found.needed.warnings:
        yield "weakens it", f"• needed: {text}"
    for text in () if found.needed is None else found.needed.assumptions:
        yield "assumes", f"• needed: {text}"


def _provisioned(found: Judgement) -> Iterator[tuple[str, str]]:
    each, gpus = found.elasticity, found.terms.gpus_per_replica
    assert each is not None  # noqa: S101 (for the type checker)
    for name, replica_s, share, mean in (
        ("too few", each.under_s, each.under_share, each.under),
        ("too many", each.over_s, each.over_share, each.over),
    ):
        yield (
            name,
            (
                f"{number(replica_s * gpus, DIGITS)} GPU-seconds, in {percent(share)} of the time; "
                f"{ratio(mean)} of what was needed, on average"
            ),
        )


def _scaled(found: Judgement) -> Iterator[tuple[str, str]]:
    each = found.scaling
    assert each is not None  # noqa: S101 (for the type checker)
    turns = f"; what was asked for turned {_times(each.desired_turns)}" if each.desired_turns is not None else ""
    yield "scaled", f"up {_times(each.ups)}, down {_times(each.downs)}, turned {_times(each.turns)}{turns}"
    if each.mean > 0:
        yield "peak", f"{plain_number(each.peak / each.mean)} times the mean"
    if each.waited_s:
        yield "waited", f"more were asked for than there were for {duration(each.waited_s)}, {_times(each.waits)}"


def _times(n: int | None) -> str:
    return "once" if n == 1 else f"{count(n)} times"


def _paid(found: Judgement) -> Iterator[tuple[str, str]]:
    paid = found.paid
    assert paid is not None  # noqa: S101 (for the type checker)
    rates = [(paid.requests, "requests"), (paid.within, "requests within the SLOs"), (paid.tokens, "output tokens")]
    told = [f"{plain_number(rate, DIGITS)} {what}" for n, what in rates if (rate := paid.per_gpu_hour(n)) is not None]
    yield "per GPU-hour", ", ".join(told)
    started = None if paid.ready_gpu_hours is None else paid.gpu_hours - paid.ready_gpu_hours
    if started is not None and started > 0:
        yield "not ready", f"{number(started, DIGITS)} of the GPU-hours: replicas that started or were on their way out"
    if paid.idle_share is not None:
        yield "idle", f"{percent(paid.idle_share)} of the readings of single replicas had no request at work"
    if paid.energy_wh is not None:
        known = "" if paid.energy_known_s >= KNOWN * found.duration_s else f" in {duration(paid.energy_known_s)}"
        yield "energy", f"{plain_number(paid.energy_wh / 1000, DIGITS)} kWh{known}"


def write_judgement(found: Judgement, folder: Path, *, plots: bool = True) -> list[Path]:
    """Write autoscale.json and plots/autoscale.png and .svg.

    Raises:
        StoreError: a file cannot be written.
    """
    from gpusize.base.files import storing, write_atomic
    from gpusize.report.export import dumps
    from gpusize.report.figures.autoscale import judged_figure
    from gpusize.report.figures.drawing import drawing
    from gpusize.report.figures.plots import save_figures

    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    write_atomic(file, dumps(found.to_json()).encode())
    written = [file]
    if plots:
        with drawing():
            written += save_figures({"autoscale": judged_figure(found)}, folder / "plots")
    return written
