"""The limit of what the budget can tell: an estimator that knows where the edge is, and measures only there.

It knows the truth's edge and what follows from it; all that it adds is the error of finding the edge again with the
requests of the budget. So its error is the part that no estimator with this budget can be without.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from benches.estimates.probe import Probe
from benches.estimates.question import Visible, mean_kept, targets
from benches.estimates.truth import Truth
from gpusize.analysis.level import LevelData
from gpusize.estimate.methods import Estimate
from gpusize.estimate.question import whole_gpus

__all__ = ["level_shares", "oracle"]

LEVELS = (0.85, 1.0, 1.15)
CLIFF = 1.5
"""Normal quantiles between two neighbouring levels from which chance is no longer what the difference consists of."""
_NORMAL = NormalDist()


def level_shares(level: LevelData, visible: Visible) -> tuple[list[float], int]:
    """Attainments of a measured level, one per SLO or one for goodput, and how many requests were judged."""
    import polars as pl

    if not visible.goodput:
        counts = [slo.count(level.steady()) for slo in visible.slos]
        judged = [max(1, each.within + each.over) for each in counts]
        shares = [each.within / n for each, n in zip(counts, judged, strict=True)]
        means = {k: level.mean(slo.metric) for k, slo in enumerate(visible.slos) if slo.kind == "mean"}
        kept = [mean_kept(means[k] or 0.0, slo) if k in means else shares[k] for k, slo in enumerate(visible.slos)]
        return kept, min(judged)
    within = pl.all_horizontal(*(slo.within_expr().fill_null(value=True) for slo in visible.slos))
    share, n = level.steady().select(within.mean().alias("share"), pl.len()).collect().row(0)
    return [float(share or 0.0)], max(1, int(n))


def oracle(probe: Probe, visible: Visible, truth: Truth) -> Estimate:
    """Three levels at 0.85, 1 and 1.15 of the edge, and a line through their attainments as normal quantiles."""
    tested = visible.replicas[0] * visible.gpus_per_replica
    base = Estimate("oracle", tested, visible.load)
    if truth.edge is None or truth.gpus_raw is None:
        return Estimate("oracle", tested, visible.load, reason="it knows that there is no answer")
    loads = [truth.edge * share for share in LEVELS]
    if visible.users is not None:
        whole = {math.floor(truth.edge), math.ceil(truth.edge), *(round(load) for load in loads)}
        loads = sorted(float(load) for load in whole if load >= 1)
    each = probe.left // len(loads)
    points = [_margin(probe.measure(load, requests=each), visible) for load in loads]
    edge = _crossing(np.array(loads), np.array([m for m, _ in points]), np.array([w for _, w in points]), truth.edge)
    raw = truth.gpus_raw * truth.edge / edge * visible.gpus_per_replica
    gpus = whole_gpus(raw, visible.gpus_per_replica)
    return Estimate(base.method, tested, visible.load, gpus=gpus, gpus_raw=raw, capacity_concurrency=edge)


def _margin(level: LevelData, visible: Visible) -> tuple[float, float]:
    """The least margin over the SLOs as a normal quantile, and its weight: one over its variance."""
    shares, n = level_shares(level, visible)
    found = []
    for share, target in zip(shares, targets(visible), strict=True):
        inside = min(max(share, 0.5 / n), 1 - 0.5 / n)
        at = _NORMAL.inv_cdf(inside)
        found.append((at - _NORMAL.inv_cdf(target), n * _NORMAL.pdf(at) ** 2 / (inside * (1 - inside))))
    return min(found)


def _crossing(loads: np.ndarray, margins: np.ndarray, weights: np.ndarray, edge: float) -> float:
    """Where the weighted line crosses zero; where the margins fall off a cliff, between the loads on both its sides."""
    for k in range(len(loads) - 1):
        if margins[k] >= 0 > margins[k + 1] and margins[k] - margins[k + 1] > CLIFF:
            part = margins[k] / (margins[k] - margins[k + 1])
            return float(loads[k] + part * (loads[k + 1] - loads[k]))
    middle = float(np.average(loads, weights=weights))
    level = float(np.average(margins, weights=weights))
    spread = float((weights * (loads - middle) ** 2).sum())
    slope = float((weights * (loads - middle) * (margins - level)).sum()) / spread if spread > 0 else 0.0
    if slope >= 0:
        return edge
    return float(np.clip(middle - level / slope, 0.7 * edge, 1.4 * edge))
