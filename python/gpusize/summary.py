"""The summary: one row per visit of a level.

Everything counts requests due in the steady window, except ``total_runtime_s`` and what servers say, which are of the
whole visit, as is ``itl_*`` where the times of events were not kept. Percentiles are over requests that ended ok and
only describe; an SLO is judged by its attainment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpusize.checks import CPU_LIMIT, LATE_SHARE, check
from gpusize.frames import EVENTS, OUTCOMES, quantiles
from gpusize.metrics import NS_PER_S, metric
from gpusize.server_figures import SERVER_COLUMNS, server_figures
from gpusize.slo import Slo

if TYPE_CHECKING:
    import polars as pl

    from gpusize.levels import LevelData

__all__ = ["SUMMARY_COLUMNS", "histogram_quantiles", "summarize"]

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_TIMES: Final = ("runtime", "service", "ttft", "itl", "lateness")
_LLM: Final = "llm_latency"
LAG_FLOOR_S: Final = 5e-3
"""Lateness of Python's event loop below this is its timers' own: they count in milliseconds."""

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
        "inferences_rate": ("inferences/s", "samples in these, where the dataset's rows say how many they hold"),
        **{f"{m}_{q}_s": ("s", f"{m}, {q}") for m in _TIMES for q in _QUANTILES},
        "itl_source": ("", "events: exact gaps of the steady requests; histogram: of the whole visit"),
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
"""Unit and meaning of every fixed column.

