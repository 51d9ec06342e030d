"""From measured levels to a replica that can be simulated: candidates, and how well each repeats what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batch_limit import limits, said_at_once
from gpusize.estimate.twin.batching_model import Fits, fit_service
from gpusize.estimate.twin.flow_model import Flow, Measured
from gpusize.estimate.twin.rates import rates_of
from gpusize.estimate.twin.server_figures import served_limit
from gpusize.estimate.twin.sharing import limit_of, sizes_of
from gpusize.estimate.twin.simulate import METRICS, Batching, Replica, TimeBound
from gpusize.estimate.twin.static_batch_model import surely_static

if TYPE_CHECKING:
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.batching_model import Service
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["batching", "flow", "measured", "served", "static", "time_bounds"]

FEWEST: Final = 20


def batching(
    visits: Sequence[Observed],
    curves: Sequence[Curve],
    *,
    joint: bool,
    prompts_alone: bool = False,
    shared: Fits | None = None,
    batched_tokens: int | None = None,
) -> Batching | None:
    """The simulated cluster's own model; None where the records do not tell what it needs. See ``fit_service``."""
    if _known(curves) is None:
        return None
    service = fit_service(visits, prompts_alone=prompts_alone, shared=shared, batched_tokens=batched_tokens)
    return None if service is None else served(service, visits, curves, joint=joint)


def static(visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool) -> Replica | None:
    """The same where batches run to their end; None where something else explains it. See ``surely_static``."""
    found = None if _known(curves) is None else surely_static(visits)
    return None if found is None else served(found, visits, curves, joint=joint)


def _known(curves: Sequence[Curve]) -> list[TimeBound] | None:
    """The bounds where a simulated request has all the metrics; else None."""
    bounds = time_bounds(curves)
    return None if bounds is None or any(each.metric not in METRICS for each in bounds) else bounds


def served(service: Service, visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool) -> Batching | None:
    """A replica with the measured prompts and answers, in pairs; None where there are too few, or a metric is another.

    Args:
        service: what it costs and holds.
        visits: that prompts and answers are taken from.
        curves: one per objective.
        joint: whether one share is asked for of requests that keep all bounds.
    """
    import numpy as np

    bounds = _known(curves)
    if bounds is None:
        return None
    prompts, computed, outputs = [], [], []
    for visit in visits:
        tokens_in, tokens_out = visit.tokens_in, visit.tokens_out
        if service.whole is not None:
            # Where nobody says what an answer consists of, it is one.
            tokens_out = np.nan_to_num(tokens_out, nan=1.0)
        kept = visit.ok & np.isfinite(tokens_out) & (tokens_out >= 1)
        prompts.append(np.maximum(1, np.nan_to_num(tokens_in[kept], nan=1.0)).astype(np.uint32))
        computed.append(np.maximum(1, np.nan_to_num(visit.computed[kept], nan=1.0)).astype(np.uint32))
        outputs.append(tokens_out[kept].astype(np.uint32))
    drawn = np.concatenate(outputs)
    if drawn.size < FEWEST:
        return None
    factors = (1.0,) * len(curves)
    each = np.concatenate(prompts)
    cached = each - np.minimum(each, np.concatenate(computed))
    told = cached if cached.any() else None
    return Batching(service, bounds, joint, each, drawn, rates_of(visits), factors, cached_tokens=told)


def measured(visits: Sequence[Observed], curves: Sequence[Curve]) -> Replica | None:
    """No model at all; None without a rate."""
    rates = rates_of(visits)
    return Measured(curves, rates, (1.0,) * len(curves)) if rates.size else None


def flow(visits: Sequence[Observed], curves: Sequence[Curve]) -> Replica | None:
    """The model without mechanics; None where nothing was served."""
    limit = _limit(visits)
    sizes = sizes_of(visits, limit)
    if sizes is None:
        return None
    rates = rates_of(visits, limit)
    if not rates.size:
        return None
    bounds = [_bound(curve) for curve in curves]
    return Flow(rates, sizes, curves, bounds, limit, (1.0,) * len(curves))


def _limit(visits: Sequence[Observed]) -> int | None:
    """Most requests at work at once: as the server says; else as first tokens tell, unless times tell otherwise."""
    told, _ = limits(visits)
    if served_limit([each.served for each in visits]) is not None:
        return told
    if all(each.queue_s is not None for each in visits):
        return said_at_once(visits)
    return limit_of(visits, told)


def _bound(curve: Curve) -> TimeBound:
    """The bound where the objective is one on a time; else a name that is read from the curve."""
    found = time_bounds([curve])
    return found[0] if found is not None and len(found) == 1 else TimeBound("other", math.inf)


def time_bounds(curves: Sequence[Curve]) -> list[TimeBound] | None:
    """The bounds of each objective; None where one is no upper bound on a time of requests or on its mean."""
    found = []
    for curve in curves:
        parts = curve.objective.parts
        for part in parts:
            mean = part.kind == "mean" and len(parts) == 1
            if not (mean or part.kind == "percentile") or part.bound_s is None or part.op not in ("<=", "<"):
                return None
            found.append(TimeBound(part.metric, part.bound_s, mean))
    return found
