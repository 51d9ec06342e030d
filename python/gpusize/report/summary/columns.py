"""The columns of the summary as they are shown, on the terminal and in the page: header, unit, cells, importance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.analysis.metrics import METRICS, QUANTILES, Metric
from gpusize.analysis.sources import lost_text
from gpusize.estimate.question import Estimate
from gpusize.report.summary.source import ReportSource, SloView
from gpusize.report.summary.sweep import Sweep, is_usable
from gpusize.report.text import clean, count, duration, finite, number, percent, plain_number, short_count, time_unit

__all__ = [
    "BAD",
    "FAINT",
    "GOOD",
    "Cell",
    "Column",
    "comes_in_parts",
    "failure_column",
    "level_column",
    "metric_columns",
    "notes",
    "plain_column",
    "run_notes",
    "several_columns",
    "summary_columns",
    "time_column",
    "users_by_level",
]

GOOD: Final = "good"
BAD: Final = "bad"
FAINT: Final = "faint"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and how it is meant (``good``, ``bad``, ``faint`` or an empty text)."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: two lines of header, the cells, and its importance (0 is never left out)."""

    key: str
    title: str
    unit: str
    cells: tuple[Cell, ...]
    rank: int
    left: bool = False


def summary_columns(sweep: Sweep, users: float | None = None) -> list[Column]:
    """The columns for which the summary has data, in reading order; GPUs by level where ``users`` are sized for."""
    rows = sweep.rows
    # Of streamed answers several metrics come before it.
    n_rank = 4 if comes_in_parts(rows) else 1
    made = [level_column(sweep), plain_column(rows, "n", "n", "req", n_rank, short_count), *several_columns(rows)]
    made.append(plain_column(rows, "achieved_rate", "achieved", "req/s", 2, number))
    made += _unsent(rows)
    made.append(_delivered(rows))
    made.append(plain_column(rows, "inferences_rate", "achieved", "infer/s", 2, number))
    if sweep.open_loop:
        made.insert(2, plain_column(rows, "offered_rate", "offered", "req/s", 6, number))
    judged = list(sweep.attainments())
    for each in METRICS.values():
        if each.table != "calls":
            made += metric_columns(rows, each, _level_ranks(rows, each, [slo for _, slo in judged]))
    made.append(_goodput(rows))
    made.append(plain_column(rows, "tokens_out_per_s", "output", "tok/s", 4, _token_rate))
    made.append(failure_column(rows, "errors", "errors", 2 if any(finite(row.get("errors")) for row in rows) else 5))
    made += [_attainment(rows, k, slo, f"SLO {k + 1}" if len(judged) > 1 else "SLO") for k, slo in judged]
    made.append(_rough_gpus(sweep, users))
    made.append(_flags(rows))
    return [column for column in made if column.rank <= 1 or any(cell.text != "–" for cell in column.cells)]


_QUANTILES: Final = ("p50", "p95", "p99")


def _level_ranks(rows: Sequence[Mapping[str, Any]], metric: Metric, slos: Sequence[SloView]) -> dict[str, int]:
    """Quantiles of a metric in the table of levels, in order, and their importance: what an SLO bounds comes first."""
    ranks = {**metric.shown, **(metric.beside_parts if comes_in_parts(rows) else {})}
    for slo in slos:
        quantile = "" if slo.percentile is None else f"p{slo.percentile:g}"
        if slo.metric == metric.name and any(finite(row.get(metric.column(quantile))) is not None for row in rows):
            # Its neighbours say the same less to the point.
            ranks = {each: max(rank, 6) if rank else 0 for each, rank in ranks.items()}
            ranks[quantile] = min(1, ranks.get(quantile, 1))
    return {quantile: ranks[quantile] for quantile in QUANTILES if quantile in ranks}


def metric_columns(
    rows: Sequence[Mapping[str, Any]], metric: Metric, shown: Mapping[str, int] | None = None
) -> list[Column]:
    """The columns of a metric: those quantiles that it shows; none where it says nothing that runtime does not.

    Args:
        rows: of a table that has them.
        metric: one of ``analysis.metrics``.
        shown: quantiles and their importance in that table, None for the metric's own.
    """
    if metric.streamed and not comes_in_parts(rows):
        return []
    ranks = {q: rank for q, rank in (metric.shown if shown is None else shown).items() if rank >= 0}
    if metric.unit != "s":
        return [
            plain_column(rows, metric.column(q), metric.label, f"{q} {metric.unit}", rank, number)
            for q, rank in ranks.items()
        ]
    siblings = [metric.column(q) for q in _QUANTILES]
    return [time_column(rows, metric.column(q), metric.label, q, rank, siblings) for q, rank in ranks.items()]


