"""The same levels as the sizing calculator's ``calc_runner_output.json`` would show them, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import NS_PER_S, metric
from gpusize.estimate.calculator_line import Fit, capacity, fit_line, rough_gpus
from gpusize.estimate.question import Question, scaled

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["MAX_ITEMS", "to_calc_output"]

MAX_ITEMS: Final = 100_000
"""A level with more requests gets no ``per_item_metrics``: the file would outgrow every reader."""


@dataclass(frozen=True, slots=True)
class _Row:
    level: LevelData
    runtime_s: float | None
    llm_s: float | None

    @property
    def concurrency(self) -> int:
        return self.level.concurrency or 0

    @property
    def valid(self) -> bool:
        """The calculator's filter; the rule on LLM latency holds for imports only."""
        return self.level.state == "done" and bool(self.runtime_s) and (bool(self.llm_s) or not self.level.imported)


def to_calc_output(levels: Sequence[LevelData], question: Question, ids: Sequence[str] | None = None) -> dict[str, Any]:
    """The calculator's document: ``gpu_estimates``, ``fit_results``, ``calc_data`` by concurrency.

    Targets are the question's SLOs on p95 runtime and on p95 llm_latency (for an LLM API, on p95 service too).
    Estimates, fits and rough figures are null where the calculator has null, and where it would crash. Open-loop levels
    have no place in it. Each level's own number of GPUs counts for its rough figure, the first one's for the estimate.

    Args:
        levels: single or pooled levels; of equal concurrencies the first counts, as there.
        question: users, SLOs, GPUs.
        ids: dataset ids by row; row numbers without them. The k-th repeat of an id is ``<id>_rep<k>``.
    """
    rows: dict[int, _Row] = {}
    for level in sorted((lv for lv in levels if lv.concurrency), key=lambda lv: lv.concurrency or 0):
        rows.setdefault(
            level.concurrency or 0, _Row(level, level.quantile("runtime", 0.95), level.quantile("llm_latency", 0.95))
        )
    runtime_target = _target(question, ("runtime",))
    llm_target = _target(
        question, ("llm_latency", "service") if any(r.level.llm for r in rows.values()) else ("llm_latency",)
    )
    valid = [row for row in rows.values() if row.valid]
    runtime_fit = fit_line([r.concurrency for r in valid], [r.runtime_s or 0.0 for r in valid]).fit
    with_llm = [r for r in valid if r.llm_s]
    llm_fit = fit_line([r.concurrency for r in with_llm], [r.llm_s or 0.0 for r in with_llm]).fit
    gpus = next((question.gpus or r.level.gpus for r in rows.values()), 0)
    return {
        "gpu_estimates": {
            "gpu_estimate_by_wf_runtime": _headline(runtime_fit, runtime_target, question.users, gpus),
            "gpu_estimate_by_llm_latency": _headline(llm_fit, llm_target, question.users, gpus),
        },
        "fit_results": {
            "llm_latency_fit": llm_fit.to_json() if llm_fit else None,
            "wf_runtime_fit": runtime_fit.to_json() if runtime_fit else None,
        },
        "calc_data": {
            str(c): {
                "gpu_estimates": _rough(row, runtime_target, llm_target, question),
                "alerts": {
                    "outlier_workflow_runtime": runtime_fit is not None and c in runtime_fit.outliers_removed,
                    "outlier_llm_latency": llm_fit is not None and c in llm_fit.outliers_removed,
                    "num_items_greater_than_target_latency": _over(row, "llm_latency", llm_target),
                    "num_items_greater_than_target_runtime": _over(row, "runtime", runtime_target),
                },
                "sizing_metrics": _metrics(row, ids),
            }
            for c, row in rows.items()
        },
    }


def _target(question: Question, names: Sequence[str]) -> float | None:
    """The bound of the first SLO that the calculator can express."""
    for slo in question.slos:
        if slo.kind == "percentile" and slo.share == 0.95 and slo.metric in names and slo.op in ("<=", "<"):
            return slo.bound_s
    return None


def _headline(fit: Fit | None, target_s: float | None, users: float, gpus: int) -> float | None:
    if fit is None or target_s is None or not gpus:
        return None
    at_target, _ = capacity(fit, target_s)
    return None if at_target is None else scaled(users, at_target, gpus)


