"""From measured levels to a replica that can be simulated: candidates, and how well each repeats what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batching import fit_service, limits
from gpusize.estimate.twin.simulated import METRICS, Asked, Batching, Flow, Replica

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.curve import Curve
    from gpusize.estimate.twin.observed import Observed

__all__ = ["Candidate", "batching", "calibrated", "flow", "rates_of"]

CHECKED: Final = 20_000
"""Requests of a simulation that is held against a measured level."""
NEAR_EDGE: Final = 0.5
"""Levels from this share of the edge on are what a model has to repeat."""
REACH: Final = 3.0
"""Rates are carried on to this multiple of the largest level, along the last measured slope."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica with what it gets wrong.

    Attributes:
        name: of the model.
        replica: what is simulated.
        calibration: factor on all bounds with which it says at the edge what was measured.
        misfit: largest factor (as a logarithm) between its times and the measured ones over the levels near the edge, after calibration.
    """

    name: str
    replica: Replica
    calibration: float
    misfit: float


def rates_of(visits: Sequence[Observed]) -> NDArray[np.float64]:
    """Requests per second that a replica serves with 1, 2, ... active: k over the mean residence at k, from Little's law.

    Residence times rise with k (isotonic by running maximum) and are straight between levels and beyond the last.
    """
    import numpy as np

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


def batching(visits: Sequence[Observed], curves: Sequence[Curve], *, joint: bool, edge: float) -> Replica | None:
    """The simulated cluster's own model; None where the records do not tell what it needs."""
    import numpy as np

    bounds = _bounds(curves)
    if bounds is None or any(metric not in METRICS for metric, _ in bounds):
        return None
    service = fit_service(visits)
    if service is None:
        return None
    near = [v for v in visits if v.users >= NEAR_EDGE * edge] or list(visits)
    prompts, outputs = [], []
    for visit in near:
        kept = visit.steady & visit.ok & np.isfinite(visit.tokens_out) & (visit.tokens_out >= 1)
        prompts.append(np.maximum(1, np.nan_to_num(visit.tokens_in[kept], nan=1.0)).astype(np.uint32))
        outputs.append(visit.tokens_out[kept].astype(np.uint32))
    drawn = np.concatenate(outputs)
    if drawn.size < 20:
        return None
    found = Batching(service, bounds, joint, np.concatenate(prompts), drawn, rates_of(visits))
    return _with_prompts(found, visits, edge)


def _with_prompts(model: Batching, visits: Sequence[Observed], edge: float) -> Batching:
    """The model with the cost of prompts that its times to first token ask for.

    Tokens that are spread evenly over an answer blur what single prompts cost; the first token's time shows it. Solved by
    secants on simulations of the level nearest to the edge in front of which no queue stands.
    """
    import numpy as np

    free = [v for v in visits if model.service.max_batch is None or v.users <= model.service.max_batch]
    if model.service.kv_tokens is not None:
        free = [v for v in free if v.users <= 0.7 * edge]
    known = {v.users for v in free if np.isfinite(v.first_s[v.steady]).sum() >= 30}
    prompts = np.concatenate([v.tokens_in[v.steady] for v in visits])
    if not known or not np.isfinite(prompts).any() or np.nanmax(prompts) <= 1:
        return model
    users = min(known, key=lambda k: abs(math.log(k / max(1.0, edge))))
    waits = np.concatenate([(v.first_s - v.sent_s)[v.steady & v.ok] for v in free if v.users == users])
    measured = float(np.nanmean(waits))

    def at(cost_s: float) -> tuple[Batching, float]:
        service = fit_service(visits, cost_s) or model.service
        tried = replace(model, service=service)
        return tried, tried.ttft_s(users)

    mean_prompt = float(np.nanmean(prompts))
    low, high = 0.0, 3.0 * max(model.service.per_prompt_token_s, measured / mean_prompt)
    best = model
    for _ in range(10):
        middle = 0.5 * (low + high)
        best, found = at(middle)
        low, high = (middle, high) if found < measured else (low, middle)
    return best


def flow(visits: Sequence[Observed], curves: Sequence[Curve], edge: float) -> Replica | None:
    """The model without mechanics; None without a rate."""
    import numpy as np

    rates = rates_of(visits)
    if not rates.size:
        return None
    sizes = _sizes(visits, rates, edge)
    if sizes is None:
        return None
    batch, _ = limits(visits)
    if batch is not None:
        # Behind a queue the active ones work at the rate of a full batch; what waits adds nothing.
        rates = np.where(np.arange(1, rates.size + 1) > batch, rates[min(batch, rates.size) - 1], rates)
        sizes = (
            _sizes([v for v in visits if v.users <= batch] or visits, rates, min(edge, batch))
            if any(v.users <= batch for v in visits)
            else sizes
        )
    bounds = [_bound(curve) for curve in curves]
    return Flow(rates, sizes, curves, bounds, batch)


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
    return np.maximum(sizes / sizes.mean(), 1e-9)


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


def calibrated(name: str, replica: Replica, curves: Sequence[Curve], edges: Sequence[float]) -> Candidate:
    """A candidate with its calibration at the edge, and its misfit at the levels near it.

    Both are logarithms of the factor on the bound with which the simulated attainment is the measured one.
    """
    logs: list[tuple[float, float]] = []
    for number, (curve, edge) in enumerate(zip(curves, edges, strict=True)):
        if curve.objective.share is None:
            continue
        places = {max(1, math.floor(edge)), max(1, math.ceil(edge))}
        places |= {
            each.users
            for each in curve.levels
            if NEAR_EDGE * edge <= each.users <= 1.5 * edge and each.logs.size >= 100
        }
        for users in sorted(places):
            measured = curve.at(users).value
            if not 0.02 < measured < 0.998:
                continue
            off = _off(replica, number, users, measured)
            weight = math.exp(-0.5 * (math.log(users / max(1.0, edge)) / 0.15) ** 2)
            logs.append((off, weight))
    total = sum(weight for _, weight in logs)
    if not logs or total <= 0:
        return Candidate(name, replica, 1.0, 0.0)
    middle = sum(off * weight for off, weight in logs) / total
    return Candidate(name, replica, math.exp(middle), max(abs(off - middle) for off, _ in logs) + abs(middle))


def _off(replica: Replica, number: int, users: int, measured: float) -> float:
    """Logarithm of the factor on the bounds with which one replica at so many users has the measured attainment."""
    asked = Asked(users=users)
    low, high = -0.7, 0.7
    for _ in range(9):
        middle = 0.5 * (low + high)
        share = replica.run(asked, 1, stretch=math.exp(middle), requests=CHECKED).shares[number]
        low, high = (middle, high) if share < measured else (low, middle)
    return 0.5 * (low + high)
