"""The section "Was this load delivered?": what was held against the load that was asked for, level by level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpusize.report.summary.columns import BAD, FAINT, GOOD, Cell, Column
from gpusize.report.summary.section import Section, section, text_column
from gpusize.report.summary.sweep import Sweep
from gpusize.report.text import DASH, clean, duration, finite, number, percent

__all__ = ["delivery_section"]

_TITLE: Final = "Was this load delivered?"
_NOTE: Final = (
    "Sent times against the process that was asked for, over the whole level. Sent is the share of the schedule; late "
    "is p99 of sent - due; r1 the lag-1 autocorrelation of the gaps; dispersion the variance of counts over their "
    "mean, which is 1 for Poisson arrivals; in flight and pause are those of a closed loop over what was asked for. "
    "A dash was not judged; what is marked is out of its bounds."
)
_CHECKS: Final[Mapping[str, tuple[str, str, int]]] = {
    "count": ("sent", "share", 1),
    "lateness": ("late", "p99", 1),
    "autocorrelation": ("r1", "of gaps", 3),
    "dispersion": ("dispersion", "index", 2),
    "order": ("out of order", "share", 3),
    "little": ("in flight", "share", 2),
    "think": ("pause", "mean", 3),
}


def delivery_section(sweep: Sweep, checks: Sweep) -> Section | None:
    """One row per level and stream; None where nothing was judged.

    Args:
        sweep: the summary's rows, which say whether each load was delivered.
        checks: the rows of the table ``delivery``, on the same axis.
    """
    if not checks.rows:
        return None
    found: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in checks.rows:
        name, _, stream = str(row["check"]).partition(" (")
        found.setdefault((row["run"], row["visit"], stream.removesuffix(")")), {})[name] = row
    summaries = {(row.get("run"), row.get("visit")): row for row in sweep.rows}
    rows = [_row(key, each, summaries) for key, each in found.items()]
    columns = [
        *([text_column(rows, "stream", "stream")] if any(row["stream"] for row in rows) else []),
        Column("delivered", "delivered", "", tuple(_delivered(row) for row in rows), 0),
        *(_check_column(rows, name) for name in _CHECKS),
    ]
    doubtful = [row for row in rows if row["delivered"] is False]
    why = [f"{_named(sweep, row)} was not delivered, because {row['why']}." for row in doubtful if row["why"]]
    note = " ".join([*why, _NOTE])
    return section("delivery", _TITLE, note, replace(checks, rows=tuple(rows)), columns, terminal=bool(doubtful))


def _named(sweep: Sweep, row: Mapping[str, Any]) -> str:
    level = sweep.named(row)
    return f"{level} ({row['stream']})" if row["stream"] else level


def _row(
    key: tuple[Any, ...], checks: Mapping[str, Mapping[str, Any]], summaries: Mapping[Any, Mapping[str, Any]]
) -> dict[str, Any]:
    run, visit, stream = key
    summary = summaries.get((run, visit), {})
    first = next(iter(checks.values()))
    failed = [str(each["text"]) for each in checks.values() if each["status"] == "failed"]
    return {
        **{name: first.get(name) for name in ("run", "visit", "concurrency", "rate", "ramp")},
        "gpus": summary.get("gpus"),
        "stream": stream,
        # The count is of all streams together: a row of one stream has the level's answer only where it failed itself.
        "delivered": summary.get("delivered") if not stream else not failed,
        "why": "; ".join(clean(text, 300) for text in failed),
        "checks": checks,
    }


def _delivered(row: Mapping[str, Any]) -> Cell:
    known = row["delivered"]
    return Cell(DASH, FAINT) if known is None else Cell("yes", GOOD) if known else Cell("no", BAD)


def _check_column(rows: Sequence[Mapping[str, Any]], name: str) -> Column:
    title, unit, rank = _CHECKS[name]
    show = _SHOW.get(name, number)
    cells = []
    for row in rows:
        check = row["checks"].get(name) or {}
        tone = BAD if check.get("status") == "failed" else FAINT if check.get("status") == "not judged" else ""
        cells.append(Cell(show(check.get("value")), tone))
    return Column(name, title, unit, tuple(cells), rank)


def _signed(value: object) -> str:
    x = finite(value)
    return DASH if x is None else f"{x:+.3f}"


_SHOW: Final[Mapping[str, Callable[[object], str]]] = {
    "count": percent,
    "lateness": duration,
    "autocorrelation": _signed,
    "order": percent,
    "little": percent,
    "think": duration,
}
