"""From measured levels to a replica that can be simulated: candidates, and how well each repeats what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batching import fit_service
from gpusize.estimate.twin.flow import Flow, Measured
from gpusize.estimate.twin.limits import limits
from gpusize.estimate.twin.simulated import METRICS, Batching, Replica
from gpusize.estimate.twin.static import fit_static

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.batching import Service
    from gpusize.estimate.twin.curve import Curve
    from gpusize.estimate.twin.observed import Observed

__all__ = ["batching", "flow", "measured", "rates_of", "static"]

FEWEST: Final = 20
NO_SPREAD: Final = 0.1
"""Times that hardly differ say nothing by how their spread changes."""
QUEUED: Final = 0.75
"""A queue is seen where no more than this share of the requests in flight runs."""
STEADY: Final = 2.0
"""By all levels the same number runs, within this factor."""
REACH: Final = 3.0
"""Rates are carried on to this multiple of the largest level, along the last measured slope."""


def rates_of(visits: Sequence[Observed]) -> NDArray[np.float64]:
    """Requests per second that a replica serves with 1, 2, ... active: k over the mean residence (Little's law).

    Residence times rise with k (isotonic by running maximum) and are straight between levels and beyond the last.
    """
    import numpy as np

    # Visits too short for a warm-up count where none that had one lies below: full, they were not yet.
    least = min((each.users for each in visits if each.settled), default=math.inf)
    visits = [each for each in visits if each.settled or each.users < least] if math.isfinite(least) else visits
    users = sorted({each.users for each in visits})
    held = []
    for k in users:
        took = np.concatenate([(v.last_s - v.sent_s)[v.steady & v.ok] for v in visits if v.users == k])
        took = took[np.isfinite(took)]
        held.append(float(took.mean()) if took.size else math.nan)
    known = [(k, r) for k, r in zip(users, held, strict=True) if math.isfinite(r)]
    if not known:
        return np.array([])
    at = np.array([k for k, _ in known], dtype=float)
    residence = np.maximum.accumulate([r for _, r in known])
    reach = np.arange(1, max(2, math.ceil(REACH * at[-1])) + 1, dtype=float)
    found = np.interp(reach, at, residence)
    if at.size > 1:
        half = max(0, int(np.searchsorted(at, at[-1] / 2, "right")) - 1)
        half = min(half, at.size - 2)
        slope = max(0.0, (residence[-1] - residence[half]) / (at[-1] - at[half]))
        found = np.where(reach > at[-1], residence[-1] + slope * (reach - at[-1]), found)
    else:
        found = np.where(reach > at[-1], residence[-1] * reach / at[-1], found)
    return reach / found


def batching(
    visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool, prompts_alone: bool = False
) -> Replica | None:
    """The simulated cluster's own model; None where the records do not tell what it needs. See ``fit_service``."""
    if _known(curves) is None:
        return None
    service = fit_service(visits, prompts_alone=prompts_alone)
    return None if service is None else _served(service, visits, curves, joint=joint)


def static(visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool) -> Replica | None:
    """The same where batches run to their end; None where none are seen to. See ``fit_static``."""
    found = None if _known(curves) is None else fit_static(visits)
    return None if found is None else _served(found, visits, curves, joint=joint)


def _known(curves: Sequence[Curve]) -> list[tuple[str, float]] | None:
    """Metrics and bounds that a simulated request has; None where one is another."""
    bounds = _bounds(curves)
    return None if bounds is None or any(metric not in METRICS for metric, _ in bounds) else bounds


def _served(service: Service, visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool) -> Replica | None:
    """A replica with the measured prompts and answers, in pairs; None where there are too few."""
    import numpy as np

    prompts, outputs = [], []
    for visit in visits:
        tokens_in, tokens_out = visit.tokens_in, visit.tokens_out
        if service.whole is not None:
            # Where nobody says what an answer consists of, it is one.
            tokens_out = np.nan_to_num(tokens_out, nan=1.0)
        kept = visit.ok & np.isfinite(tokens_out) & (tokens_out >= 1)
        prompts.append(np.maximum(1, np.nan_to_num(tokens_in[kept], nan=1.0)).astype(np.uint32))
        outputs.append(tokens_out[kept].astype(np.uint32))
    drawn = np.concatenate(outputs)
    if drawn.size < FEWEST:
        return None
    factors = (1.0,) * len(curves)
    bounds = _bounds(curves) or []
    return Batching(service, bounds, joint, np.concatenate(prompts), drawn, rates_of(visits), factors)


def measured(visits: Sequence[Observed], curves: Sequence[Curve]) -> Replica | None:
    """No model at all; None without a rate."""
    rates = rates_of(visits)
    return Measured(curves, rates, (1.0,) * len(curves)) if rates.size else None


def flow(visits: Sequence[Observed], curves: Sequence[Curve], edge: float, *, queue: bool = False) -> Replica | None:
    """The model without mechanics, with ``queue`` one with a queue that only times show; None where there is none."""
    import numpy as np

    rates = rates_of(visits)
    if not rates.size:
        return None
    batch, _ = limits(visits)
    below = [v for v in visits if batch is not None and v.users <= batch]
    sizes = _sizes(below or visits, rates, min(edge, batch) if batch is not None and below else edge)
    if queue:
        found = None if batch is not None else hidden_queue(visits)
        if found is None:
            return None
        batch, sizes = found
    if sizes is None:
        return None
    if batch is not None:
        # Behind a queue the active ones work at the rate of a full batch; what waits adds nothing.
        full = float(np.median(rates[min(batch, rates.size - 1) :]))
        rates = np.where(np.arange(1, rates.size + 1) >= batch, full, np.minimum(rates, full))
    bounds = [_bound(curve) for curve in curves]
    return Flow(rates, sizes, curves, bounds, batch, (1.0,) * len(curves))


def hidden_queue(visits: Sequence[Observed]) -> tuple[int, NDArray[np.float64]] | None:
    """Most requests at once, and sizes, where a queue stands inside the replica; None where times show none.

    Requests that share a replica are slowed down by a factor, so that the spread of their times over their mean stays.
    A queue adds about the same wait to all, so that it falls: with k in flight and m at once to m / k of what it is
    alone. Then sizes are times less the wait, (k / m) (v / mean - 1 + m / k).
    """
    import numpy as np

    def spread(chosen: Sequence[Observed]) -> tuple[float, NDArray[np.float64]]:
        took = np.concatenate([(v.last_s - v.sent_s)[v.steady & v.ok] for v in chosen])
        took = took[np.isfinite(took)]
        return (float(took.std() / took.mean()) if took.size >= FEWEST else math.nan), took

    few = [v for v in visits if v.users <= 2]
    alone = spread(few)[0] if few else math.nan
    settled = sorted({v.users for v in visits if v.settled and v.users > 2})
    each = {k: spread([v for v in visits if v.users == k and v.settled]) for k in settled}
    active = [k * cv / alone for k, (cv, _) in each.items() if math.isfinite(cv)]
    if not active or not alone > NO_SPREAD:
        return None
    batch = max(1, round(float(np.median(active))))
    if batch > QUEUED * min(settled) or (len(active) > 1 and max(active) > STEADY * min(active)):
        return None
    sizes = [(k / batch) * (took / took.mean() - 1 + batch / k) for k, (_, took) in each.items() if took.size]
    found = np.maximum(np.concatenate(sizes), 1e-3)
    return batch, found / found.mean()


def _sizes(visits: Sequence[Observed], rates: NDArray[np.float64], edge: float) -> NDArray[np.float64] | None:
    """Sizes with mean 1: residence times over the mean of their level, of the levels near the edge."""
    import numpy as np

    parts = []
    for reach in (0.3, 0.8, math.inf):
        for visit in visits:
            if abs(math.log(visit.users / max(1.0, edge))) > reach:
                continue
            took = (visit.last_s - visit.sent_s)[visit.steady & visit.ok]
            took = took[np.isfinite(took)]
            if took.size:
                parts.append(took * rates[min(visit.users, rates.size) - 1] / visit.users)
        if sum(p.size for p in parts) >= 200:
            break
        if reach != math.inf:
            parts = []
    if not parts:
        return None
    sizes = np.concatenate(parts)
    scaled: NDArray[np.float64] = np.maximum(sizes / sizes.mean(), 1e-9)
    return scaled


def _bound(curve: Curve) -> tuple[str, float]:
    """Metric and bound where the objective is one time of a request; else a name that is read from the curve."""
    found = _bounds([curve])
    return found[0] if found is not None and len(found) == 1 else ("other", math.inf)


def _bounds(curves: Sequence[Curve]) -> list[tuple[str, float]] | None:
    """Metric and bound of each objective, in seconds; None where one is no upper bound on a time of a request."""
    found = []
    for curve in curves:
        for part in curve.objective.parts:
            if part.kind != "percentile" or part.bound_s is None or part.op not in ("<=", "<"):
                return None
            found.append((part.metric, part.bound_s))
    return found