ROUGH: Final = "rough_gpus"


def _token_rate(value: object) -> str:
    """Tokens per second: a slow answer's 2.4 is not 2."""
    rate = finite(value)
    return number(value) if rate is not None and rate < _SLOW else short_count(value)


_SLOW: Final = 100.0


def users_by_level(estimates: Sequence[Estimate]) -> float | None:
    """The users that "GPUs by level" is about: those that the estimates beside it answer for.

    None where they answer for a rate, or for users who pause, or the levels' did: no level says how many it stands for.
    """
    first = next(iter(estimates), None)
    if first is None or first.rate is not None or first.details.get("measured_pause"):
        return None
    return first.users if first.think == "none" else None


def _rough_gpus(sweep: Sweep, users: float | None) -> Column:
    """GPUs by each level alone, as the sizing calculator has them: of several SLOs the most; none where one misses."""
    cells = (Cell(number(None if sweep.open_loop else _rough(sweep, row, users))) for row in sweep.rows)
    return Column(ROUGH, "GPUs", "by level", tuple(cells), 9)


def _rough(sweep: Sweep, row: Mapping[str, Any], users: float | None) -> float | None:
    from gpusize.estimate.calculator_line import rough_gpus

    gpus, level = finite(row.get("gpus")), finite(row.get("concurrency"))
    if not users or not gpus or not level or not is_usable(row):
        return None
    found = []
    for k, slo in enumerate(sweep.slos):
        if row.get(f"slo_{k}_met") is False:
            # Through failures, where the times alone keep it.
            return None
        which = "mean" if slo.kind == "mean" else f"p{slo.percentile:g}" if slo.percentile is not None else ""
        measured_s = finite(row.get(f"{slo.metric}_{which}_s"))
        if slo.bound_s is None or "<" not in slo.text or measured_s is None or measured_s > slo.bound_s:
            return None
        found.append(rough_gpus(int(level), measured_s, slo.bound_s, users, int(gpus)))
    return max(found, default=None)


