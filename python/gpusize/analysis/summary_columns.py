"""The columns of the summary: their units, their meanings, their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gpusize.analysis.metrics import METRICS, QUANTILES, Metric
from gpusize.analysis.server_columns import SERVER_COLUMNS

__all__ = ["OF_CALLS", "OF_LEVELS", "OF_SERVERS", "SUMMARY_COLUMNS", "quantile_columns", "summary_schema"]

OF_LEVELS: Final = tuple(m for m in METRICS.values() if m.summary and m.table != "calls" and not m.said)
"""Metrics whose quantiles every summary has."""
OF_CALLS: Final = tuple(m for m in METRICS.values() if m.summary and m.table == "calls")
"""Those that it has where calls inside requests are known."""

OF_SERVERS: Final = tuple(m for m in METRICS.values() if m.summary and m.said)
"""Those that it has where servers say of single requests how long they took."""


def quantile_columns(metrics: Sequence[Metric]) -> dict[str, tuple[str, str]]:
    """The summary's columns of their quantiles, with unit and meaning."""
    return {m.column(q): (m.unit, f"{m.name}, {q}") for m in metrics for q in QUANTILES}


SUMMARY_COLUMNS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "visit": ("", "number of the visit"),
        "run": ("", "id of the run"),
        "kind": ("", "closed or open loop"),
        "concurrency": ("requests", "kept in flight; null for an open loop"),
        "rate": ("requests/s", "asked for, over the level; sessions/s with `--sessions`; null for a closed loop"),
        "ramp": ("", "from what to what a load changes within the level; null where it is held"),
        "state": ("", "done, interrupted, cancelled or partial"),
        "n": ("requests", "due in the steady window; for an import as its file says, null without"),
        "offered_rate": ("requests/s", "due in the window, over its length until the load ended"),
        "achieved_rate": ("requests/s", "answered ok while the load went on"),
        "goodput": ("requests/s", "of these, within the bounds of all SLOs, timed from when they were due"),
        "goodput_sent": ("requests/s", "the same, timed from when they were sent"),
        "shed": ("requests", "due in the window and never sent, as too many waited already"),
        "unsent": ("requests", "due in the window and never sent for another reason"),
        "asked_again": ("requests", "sent twice, as the server did nothing about the first; of the whole visit"),
        "delivered": ("", "whether the load was what was asked for; null where not judged"),
        "delivery": ("", "the same in words, with reasons"),
        "saturated": ("", "whether the target answers less than is offered, or no more than at a lower level"),
        "drift": ("", "how runtimes change over the window, where they drift; else null"),
        "steady": ("", "whether the window is steady from its start; null where not judged"),
        "inferences_rate": ("inferences/s", "samples in these, where the dataset's rows say how many they hold"),
        **quantile_columns(OF_LEVELS),
        "itl_source": (
            "",
            "events: exact, of the steady requests; histogram: to the width of its buckets; stated: by another tool",
        ),
        "sampled": ("", "n where 1 in n requests has a row and histograms give the percentiles; else 1"),
        "runtime_mean_s": ("s", "mean runtime"),
        "total_runtime_s": ("s", "last end - first write, of the whole visit"),
        "tokens_out_per_s": ("tokens/s", "output tokens of these answers, as the server reported"),
        "tokens_in_per_s": ("tokens/s", "input tokens likewise"),
        "errors": ("requests", "ended neither ok nor cancelled; null where another tool does not say"),
        "generator_cpu": ("share", "CPU time of the generator over elapsed time and workers"),
        "stalled_s": ("s", "for which the generator stalled, mean over its threads; null where unknown"),
        "little_n": ("requests", "in flight by Little's law"),
        "little_ratio": ("1", "the same over what was asked for"),
        "little": ("", "ok, flagged or not checkable"),
        "pacer_late_p99_s": ("s", "the generator's own lateness"),
        "flags": ("", "why the row should not be trusted as it is, and findings about the target"),
        "gpus": ("GPUs", "behind the target; 0 when unknown"),
        "alerts": ("", "the same in words"),
    }
)
"""Unit and meaning of every fixed column.

Beside them: ``err_<outcome>`` for the outcomes that occurred. Where LLM calls inside requests are known
``llm_latency_<q>_s`` as for the other times, and ``llm_calls``, ``llm_calls_failed`` and ``llm_calls_per_request``, of
requests due in the window (an import has the times only). Where servers or GPUs were watched the columns of
``analysis.server_columns.SERVER_COLUMNS``. Where servers said how long requests took in them the quantiles of
``OF_SERVERS``. And per SLO k (from 0) ``slo_<k>`` (its text), ``slo_<k>_attainment``,
``slo_<k>_over`` (requests, or calls, over the bound or failed), ``slo_<k>_met``.
"""


def summary_schema(seen: Sequence[str], slos: int, *, calls: bool, server: bool, said: bool = False) -> dict[str, Any]:
    """Types of the columns.

    Args:
        seen: outcomes other than ok that occurred.
        slos: number of SLOs.
        calls: whether LLM calls are known.
        server: whether servers or GPUs were watched.
        said: whether servers said of single requests how long they took.
    """
    import polars as pl

    texts = dict.fromkeys(("run", "kind", "state", "little", "itl_source", "delivery", "drift", "ramp"), pl.String)
    whole = ("visit", "concurrency", "n", "errors", "gpus", "shed", "unsent", "asked_again", "sampled")
    counts = dict.fromkeys(whole, pl.Int64) | dict.fromkeys(("delivered", "saturated", "steady"), pl.Boolean)
    lists = {"flags": pl.List(pl.String), "alerts": pl.List(pl.String)}
    schema: dict[str, Any] = {}
    for name in SUMMARY_COLUMNS:
        schema[name] = {**texts, **counts, **lists}.get(name, pl.Float64)
        if name == "errors":
            schema.update({f"err_{outcome}": pl.Int64 for outcome in seen})
    if calls:
        schema |= dict.fromkeys(quantile_columns(OF_CALLS), pl.Float64)
        schema |= {"llm_calls": pl.Int64, "llm_calls_failed": pl.Int64, "llm_calls_per_request": pl.Float64}
    if server:
        schema |= dict.fromkeys(SERVER_COLUMNS, pl.Float64)
    if said:
        schema |= dict.fromkeys(quantile_columns(OF_SERVERS), pl.Float64)
    for k in range(slos):
        schema[f"slo_{k}"] = pl.String
        schema[f"slo_{k}_attainment"] = pl.Float64
        schema[f"slo_{k}_over"] = pl.Int64
        schema[f"slo_{k}_met"] = pl.Boolean
    return schema
