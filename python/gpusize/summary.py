"""The summary: one row per visit of a level.

Everything counts requests due in the steady window, except ``total_runtime_s`` and ``itl_*``, which are of the whole
visit. Percentiles are over requests that ended ok and only describe; an SLO is judged by its attainment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpusize.checks import check
from gpusize.frames import OUTCOMES
from gpusize.metrics import NS_PER_S, metric
from gpusize.slo import Slo

if TYPE_CHECKING:
    import polars as pl

    from gpusize.levels import LevelData

__all__ = ["SUMMARY_COLUMNS", "histogram_quantiles", "summarize"]

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_TIMES: Final = ("runtime", "service", "ttft", "itl", "lateness")

SUMMARY_COLUMNS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "visit": ("", "number of the visit"),
        "run": ("", "id of the run"),
        "kind": ("", "closed or open loop"),
        "concurrency": ("requests", "kept in flight; null for an open loop"),
        "rate": ("requests/s", "asked for; null for a closed loop"),
        "state": ("", "done, interrupted, cancelled or partial"),
        "n": ("requests", "due in the steady window; for an import its items, null without"),
        "offered_rate": ("requests/s", "n over the window's length"),
        "achieved_rate": ("requests/s", "of these, ended ok, over the window's length"),
        **{f"{m}_{q}_s": ("s", f"{m}, {q}") for m in _TIMES for q in _QUANTILES},
        "runtime_mean_s": ("s", "mean runtime"),
        "total_runtime_s": ("s", "last end - first write, of the whole visit"),
        "tokens_out_per_s": ("tokens/s", "output tokens as the server reported, over the window's length"),
        "tokens_in_per_s": ("tokens/s", "input tokens likewise"),
        "errors": ("requests", "ended neither ok nor cancelled"),
        "generator_cpu": ("share", "CPU time of the generator over elapsed time and workers"),
        "little_n": ("requests", "in flight by Little's law"),
        "little_ratio": ("1", "the same over what was asked for"),
        "little": ("", "ok, flagged or not checkable"),
        "pacer_late_p99_s": ("s", "the generator's own lateness"),
        "flags": ("", "why the row must not be believed as it stands"),
        "gpus": ("GPUs", "behind the target; 0 when nobody said"),
        "alerts": ("", "the same in words"),
    }
)
"""Unit and meaning of every fixed column. Beside them: ``err_<outcome>`` for the outcomes that occurred, and per SLO k
(from 0) ``slo_<k>`` (its text), ``slo_<k>_attainment``, ``slo_<k>_over`` (requests over the bound or failed),
``slo_<k>_met``."""


def summarize(levels: Sequence[LevelData], slos: Sequence[Slo] = ()) -> pl.DataFrame:
    """One row per level, in their order; columns as in ``SUMMARY_COLUMNS``.

    Args:
        levels: single visits (pooled levels are shown as one row of all their requests).
        slos: objectives to judge every level by.
    """
    import polars as pl

    seen = sorted({o for level in levels for o in _outcomes(level) if o != "ok"}, key=OUTCOMES.index)
    rows = [_row(level, slos, seen) for level in levels]
    return pl.DataFrame(rows, schema=_schema(seen, len(slos)), orient="row")


def _schema(seen: Sequence[str], slos: int) -> dict[str, Any]:
    import polars as pl

    texts = {"run": pl.String, "kind": pl.String, "state": pl.String, "little": pl.String}
    counts = {"visit": pl.Int64, "concurrency": pl.Int64, "n": pl.Int64, "errors": pl.Int64, "gpus": pl.Int64}
    lists = {"flags": pl.List(pl.String), "alerts": pl.List(pl.String)}
    schema: dict[str, Any] = {}
    for name in SUMMARY_COLUMNS:
        schema[name] = {**texts, **counts, **lists}.get(name, pl.Float64)
        if name == "errors":
            schema.update({f"err_{outcome}": pl.Int64 for outcome in seen})
    for k in range(slos):
        schema[f"slo_{k}"] = pl.String
        schema[f"slo_{k}_attainment"] = pl.Float64
        schema[f"slo_{k}_over"] = pl.Int64
        schema[f"slo_{k}_met"] = pl.Boolean
    return schema


def _outcomes(level: LevelData) -> dict[str, int]:
    import polars as pl

    counted = level.steady().group_by("outcome").agg(pl.len()).collect(engine="streaming")
    return {str(outcome): int(n) for outcome, n in counted.iter_rows()}


def _row(level: LevelData, slos: Sequence[Slo], seen: Sequence[str]) -> dict[str, Any]:
    checks = check(level.visits()[0])
    outcomes = _outcomes(level)
    n = sum(outcomes.values()) if not level.imported else len(level.items) or None
    row: dict[str, Any] = {
        "visit": level.visit,
        "run": level.run,
        "kind": level.setting.get("kind"),
        "concurrency": level.concurrency,
        "rate": level.rate,
        "state": level.state,
        "n": n,
        "errors": sum(count for name, count in outcomes.items() if name not in ("ok", "cancelled")),
        **{f"err_{name}": outcomes.get(name, 0) for name in seen},
        **_times(level),
        **_rates(level, outcomes),
        "generator_cpu": checks.cpu,
        "little_n": checks.little.in_flight,
        "little_ratio": checks.little.ratio,
        "little": checks.little.status,
        "pacer_late_p99_s": checks.pacer_late_p99_s,
        "flags": checks.flags,
        "gpus": level.gpus,
        "alerts": [*level.meta.get("alerts", []), *checks.alerts],
    }
    for k, slo in enumerate(slos):
        row |= _judged(level, slo, k)
    return row


def _judged(level: LevelData, slo: Slo, k: int) -> dict[str, Any]:
    share, n = level.attainment(slo)
    known = n > 0
    return {
        f"slo_{k}": str(slo),
        f"slo_{k}_attainment": share if known else None,
        f"slo_{k}_over": n - round(share * n) if known else None,
        f"slo_{k}_met": level.met(slo),
    }


def _times(level: LevelData) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    probs = list(_QUANTILES.values())
    for name in _TIMES:
        if level.imported:
            values = [level.quantile(name, prob) for prob in probs]
        elif name == "itl":
            values = histogram_quantiles(level, name, probs)
        else:
            frame = level.steady() if name == "lateness" else level.ok()
            values = metric(name).quantiles(frame, probs)
        row |= {f"{name}_{q}_s": value for q, value in zip(_QUANTILES, values, strict=True)}
    return row


def _rates(level: LevelData, outcomes: Mapping[str, int]) -> dict[str, float | None]:
    """Rates over the steady window, mean and total runtime."""
    if level.imported:
        return {"runtime_mean_s": level.mean("runtime"), "total_runtime_s": level.meta.get("total_runtime_s")}
    import polars as pl

    mean_s, tokens_out, tokens_in, answered = (
        level.ok()
        .select(
            metric("runtime").expr().mean(),
            pl.col("tokens_out").cast(pl.Int64).sum().alias("out"),
            pl.col("tokens_in").cast(pl.Int64).sum().alias("in"),
            pl.any_horizontal(pl.col("tokens_out", "tokens_in").is_not_null()).any().alias("answered"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    first, last = (
        level.records.select(pl.col("sent_ns").min(), pl.col("end_ns").max()).collect(engine="streaming").row(0)
    )
    length_s = level.window_s()
    per_s = 1 / length_s if length_s > 0 else None
    return {
        "runtime_mean_s": mean_s,
        "total_runtime_s": None if first is None or last is None else (last - first) / NS_PER_S,
        "offered_rate": None if per_s is None else sum(outcomes.values()) * per_s,
        "achieved_rate": None if per_s is None else outcomes.get("ok", 0) * per_s,
        "tokens_out_per_s": None if per_s is None or not answered else tokens_out * per_s,
        "tokens_in_per_s": None if per_s is None or not answered else tokens_in * per_s,
    }


def histogram_quantiles(level: LevelData, name: str, probs: Sequence[float]) -> list[float | None]:
    """Quantiles in seconds from the engine's histogram of a level visit; None without one.

    Each is the middle of the bucket that holds the request of that rank, the maximum its upper end, so the error is
    half a bucket's width.
    """
    import numpy as np
    import polars as pl

    frames = [visit.histograms for visit in level.visits() if visit.histograms is not None]
    if not frames:
        return [None] * len(probs)
    buckets = (
        pl.concat(frames)
        .filter((pl.col("metric") == name) & (pl.col("count") > 0))
        .group_by("low_ns", "high_ns")
        .agg(pl.col("count").sum())
        .sort("low_ns")
        .collect()
    )
    if buckets.is_empty():
        return [None] * len(probs)
    low, high = buckets["low_ns"].to_numpy(), buckets["high_ns"].to_numpy()
    reached = np.cumsum(buckets["count"].to_numpy())
    found: list[float | None] = []
    for prob in probs:
        rank = max(1, math.ceil(prob * int(reached[-1])))
        k = int(np.searchsorted(reached, rank))
        value_ns = float(high[k]) if prob >= 1 else (float(low[k]) + float(high[k])) / 2
        found.append(value_ns / NS_PER_S)
    return found