def comes_in_parts(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether answers come in parts; where the first is the whole answer, TTFT says nothing that runtime does not."""
    for row in rows:
        first, whole = finite(row.get("ttft_p50_s")), finite(row.get("runtime_p50_s"))
        if finite(row.get("itl_p50_s")) is not None or (first and whole and first < _WHOLE * whole):
            return True
    return False


_WHOLE: Final = 0.995
"""Share of the runtime from which the first content is the end of the answer as well."""


def level_column(sweep: Sweep) -> Column:
    """The level of each row."""
    unit = "sess/s" if sweep.by_session else "req/s"
    cells = []
    for row in sweep.rows:
        usable = is_usable(row)
        cells.append(Cell(sweep.place(row), "" if usable else FAINT))
    return Column("level", *(("rate", unit) if sweep.open_loop else ("level", "users")), tuple(cells), 0)


def several_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The GPUs and the run of each row, where these differ."""
    made = []
    if len({finite(row.get("gpus")) for row in rows}) > 1:
        made.append(plain_column(rows, "gpus", "tested", "GPUs", 1, plain_number))
    if len({row.get("run") for row in rows}) > 1:
        cells = tuple(Cell(clean(row.get("run") or "–", 24)) for row in rows)
        made.append(Column("run", "run", "", cells, 11, left=True))
    return made


def plain_column(
    rows: Sequence[Mapping[str, Any]], key: str, title: str, unit: str, rank: int, show: Callable[[object], str]
) -> Column:
    """A column of figures, each shown by ``show``; faint where the level does not count."""
    cells = tuple(Cell(show(row.get(key)), "" if is_usable(row) else FAINT) for row in rows)
    return Column(key, title, unit, cells, rank)


def time_column(
    rows: Sequence[Mapping[str, Any]], key: str, title: str, name: str, rank: int, siblings: Sequence[str]
) -> Column:
    """A column of times, in the unit that fits all percentiles of the metric, so that they compare at a glance."""
    unit = time_unit(row.get(sibling) for sibling in siblings for row in rows)
    cells = tuple(Cell(unit.show(row.get(key)), "" if is_usable(row) else FAINT) for row in rows)
    return Column(key, title, f"{name} {unit.name}", cells, rank)


def failure_column(rows: Sequence[Mapping[str, Any]], key: str, title: str, rank: int) -> Column:
    """A column of counts, marked where they are not 0."""
    cells = tuple(Cell(count(row.get(key)), BAD if finite(row.get(key)) else "") for row in rows)
    return Column(key, title, "n", cells, rank)


def _unsent(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Requests that were due and not sent, and those that were sent twice, where there were any."""
    made = []
    for key, title, tone in (("shed", "shed", BAD), ("unsent", "unsent", BAD), ("asked_again", "asked again", "")):
        if any(finite(row.get(key)) for row in rows):
            cells = tuple(Cell(short_count(row.get(key)), tone if finite(row.get(key)) else "") for row in rows)
            made.append(Column(key, title, "req", cells, 2))
    return made


def _delivered(rows: Sequence[Mapping[str, Any]]) -> Column:
    cells = []
    for row in rows:
        known = row.get("delivered")
        tone = FAINT if known is None or not is_usable(row) else "" if known else BAD
        cells.append(Cell("–" if known is None else "yes" if known else "no", tone))
    # That all were is told by their rates, too; that one was not is told nowhere else as plainly.
    return Column("delivered", "load", "delivered", tuple(cells), 2 if any(cell.tone == BAD for cell in cells) else 5)


def _goodput(rows: Sequence[Mapping[str, Any]]) -> Column:
    """Requests per second within all SLOs; shown where some are not."""
    less = any(
        good < (1 - 1e-6) * achieved
        for row in rows
        if (good := finite(row.get("goodput"))) is not None
        and (achieved := finite(row.get("achieved_rate"))) is not None
    )
    return plain_column(rows if less else [{} for _ in rows], "goodput", "goodput", "req/s", 7, number)


def _attainment(rows: Sequence[Mapping[str, Any]], k: int, slo: SloView, title: str) -> Column:
    cells = []
    for row in rows:
        share = finite(row.get(f"slo_{k}_attainment"))
        if share is None or (slo.required is None and row.get(f"slo_{k}_met") is None):
            cells.append(Cell(percent(share)))
        elif not is_usable(row):
            cells.append(Cell(percent(share), FAINT))
        else:
            met = row[f"slo_{k}_met"] if row.get(f"slo_{k}_met") is not None else share >= (slo.required or 0.0)
            cells.append(Cell(f"{percent(share)} {'✓' if met else '✗'}", GOOD if met else BAD))
    return Column(f"slo_{k}_attainment", title, "met", tuple(cells), 1)


def _flags(rows: Sequence[Mapping[str, Any]]) -> Column:
    """What makes a row doubtful; a level that did not finish says so first."""
    cells = []
    for row in rows:
        words = [] if is_usable(row) else [str(row.get("state"))]
        words += [flag for flag in row.get("flags") or () if flag not in words]
        cells.append(Cell(clean(", ".join(words), 160) if words else "–", BAD if words else FAINT))
    return Column("flags", "flags", "", tuple(cells), 2, left=True)


def run_notes(source: ReportSource) -> list[tuple[str, tuple[str, ...]]]:
    """As `notes`, of the run as a whole: what could not always be measured beside the load, and unlike replicas."""
    told = [lost_text(each) for each in getattr(source, "sources", ())]
    told += getattr(source, "unlike_replicas", ())
    lost = tuple(clean(text, 600) for text in told if text is not None)
    return [("the whole run", lost)] if lost else []


def notes(sweep: Sweep) -> list[tuple[str, tuple[str, ...]]]:
    """(levels, alerts) of the levels that have alerts, named as in a sentence; what several levels say stands once."""
    where: dict[str, list[str]] = {}
    for row in sweep.rows:
        alerts = tuple(clean(alert) for alert in row.get("alerts") or ())
        if not alerts and not is_usable(row):
            alerts = (f"{clean(row.get('state'))} after {duration(row.get('total_runtime_s'))}",)
        for alert in alerts:
            where.setdefault(alert, []).append(sweep.place(row))
    made: dict[str, list[str]] = {}
    for alert, levels in where.items():
        *others, last = dict.fromkeys(levels)
        unit = "user" if last == "1" and not sweep.open_loop else sweep.x_unit
        made.setdefault(", ".join([*others, f"{last} {unit}"]), []).append(alert)
    return [(named, tuple(alerts)) for named, alerts in made.items()]
