"""Draws SLOs, with bounds that the cluster of a scenario keeps up to the edge that was drawn for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from benches.estimates.question import judged, metric_ns, share_kept
from benches.estimates.scenario import Scenario, horizon
from benches.estimates.worlds import Rows
from gpusize.analysis.slo import Slo

__all__ = ["bound_above", "feels", "joint", "quantile_s", "rows_at", "with_slos"]

FEELS = 0.4
"""By how much the attainment falls at least from 0.8 to 1.25 of the edge, as a normal quantile.

4,000 independent requests at the edge then tell its place to 4 % (one standard error, at p95). Where it falls less, no
budget of this size finds a number.
"""
_NORMAL = NormalDist()

_KINDS = {
    "p95 runtime": 0.40,
    "p99 runtime": 0.14,
    "p90 runtime": 0.06,
    "p95 ttft": 0.14,
    "p95 itl": 0.06,
    "several": 0.12,
    "goodput": 0.08,
}


def with_slos(rng: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """The scenario with bounds that its cluster keeps up to its edge; None where its times do not feel the load."""
    at_edge = rows_at(scenario, 1.0)
    kinds, shares = list(_KINDS), np.array(list(_KINDS.values()))
    asked = str(rng.choice(kinds, p=shares / shares.sum()))
    if scenario.kind == "sharing" and asked not in ("p99 runtime", "p90 runtime"):
        asked = "p95 runtime"
    slos = _bounds(rng, scenario, asked, at_edge)
    if slos is None or not feels(scenario, slos[0]):
        return None
    goodput = asked == "goodput"
    if goodput:
        slos = joint(slos, at_edge)
    if "contention" in scenario.traits and not _more_helps(scenario, slos):
        return None
    traits = (*scenario.traits, asked)
    return replace(scenario, visible=replace(scenario.visible, slos=slos, goodput=goodput), traits=traits)


def _more_helps(scenario: Scenario, slos: Sequence[Slo]) -> bool:
    """Whether the load of the question is kept by the drawn number of replicas and by more, and not by fewer."""

    def kept(replicas: int) -> bool:
        share = scenario.visible.load / (scenario.edge * scenario.hint)
        rows = rows_at(scenario, share, replicas)
        values = [(quantile_s(rows, slo.metric, slo.share), slo.bound) for slo in slos]
        return all(value is not None and value <= 1.002 * bound for value, bound in values)

    hint = scenario.hint
    return all(kept(n) for n in (hint, hint + 1, 2 * hint + 4)) and not kept(hint - 1)


def rows_at(scenario: Scenario, share: float, replicas: int | None = None) -> Rows:
    """A run at a share of the edge of the drawn number of replicas, with that many or with others."""
    load = scenario.edge * scenario.hint * share
    if scenario.visible.users is not None:
        load = max(1.0, round(load))
    counted, warmup = horizon(scenario, load)
    asked = scenario.visible.world_load(load, min(counted, 30_000), warmup)
    return scenario.world.run(asked, gpus=replicas or scenario.hint, seed=101)


def quantile_s(rows: Rows, metric: str, share: float) -> float | None:
    values = metric_ns(rows, metric)[~rows.warmup]
    values = values[~np.isnan(values)]
    return float(np.quantile(values, share, method="inverted_cdf")) / 1e9 if values.size > 100 else None


def bound_above(metric: str, share: float, value_s: float) -> Slo:
    """The bound with four digits, not below the value: a time that many requests share is kept by them."""
    step = 10.0 ** (math.floor(math.log10(value_s)) - 3)
    return Slo("percentile", metric, share, "<=", float(f"{math.ceil(value_s / step * (1 - 1e-12)) * step:.4g}"))


def _bounds(rng: np.random.Generator, scenario: Scenario, asked: str, at_edge: Rows) -> tuple[Slo, ...] | None:
    """SLOs, the one that binds first."""
    share = float(rng.choice([0.9, 0.95, 0.99]))
    wanted: Sequence[tuple[str, float]] = {
        "p95 runtime": [("runtime", 0.95)],
        "p99 runtime": [("runtime", 0.99)],
        "p90 runtime": [("runtime", 0.9)],
        "p95 ttft": [("ttft", 0.95)],
        "p95 itl": [("itl_mean", 0.95)],
        "several": [("runtime", 0.95), ("ttft", 0.99)] if share > 0.9 else [("ttft", 0.95), ("runtime", 0.99)],
        "goodput": [("runtime", share), ("ttft", share)],
    }[asked]
    found = []
    for place, (metric, prob) in enumerate(wanted):
        # The others bind later, or about at the same load.
        slack = float(rng.uniform(1.0, 1.5))
        rows = at_edge if place == 0 else rows_at(scenario, slack)
        value_s = quantile_s(rows, metric, prob)
        if value_s is None or value_s <= 0:
            return None
        found.append(bound_above(metric, prob, value_s))
    return tuple(found)


def joint(slos: tuple[Slo, ...], at_edge: Rows) -> tuple[Slo, ...]:
    """Bounds that the share of requests keeps at once at the edge: all made wider by one factor."""
    counted = ~at_edge.warmup
    worst = np.max([np.nan_to_num(metric_ns(at_edge, slo.metric)[counted]) / (slo.bound * 1e9) for slo in slos], axis=0)
    factor = float(np.quantile(worst, slos[0].share, method="inverted_cdf"))
    return tuple(bound_above(slo.metric, slo.share, slo.bound * factor) for slo in slos)


def feels(scenario: Scenario, slo: Slo) -> bool:
    """Whether the attainment falls around the edge, by as much as ``FEELS`` says."""
    below, above = (_attained(rows_at(scenario, share), slo) for share in (0.8, 1.25))
    return _NORMAL.inv_cdf(below) - _NORMAL.inv_cdf(above) >= FEELS


def _attained(rows: Rows, slo: Slo) -> float:
    _, known = judged(rows, slo)
    n = max(1, int(known.sum()))
    return float(np.clip(share_kept(rows, slo), 0.5 / n, 1 - 0.5 / n)) if known.any() else 0.5
