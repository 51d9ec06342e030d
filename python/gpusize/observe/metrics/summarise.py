"""From the samples of a level to what its servers did in it: a row per quantity for all, and one per GPU or replica."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.observe.metrics.gpus_and_replicas import Entity, Series, entities_of, known_series
from gpusize.observe.metrics.known_series import MEANINGS, Meaning
from gpusize.observe.metrics.series import Covered, Gauge, counter_increase, gauge_summary
from gpusize.records.samples import FIELDS, scan_samples, value_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["MAX_ROWS", "samples_summary", "summarise"]

MAX_ROWS: Final = 1000
"""Rows beyond the ones for all that a level keeps; the samples hold the rest."""

_Span = tuple[int, int]


def summarise(
    samples: pl.LazyFrame, start_ns: int, end_ns: int, *, tokens_out: float | None = None
) -> list[dict[str, Any]]:
    """What the servers and GPUs did from ``start_ns`` to ``end_ns``.

    Args:
        samples: columns t_ns, source, metric, labels, value; readings around the span help at its ends.
        start_ns: start of the span, on the engine's clock.
        end_ns: its end.
        tokens_out: tokens generated in the span by the records' count, for the energy per token where the server does
            not count them.

    Returns:
        Rows with the members `FIELDS`, in the order of `MEANINGS`; each meaning's row for all GPUs or replicas comes
        first and has null for ``labels``. Of a counter ``delta`` and ``rate`` are set, of a gauge ``mean`` and its
        neighbours, of a ratio ``mean`` alone. ``rate`` is per second of ``over_s``, the part of the span that the
        readings cover. What no source tells of has no row.
    """
    found = known_series(samples)
    span = (start_ns, end_ns)
    all_rows: list[dict[str, Any]] = []
    for meaning in MEANINGS:
        entities = entities_of(meaning, found)
        rows = _rows(meaning, entities, span)
        if meaning.name == "gpu_energy":
            rows = _with_integrals(meaning, rows, all_rows, (end_ns - start_ns) / 1e9)
        all_rows += rows
    all_rows += _energy_per_token(all_rows, tokens_out, (end_ns - start_ns) / 1e9)
    kept = itertools.count()
    return [row for row in all_rows if row["labels"] is None or next(kept) < MAX_ROWS]


def samples_summary(level_folder: Path) -> pl.DataFrame:
    """What the servers and GPUs did in a level, worked out anew from its stored samples.

    Args:
        level_folder: a committed level.

    Returns:
        Columns `FIELDS`; no rows when the level has no samples.

    Raises:
        StoreError: the level cannot be read.
    """
    import polars as pl

    from gpusize.base.files import storing
    from gpusize.records.store import read_level

    level = read_level(level_folder)
    with storing(level_folder):
        rows = summarise(scan_samples(level_folder), int(level["start_ns"]), int(level["end_ns"]))
    texts = {"metric", "labels", "unit", "source"}
    schema = {name: pl.String if name in texts else pl.Int64 if name == "n" else pl.Float64 for name in FIELDS}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(meaning: Meaning, labels: str | None, sources: Iterable[str], **figures: Any) -> dict[str, Any]:
    told = set(sources)
    known = {"metric": meaning.name, "labels": labels, "unit": meaning.unit, **figures}
    # The sources of a row for all that differ have no common name.
    known["source"] = told.pop() if len(told) == 1 else None
    return {name: _plain(known.get(name)) for name in FIELDS}


def _plain(value: Any) -> Any:
    """A number that JSON can hold; a server may show values whose quotient is none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(meaning: Meaning, entities: Sequence[Entity], span: _Span) -> list[dict[str, Any]]:
    make = {"gauge": _gauges, "counter": _counters, "ratio": _ratios}[meaning.how]
    return make(meaning, entities, span)


def _gauges(meaning: Meaning, entities: Sequence[Entity], span: _Span) -> list[dict[str, Any]]:
    rows, means, told = [], [], []
    for entity in entities:
        # Several series of one replica differ in all their labels: each is an entity, so that there is one here.
        series = _scaled(entity.above[0], entity.rule.scale)
        gauge = gauge_summary(series.t, series.v, *span)
        if gauge is not None:
            rows.append(_row(meaning, entity.labels, [entity.source], **_figures(gauge)))
            means.append(gauge.mean)
            told.append(series)
    if not rows:
        return []
    if len(rows) == 1:
        return [{**rows[0], "labels": None}, *rows]
    both = _together(told, span, add=meaning.across == "sum")
    mean = sum(means) if meaning.across == "sum" else sum(means) / len(means)
    over_s, readings = max(row["over_s"] for row in rows), min(row["n"] for row in rows)
    figures = {"mean": mean, **both, "over_s": over_s, "n": readings}
    return [_row(meaning, None, [each.source for each in told], **figures), *rows]


def _figures(gauge: Gauge) -> dict[str, Any]:
    return {
        "mean": gauge.mean,
        "min": gauge.low,
        "max": gauge.high,
        "first": gauge.first,
        "last": gauge.last,
        "over_s": gauge.over_s,
        "n": gauge.readings,
    }


