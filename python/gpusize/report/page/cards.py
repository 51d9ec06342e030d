"""The figures of one level at a glance, for each level of a sweep, and which of them the page shows at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusize.analysis.metrics import METRICS
from gpusize.report.summary.columns import BAD, GOOD, comes_in_parts
from gpusize.report.summary.sweep import Sweep, is_usable
from gpusize.report.text import DASH, clean, count, duration, finite, number, percent, plain_number

__all__ = ["Card", "LevelCards", "level_cards"]

Row = Mapping[str, Any]
_SEEN = 0.001
"""Share of errors below which it would be shown as none."""


@dataclass(frozen=True, slots=True)
class Card:
    """One figure: what it is, its value, and what belongs to it in small; tone as of cells."""

    title: str
    value: str
    more: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class LevelCards:
    """A level, whether it met the SLOs (``✓``, ``✗`` or nothing), its cards, and whether it is shown at first."""

    name: str
    said: str
    mark: str
    cards: tuple[Card, ...]
    first: bool = False


def level_cards(sweep: Sweep) -> tuple[list[LevelCards], str]:
    """The cards of every level, and why one of them is shown at first.

    That is the highest level that meets every SLO; without an SLO, or where none meets it, the one that completed most.
    Of repeats it is the one with the most requests: others may have been cut off, as the last of a proof is.
    """
    rows = sorted(sweep.rows, key=lambda row: sweep.x(row) or 0.0)
    first, why = _first(sweep, rows)
    again = Counter(_place(sweep, row, rows) for row in rows)
    seen: Counter[str] = Counter()
    made = []
    for k, row in enumerate(rows):
        name = _place(sweep, row, rows)
        seen[name] += 1
        met = _met(sweep, row)
        mark = "" if met is None else "✓" if met else "✗"
        shown = f"{name} ({seen[name]})" if again[name] > 1 else name
        said = {"✓": "meets the SLO", "✗": "misses the SLO"}.get(mark, "" if is_usable(row) else "not counted")
        made.append(LevelCards(shown, said, mark, _cards(sweep, row), k == first))
    return made, why


def _place(sweep: Sweep, row: Row, rows: list[Row]) -> str:
    several = len({finite(each.get("gpus")) for each in rows}) > 1
    gpus = finite(row.get("gpus"))
    return f"{sweep.place(row)} on {plain_number(gpus)} GPUs" if several and gpus else sweep.place(row)


def _first(sweep: Sweep, rows: list[Row]) -> tuple[int, str]:
    """Which level is shown at first, and why; ramps are at no one load."""
    usable = [k for k, row in enumerate(rows) if is_usable(row)]
    steady = [k for k in usable if not rows[k].get("ramp")]
    met = [k for k in steady if _met(sweep, rows[k])]
    if met:
        return _longest(sweep, rows, met, met[-1]), "the highest level that meets the SLO"
    judged = any(_met(sweep, rows[k]) is not None for k in steady)
    most = max(steady or usable or [0], key=lambda k: finite(rows[k].get("achieved_rate")) or 0.0)
    most = _longest(sweep, rows, steady, most)
    return most, f"{'no level meets the SLO; this one' if judged else 'the level that'} completed most"


def _longest(sweep: Sweep, rows: list[Row], among: list[int], chosen: int) -> int:
    """Of the chosen level's repeats the one with the most requests."""

    def place(k: int) -> tuple[float | None, float | None]:
        return sweep.x(rows[k]), finite(rows[k].get("gpus"))

    alike = [k for k in among if place(k) == place(chosen)]
    return max(alike, key=lambda k: (finite(rows[k].get("n")) or 0.0, k == chosen), default=chosen)


def _met(sweep: Sweep, row: Row) -> bool | None:
    """Whether a level meets every SLO that it is judged by; None where it is not."""
    if not is_usable(row):
        return None
    known = [row.get(f"slo_{k}_met") for k, _ in sweep.attainments()]
    return None if not known or None in known else all(known)


def _cards(sweep: Sweep, row: Row) -> tuple[Card, ...]:
    offered = finite(row.get("offered_rate")) if sweep.open_loop else None
    rate = Card("requests/s", number(row.get("achieved_rate")), f"of {number(offered)} offered" if offered else "")
    made = [rate]
    if finite(row.get("tokens_out_per_s")) is not None:
        made.append(Card("output tokens/s", number(row.get("tokens_out_per_s"))))
    if finite(row.get("inferences_rate")) is not None:
        made.append(Card("inferences/s", number(row.get("inferences_rate"))))
    parts = comes_in_parts(sweep.rows)
    for name in ("ttft", "itl", "runtime"):
        made += [_times(row, name)] if name == "runtime" or parts else []
    made.append(_errors(row))
    for k, slo in sweep.attainments():
        share, met = finite(row.get(f"slo_{k}_attainment")), row.get(f"slo_{k}_met")
        tone = "" if met is None or not is_usable(row) else GOOD if met else BAD
        # Of a mean it is a share of requests that the SLO does not ask for.
        made.append(
            Card(
                "within the SLO" if slo.required is not None else "below the mean's bound",
                percent(share),
                slo.text,
                tone,
            )
        )
    if (busy := finite(row.get("server_gpu_utilization"))) is not None:
        made.append(Card("GPUs busy", percent(busy), "mean over the level"))
    return tuple(each for each in made if each.value != DASH)


def _times(row: Row, name: str) -> Card:
    """The median and the tail of a metric of time; of what has neither, its mean."""
    metric = METRICS[name]
    known = {q: finite(row.get(f"{name}_{q}_s")) for q in ("p50", "p95", "p99", "mean")}
    tail = ", ".join(f"{q} {duration(known[q])}" for q in ("p95", "p99") if known[q] is not None)
    middle = "p50" if known["p50"] is not None else "mean"
    return Card(f"{metric.label}, {middle}", duration(known[middle]), tail)


def _errors(row: Row) -> Card:
    errors, n = finite(row.get("errors")), finite(row.get("n"))
    state = "" if is_usable(row) else clean(row.get("state"), 40)
    part = errors / n if errors and n else 0.0
    share = f"{f'{percent(part)} ' if part >= _SEEN else ''}of {count(n)} requests" if n else ""
    return Card("errors", count(errors), ", ".join(each for each in (share, state) if each), BAD if errors else "")