def _rough(row: _Row, runtime_target: float | None, llm_target: float | None, question: Question) -> dict[str, Any]:
    """Both figures, null when either target is exceeded."""
    gpus = question.gpus or row.level.gpus
    pairs = {
        "gpu_estimate_by_wf_runtime": (row.runtime_s, runtime_target),
        "gpu_estimate_by_llm_latency": (row.llm_s, llm_target),
    }
    exceeded = any(value and target and value > target for value, target in pairs.values())
    usable = row.valid and gpus and not exceeded
    return {
        name: rough_gpus(row.concurrency, value, target, question.users, gpus) if usable and value and target else None
        for name, (value, target) in pairs.items()
    }


def _over(row: _Row, name: str, target_s: float | None) -> int:
    """Items above a target; 0 for a level that does not count, as there."""
    if target_s is None or not row.valid:
        return 0
    return int((row.level.values(name) > target_s).sum())


def _metrics(row: _Row, ids: Sequence[str] | None) -> dict[str, Any]:
    level = row.level
    imported = level.imported
    return {
        "alerts": {"workflow_interrupted": level.state == "interrupted"},
        "llm_latency_p95": (row.llm_s or 0.0) if imported else row.llm_s,
        "workflow_runtime_p95": row.runtime_s or 0.0,
        "total_runtime": _total_s(level),
        "per_item_metrics": {k: dict(v) for k, v in level.items.items()} if imported else _items(level, ids),
    }


def _total_s(level: LevelData) -> float:
    import polars as pl

    if level.imported:
        return float(level.meta.get("total_runtime_s") or 0.0)
    total = 0.0
    for visit in level.visits():
        first, last = (
            visit.requests().select(pl.col("sent_ns").min(), pl.col("end_ns").max()).collect(engine="streaming").row(0)
        )
        total = max(total, 0.0 if first is None or last is None else (last - first) / 1e9)
    return total


def _items(level: LevelData, ids: Sequence[str] | None) -> dict[str, dict[str, float | None]]:
    """Per request that ended ok, by dataset id; the second and later of one id are ``<id>_rep<k>``."""
    import polars as pl

    ok = level.ok()
    if int(ok.select(pl.len()).collect(engine="streaming").item()) > MAX_ITEMS:
        return {}
    llm = level.llm and not level.knows_calls
    times = {name: metric(name).raw().cast(pl.Float64) for name in ("runtime", "service")}
    frame = ok.select("visit", "seq", "row", **times).collect(engine="streaming").sort("visit", "seq")
    named = frame["row"].cast(pl.String) if ids is None else pl.Series([_id(ids, row) for row in frame["row"]])
    repeat = pl.int_range(pl.len()).over("id")
    name = pl.when(repeat > 0).then(pl.concat_str("id", pl.lit("_rep"), repeat)).otherwise("id")
    names = pl.select(id=named).select(name).to_series()
    runtime_s, service_s = ((frame[each].to_numpy() / NS_PER_S).tolist() for each in times)
    calls = {} if llm else _call_p95(level)
    latencies = service_s if llm else map(calls.get, zip(frame["visit"], frame["seq"], strict=True))
    return {
        item: {"llm_latency": latency, "workflow_runtime": runtime}
        for item, latency, runtime in zip(names, latencies, runtime_s, strict=True)
    }


def _id(ids: Sequence[str], row: int) -> str:
    return ids[row] if row < len(ids) else str(row)


def _call_p95(level: LevelData) -> dict[tuple[int, int], float]:
    """Per request the p95 of its LLM calls that ended ok, seconds, as the calculator has it per item."""
    import polars as pl

    found: dict[tuple[int, int], float] = {}
    for visit in level.visits():
        if visit.calls is None:
            continue
        latency = (pl.col("end_ns") - pl.col("start_ns")).quantile(0.95, "linear")
        good = visit.calls.filter(pl.col("outcome") == "ok")
        rows = good.group_by("visit", "seq").agg(latency.alias("p95")).collect(engine="streaming")
        found |= {(number, seq): p95_ns / NS_PER_S for number, seq, p95_ns in rows.iter_rows() if p95_ns is not None}
    return found