def _scaled(series: Series, scale: float) -> Series:
    return series if scale == 1 else Series(series.source, series.labels, series.t, series.v * scale)


def _together(told: Sequence[Series], span: _Span, *, add: bool) -> dict[str, float]:
    """Extremes and ends of several gauges' sum or mean, each interpolated at the times of all."""
    import numpy as np

    start_ns, end_ns = span
    times = np.unique(np.concatenate([np.clip(each.t, start_ns, end_ns) for each in told]))
    relative = (times - start_ns).astype(np.float64)
    total = sum(np.interp(relative, (each.t - start_ns).astype(np.float64), each.v) for each in told)
    v = np.asarray(total) / (1 if add else len(told))
    return {"min": float(v.min()), "max": float(v.max()), "first": float(v[0]), "last": float(v[-1])}


def _increase(series: Sequence[Series], scale: float, span: _Span) -> Covered | None:
    parts = [counter_increase(each.t, each.v, *span) for each in series]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return Covered(sum(part.increase for part in known) * scale, max(part.over_s for part in known))


def _counters(meaning: Meaning, entities: Sequence[Entity], span: _Span) -> list[dict[str, Any]]:
    rows = []
    for entity in entities:
        risen = _increase(entity.above, entity.rule.scale, span)
        if risen is not None:
            figures = {"delta": risen.increase, "rate": risen.increase / risen.over_s, "over_s": risen.over_s}
            ends = _ends(entity, span)
            rows.append(_row(meaning, entity.labels, [entity.source], **figures, **ends))
    return _summed(meaning, rows)


def _summed(meaning: Meaning, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows:
        return []
    figures = {
        "delta": sum(row["delta"] for row in rows),
        "rate": sum(row["rate"] for row in rows),
        "over_s": max(row["over_s"] for row in rows),
        "n": min(row["n"] for row in rows),
    }
    return [_row(meaning, None, [row["source"] for row in rows], **figures), *rows]


def _ends(entity: Entity, span: _Span) -> dict[str, Any]:
    """First and last value shown in the span, as far as the entity has one series, and the readings in it."""
    readings = [_inside(series, span) for series in entity.above]
    ends: dict[str, Any] = {"n": max(len(inside) for inside in readings)}
    if len(readings) == 1 and readings[0]:
        ends |= {"first": readings[0][0] * entity.rule.scale, "last": readings[0][-1] * entity.rule.scale}
    return ends


def _inside(series: Series, span: _Span) -> list[float]:
    start_ns, end_ns = span
    return [float(value) for value in series.v[(series.t >= start_ns) & (series.t <= end_ns)]]


def _ratios(meaning: Meaning, entities: Sequence[Entity], span: _Span) -> list[dict[str, Any]]:
    rows, risen = [], []
    for entity in entities:
        above = _increase(entity.above, entity.rule.scale, span)
        below = _increase(entity.below, 1.0, span)
        if above is not None and below is not None and below.increase > 0:
            figures = {"mean": above.increase / below.increase, "over_s": below.over_s}
            readings = max(len(_inside(series, span)) for series in entity.below)
            rows.append(_row(meaning, entity.labels, [entity.source], **figures, n=readings))
            risen.append((above.increase, below.increase))
    if not rows:
        return []
    mean = sum(above for above, _ in risen) / sum(below for _, below in risen)
    over_s, readings = max(row["over_s"] for row in rows), min(row["n"] for row in rows)
    return [_row(meaning, None, [row["source"] for row in rows], mean=mean, over_s=over_s, n=readings), *rows]


def _with_integrals(
    meaning: Meaning, rows: list[dict[str, Any]], others: Sequence[Mapping[str, Any]], span_s: float
) -> list[dict[str, Any]]:
    """Energy counters, and for each GPU without one its mean power times the span."""
    counted = [row for row in rows if row["labels"] is not None]
    known = {row["labels"] for row in counted}
    for power in others:
        if power["metric"] == "gpu_power" and power["labels"] is not None and power["labels"] not in known:
            figures = {"delta": power["mean"] * span_s, "rate": power["mean"], "over_s": power["over_s"]}
            counted.append(_row(meaning, power["labels"], [power["source"]], **figures, n=power["n"]))
    return _summed(meaning, counted)


def _energy_per_token(
    rows: Sequence[Mapping[str, Any]], tokens_out: float | None, span_s: float
) -> list[dict[str, Any]]:
    """Power over token rate: joules per generated token. The rates may cover different parts of the span."""
    power = value_of(rows, "gpu_energy", "rate")
    rate = value_of(rows, "tokens_out", "rate")
    source = next((row["source"] for row in rows if row["metric"] == "tokens_out"), None)
    if not rate and tokens_out and span_s > 0:
        rate, source = tokens_out / span_s, "records"
    if power is None or not rate:
        return []
    meaning = Meaning("energy_per_output_token", "J", "ratio", "weighted", ())
    return [_row(meaning, None, [] if source is None else [source], mean=power / rate, over_s=span_s)]
