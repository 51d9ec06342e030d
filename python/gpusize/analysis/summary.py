"""The summary: one row per visit of a level.

Everything counts requests due in the steady window, except ``total_runtime_s``, ``asked_again``, whether the load was
delivered, and what servers say: these are of the whole visit, as is ``itl_*`` where nothing but one histogram tells it.
Percentiles are of requests that ended ok and only describe; an SLO is judged by its attainment. Of a sampled level
counts are of all requests, percentiles of all to the width of a bucket, and tokens and goodput of the rows, times the
sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.checks import Checks, check
from gpusize.analysis.delivery.intended import ramp_text
from gpusize.analysis.detect import plateau
from gpusize.analysis.gaps import gap_quantiles
from gpusize.analysis.generator import CPU_LIMIT, LATE_SHARE, stalled_s
from gpusize.analysis.goodput import goodput
from gpusize.analysis.histograms import COUNTED, histogram_count, histogram_quantiles
from gpusize.analysis.metrics import NS_PER_S, QUANTILES, Metric
from gpusize.analysis.server_columns import server_figures
from gpusize.analysis.server_times import says_times
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary_columns import OF_CALLS, OF_LEVELS, OF_SERVERS, SUMMARY_COLUMNS, summary_schema
from gpusize.analysis.throughput import throughput
from gpusize.records.schema import OUTCOMES

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["SUMMARY_COLUMNS", "summarize"]

LAG_FLOOR_S: Final = 5e-3
"""Lateness of Python's event loop below this is its timers' own: they count in milliseconds."""


def summarize(levels: Sequence[LevelData], slos: Sequence[Slo] = ()) -> pl.DataFrame:
    """One row per level, in their order; columns as in ``SUMMARY_COLUMNS``.

    Args:
        levels: single visits (pooled levels are shown as one row of all their requests).
        slos: objectives to judge every level by.
    """
    import polars as pl

    seen = sorted({o for level in levels for o in level.outcomes() if o != "ok"}, key=OUTCOMES.index)
    calls = any(
        level.knows_calls or (level.imported and any(level.quantile(each.name, 0.95) for each in OF_CALLS))
        for level in levels
    )
    told = [server_figures(level) for level in levels]
    rows = [
        _row(level, slos, seen) | (_llm(level) if calls else {}) | server | _said(level)
        for level, server in zip(levels, told, strict=True)
    ]
    _mark_plateaus(rows)
    schema = summary_schema(seen, len(slos), calls=calls, server=any(told), said=any(map(says_times, levels)))
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row")


def _row(level: LevelData, slos: Sequence[Slo], seen: Sequence[str]) -> dict[str, Any]:
    checks = check(level.visits()[0])
    outcomes = level.outcomes()
    # What an import was told of all requests.
    counts: Mapping[str, Any] = (level.meta.get("counts") or {}) if level.imported else {}
    n = sum(outcomes.values()) if not level.imported else len(level.items) or counts.get("n")
    row: dict[str, Any] = {
        "visit": level.visit,
        "run": level.run,
        "kind": level.setting.get("kind"),
        "concurrency": level.concurrency,
        "rate": level.rate,
        "ramp": ramp_text(level.setting),
        "state": level.state,
        "n": n,
        "errors": _errors(level, outcomes),
        **{f"err_{name}": outcomes.get(name, 0) for name in seen},
        **_unsent(level, outcomes),
        "asked_again": _asked_again(level),
        **_delivery(checks),
        "sampled": level.sampled,
        **_times(level),
        **_rates(level, outcomes),
        **dict(zip(("goodput", "goodput_sent"), goodput(level, slos), strict=True)),
        "generator_cpu": checks.cpu,
        "stalled_s": stalled_s(level.visits()[0]),
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


def _errors(level: LevelData, outcomes: Mapping[str, int]) -> int | None:
    """Requests that failed; None where another tool's figures do not count them."""
    if level.imported:
        # What an import was told of all requests.
        told: int | None = (level.meta.get("counts") or {}).get("errors")
        return told
    return sum(count for name, count in outcomes.items() if name not in ("ok", "cancelled"))


def _delivery(checks: Checks) -> dict[str, Any]:
    drifts = checks.drift is not None and checks.drift.status == "drifts"
    known = checks.steady is not None and checks.steady.status != "not judged"
    return {
        "delivered": checks.delivery.delivered,
        "delivery": checks.delivery.text,
        "saturated": checks.saturated,
        "drift": checks.drift.text if drifts and checks.drift else None,
        "steady": checks.steady.status == "steady" if known and checks.steady else None,
    }


def _unsent(level: LevelData, outcomes: Mapping[str, int]) -> dict[str, int | None]:
    """Requests due in the window that were not sent: n is those that were, and these."""
    if level.imported:
        return {"shed": None, "unsent": None}
    import polars as pl

    shed = outcomes.get("shed", 0)
    if level.sampled > 1:
        sent = histogram_count(level, "lateness")
        return {"shed": shed, "unsent": None if sent is None else max(0, sum(outcomes.values()) - sent - shed)}
    never = level.steady().select((pl.col("sent_ns").is_null() & (pl.col("outcome") != "shed")).sum())
    return {"shed": shed, "unsent": int(never.collect(engine="streaming").item())}