Beside them: ``err_<outcome>`` for the outcomes that occurred. Where LLM calls inside requests are known
``llm_latency_<q>_s`` as for the other times, and ``llm_calls``, ``llm_calls_failed`` and ``llm_calls_per_request``, of
requests due in the window (an import has the times only). Where servers or GPUs were watched the columns of
``gpusize.server_figures.SERVER_COLUMNS``. And per SLO k (from 0) ``slo_<k>`` (its text), ``slo_<k>_attainment``,
``slo_<k>_over`` (requests, or calls, over the bound or failed), ``slo_<k>_met``.
"""


def summarize(levels: Sequence[LevelData], slos: Sequence[Slo] = ()) -> pl.DataFrame:
    """One row per level, in their order; columns as in ``SUMMARY_COLUMNS``.

    Args:
        levels: single visits (pooled levels are shown as one row of all their requests).
        slos: objectives to judge every level by.
    """
    import polars as pl

    seen = sorted({o for level in levels for o in _outcomes(level) if o != "ok"}, key=OUTCOMES.index)
    calls = any(level.knows_calls or (level.imported and level.quantile(_LLM, 0.95)) for level in levels)
    told = [server_figures(level) for level in levels]
    rows = [
        _row(level, slos, seen) | (_llm(level) if calls else {}) | server
        for level, server in zip(levels, told, strict=True)
    ]
    schema = _schema(seen, len(slos), calls=calls, server=any(told))
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row")


def _schema(seen: Sequence[str], slos: int, *, calls: bool, server: bool) -> dict[str, Any]:
    import polars as pl

    texts = {"run": pl.String, "kind": pl.String, "state": pl.String, "little": pl.String}
    texts["itl_source"] = pl.String
    counts = {"visit": pl.Int64, "concurrency": pl.Int64, "n": pl.Int64, "errors": pl.Int64, "gpus": pl.Int64}
    lists = {"flags": pl.List(pl.String), "alerts": pl.List(pl.String)}
    schema: dict[str, Any] = {}
    for name in SUMMARY_COLUMNS:
        schema[name] = {**texts, **counts, **lists}.get(name, pl.Float64)
        if name == "errors":
            schema.update({f"err_{outcome}": pl.Int64 for outcome in seen})
    if calls:
        schema |= {f"{_LLM}_{q}_s": pl.Float64 for q in _QUANTILES}
        schema |= {"llm_calls": pl.Int64, "llm_calls_failed": pl.Int64, "llm_calls_per_request": pl.Float64}
    if server:
        schema |= dict.fromkeys(SERVER_COLUMNS, pl.Float64)
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
        "alerts": [*level.meta.get("alerts", []), *checks.alerts, *checks.remarks, *_python_alerts(level)],
    }
    for k, slo in enumerate(slos):
        row |= _judged(level, slo, k)
    return row


def _llm(level: LevelData) -> dict[str, Any]:
    """What is known of the LLM calls inside the requests; nulls where nothing is."""
    import polars as pl

    found = level.llm_calls()
    if found is None:
        return {f"{_LLM}_{q}_s": level.quantile(_LLM, prob) for q, prob in _QUANTILES.items()}
    calls = found.collect(engine="streaming").filter(pl.col("start_ns").is_not_null())
    good = calls.lazy().filter(pl.col("outcome") == "ok")
    values = metric(_LLM).quantiles(good, list(_QUANTILES.values()))
    requests = sum(_outcomes(level).values())
    return {
        **{f"{_LLM}_{q}_s": value for q, value in zip(_QUANTILES, values, strict=True)},
        "llm_calls": calls.height,
        "llm_calls_failed": calls.filter(~pl.col("outcome").is_in(["ok", "cancelled"])).height,
        "llm_calls_per_request": calls.height / requests if requests else None,
    }


def _python_alerts(level: LevelData) -> list[str]:
    """Where Python generated the load: whether it kept its own work waiting."""
    python = level.meta.get("generator") or {}
    if python.get("kind") != "python":
        return []
    alerts = []
    share, lag_s = python.get("cpu_share") or 0.0, python.get("loop_lag_p99_s") or 0.0
    if share > CPU_LIMIT:
        what = "it shares one core, so part of these times is its own"
        alerts.append(f"Python is the generator here and used {share:.0%} of a core: {what}")
    if lag_s > max(LAG_FLOOR_S, LATE_SHARE * (level.quantile("service", 0.5) or 0.0)):
        alerts.append(f"Python's event loop came round late, p99 {lag_s:.2g} s: answers waited for it")
    if python.get("left_running"):
        alerts.append(f"{python['left_running']} calls could not be ended when their time was over, and ran on")
    return alerts


def _judged(level: LevelData, slo: Slo, k: int) -> dict[str, Any]:
    share, n = level.attainment(slo)
    known = n > 0
    return {
        f"slo_{k}": str(slo),
        f"slo_{k}_attainment": share if known else None,
        f"slo_{k}_over": n - round(share * n) if known else None,
        f"slo_{k}_met": level.met(slo),
    }


def _times(level: LevelData) -> dict[str, Any]:
    row: dict[str, Any] = {}
    probs = list(_QUANTILES.values())
    for name in _TIMES:
        if level.imported:
            values = [level.quantile(name, prob) for prob in probs]
        elif name == "itl":
            values, row["itl_source"] = _itl(level, probs)
        else:
            frame = level.steady() if name == "lateness" else level.ok()
            values = metric(name).quantiles(frame, probs)
        row |= {f"{name}_{q}_s": value for q, value in zip(_QUANTILES, values, strict=True)}
    return row


def _itl(level: LevelData, probs: Sequence[float]) -> tuple[list[float | None], str | None]:
    """Gaps between events: exact where their times were kept, else from the engine's histogram; and which it is."""
    import polars as pl

    times = pl.col(EVENTS)
    kept = level.ok().filter(times.list.len() > 1)
    gaps = kept.select(times.list.diff(null_behavior="drop").explode().alias("gap"))
    values = quantiles(gaps, pl.col("gap"), probs)
    if values[0] is not None:
        return [None if value is None else value / NS_PER_S for value in values], "events"
    values = histogram_quantiles(level, "itl", probs)
    return values, None if values[0] is None else "histogram"


def _inferences(level: LevelData) -> int | None:
    """Samples in the steady requests that ended ok; None where the dataset's rows do not say how many they hold."""
    import polars as pl

    if level.rows is None or "batch" not in level.rows.columns:
        return None
    held = level.rows.lazy().select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "batch")
    # A row that does not say is one sample, as a request to a model without a batch dimension is.
    total = level.ok().select("row").join(held, on="row", how="left").select(pl.col("batch").fill_null(1).sum())
    return int(total.collect(engine="streaming").item())


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
    inferences = _inferences(level)
    per_s = 1 / length_s if length_s > 0 else None
    return {
        "runtime_mean_s": mean_s,
        "total_runtime_s": None if first is None or last is None else (last - first) / NS_PER_S,
        "offered_rate": None if per_s is None else sum(outcomes.values()) * per_s,
        "achieved_rate": None if per_s is None else outcomes.get("ok", 0) * per_s,
        "inferences_rate": None if per_s is None or inferences is None else inferences * per_s,
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
