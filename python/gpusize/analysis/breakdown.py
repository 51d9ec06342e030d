"""Levels taken apart by replica or by model: what each of them answered, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.metrics import METRICS, QUANTILES
from gpusize.analysis.throughput import achieved_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["Part", "breakdown"]

Part = Literal["target", "model"]
"""What a level is taken apart by: the replica that a request went to, or the model that it asked for."""

_PARTS: Final = [(metric, quantile) for metric in METRICS.values() for quantile in metric.parts]
"""Metrics and quantiles that are told of each part."""


def breakdown(levels: Sequence[LevelData], by: Part) -> pl.DataFrame:
    """One row per level visit and replica or model, for levels with more than one of them.

    Columns: ``visit``, ``run``, ``concurrency``, ``rate``, ``index`` (the records' ``target`` or ``model``), ``name``
    (address or model), ``n`` (requests due in the steady window), ``share`` of the level's, ``achieved_rate`` (its
    part of the level's), ``errors`` (not ok, not cancelled), ``runtime_p50_s``, ``runtime_p95_s``, ``runtime_p99_s``,
    ``service_p50_s``, ``service_p95_s``, ``ttft_p50_s``, ``ttft_p95_s``: exact, over requests that ended ok. Of a
    sampled level over its rows; ``n``, ``errors`` and the rate are then those of the rows times the sample.

    Args:
        levels: single visits.
        by: ``target`` or ``model``.
    """
    import polars as pl

    rows = [row for level in levels for row in _rows(level, by)]
    return pl.DataFrame(rows, schema=_schema(), orient="row")


def _schema() -> dict[str, Any]:
    import polars as pl

    whole = ("visit", "concurrency", "index", "n", "errors")
    names = [
        "visit",
        "run",
        "concurrency",
        "rate",
        "index",
        "name",
        "n",
        "share",
        "achieved_rate",
        "errors",
        *_time_columns(),
    ]
    return {name: pl.Int64 if name in whole else pl.String if name in ("run", "name") else pl.Float64 for name in names}


def _time_columns() -> list[str]:
    return [metric.column(quantile) for metric, quantile in _PARTS]


def _names(level: LevelData, by: Part) -> list[str]:
    if by == "model":
        return [str(name) for name in level.source.get("models") or []]
    return [str(target.get("url") or "") for target in level.source.get("targets") or []]


def _rows(level: LevelData, by: Part) -> list[dict[str, Any]]:
    names = _names(level, by)
    if level.imported or len(names) < 2:
        return []
    import polars as pl

    ok = pl.col("outcome") == "ok"
    times = [
        metric.expr().filter(ok).quantile(QUANTILES[quantile], interpolation="linear").alias(metric.column(quantile))
        for metric, quantile in _PARTS
    ]
    failed = ~pl.col("outcome").is_in(["ok", "cancelled"])
    counts = [pl.len().alias("n"), failed.sum().alias("errors")]
    found = level.steady().group_by(by).agg(*counts, *times).sort(by).collect().to_dicts()
    total, rates = sum(part["n"] for part in found), achieved_by(level, by)
    return [
        {
            "visit": level.visit,
            "run": level.run,
            "concurrency": level.concurrency,
            "rate": level.rate,
            "index": part[by],
            "name": names[part[by]] if part[by] < len(names) else "",
            "n": level.sampled * part["n"],
            "share": part["n"] / total,
            "achieved_rate": None if rates is None else rates.get(part[by], 0.0),
            "errors": level.sampled * part["errors"],
            **{column: part[column] for column in _time_columns()},
        }
        for part in found
    ]