def _asked_again(level: LevelData) -> int | None:
    """Requests that a server may have counted twice, of the whole visit; None where nobody counted them."""
    counts: list[int | None] = [visit.meta.get("asked_again") for visit in level.visits()]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _mark_plateaus(rows: Sequence[dict[str, Any]]) -> None:
    """Which levels of closed sweeps are saturated: that shows only beside other levels."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "closed" and row["concurrency"] and row["state"] == "done":
            groups.setdefault((row["run"], row["gpus"]), []).append(row)
    for group in groups.values():
        columns = ("concurrency", "achieved_rate", "runtime_p50_s")
        values = [[math.nan if row.get(name) is None else float(row[name]) for row in group] for name in columns]
        for row, saturated in zip(group, plateau(*values), strict=True):
            row["saturated"] = saturated


def _llm(level: LevelData) -> dict[str, Any]:
    """What is known of the LLM calls inside the requests; nulls where nothing is."""
    import polars as pl

    found = level.llm_calls()
    if found is None:
        return {each.column(q): level.quantile(each.name, prob) for each in OF_CALLS for q, prob in QUANTILES.items()}
    calls = found.collect(engine="streaming").filter(pl.col("start_ns").is_not_null())
    good = calls.lazy().filter(pl.col("outcome") == "ok")
    requests = level.steady().select(pl.len()).collect(engine="streaming").item()
    return {
        **{name: value for each in OF_CALLS for name, value in _named(each, each.quantiles(good, _PROBS)).items()},
        "llm_calls": calls.height,
        "llm_calls_failed": calls.filter(~pl.col("outcome").is_in(["ok", "cancelled"])).height,
        "llm_calls_per_request": calls.height / requests if requests else None,
    }


def _said(level: LevelData) -> dict[str, Any]:
    """What servers say of single requests; empty where they say nothing."""
    if not says_times(level):
        return {}
    found = [(each, each.quantiles(level.ok(*each.columns), _PROBS)) for each in OF_SERVERS]
    return {name: value for each, values in found for name, value in _named(each, values).items()}


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
        alerts.append(f"Python's event loop was late, p99 {lag_s:.2g} s: answers waited for it")
    if python.get("left_running"):
        alerts.append(f"{python['left_running']} calls could not be stopped at their timeout and ran on")
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


_PROBS: Final = tuple(QUANTILES.values())


def _named(metric: Metric, values: Sequence[float | None]) -> dict[str, float | None]:
    """Quantiles by the names of their columns."""
    return {metric.column(q): value for q, value in zip(QUANTILES, values, strict=True)}


def _times(level: LevelData) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for each in OF_LEVELS:
        if level.imported:
            values = [level.quantile(each.name, prob) for prob in _PROBS]
            if each.table == "histograms" and any(value is not None for value in values):
                row["itl_source"] = "stated"
        elif not level.tells(each):
            values = [None] * len(_PROBS)
        elif each.table == "histograms":
            values, row["itl_source"] = gap_quantiles(level, _PROBS)
        elif level.sampled > 1 and level.histograms is not None and each.name in COUNTED:
            values = histogram_quantiles(level, each.name, _PROBS)
        else:
            rows = level.steady if each.requests == "sent" else level.ok
            values = each.quantiles(rows(*each.columns), _PROBS)
        row |= _named(each, values)
    return row


def _inferences(level: LevelData) -> int | None:
    """Samples in the steady requests that ended ok; None where the dataset's rows do not say how many they hold."""
    import polars as pl

    if level.rows is None or "batch" not in level.rows.columns:
        return None
    held = level.rows.lazy().select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), "batch")
    # A row that does not say is one sample, as a request to a model without a batch dimension is.
    total = level.ok().select("row").join(held, on="row", how="left").select(pl.col("batch").fill_null(1).sum())
    return level.sampled * int(total.collect(engine="streaming").item())


def _rates(level: LevelData, outcomes: Mapping[str, int]) -> dict[str, float | None]:
    """Rates over the steady window, mean and total runtime."""
    if level.imported:
        told = {name: level.meta.get(name) for name in ("total_runtime_s", "achieved_rate", "inferences_rate")}
        counts: Mapping[str, Any] = level.meta.get("counts") or {}
        tokens = {name: counts.get(name) for name in ("tokens_in_per_s", "tokens_out_per_s")}
        return {"runtime_mean_s": level.mean("runtime"), **told, **tokens}
    import polars as pl

    first, last = (
        level.requests().select(pl.col("sent_ns").min(), pl.col("end_ns").max()).collect(engine="streaming").row(0)
    )
    rates = throughput(level)
    ok = outcomes.get("ok", 0)
    inferences = _inferences(level)
    each = None if inferences is None or not ok else inferences / ok
    return {
        "runtime_mean_s": level.mean("runtime"),
        "total_runtime_s": None if first is None or last is None else (last - first) / NS_PER_S,
        "offered_rate": rates.offered,
        "achieved_rate": rates.achieved,
        "inferences_rate": None if each is None or rates.achieved is None else each * rates.achieved,
        "tokens_out_per_s": rates.tokens_out,
        "tokens_in_per_s": rates.tokens_in,
    }
