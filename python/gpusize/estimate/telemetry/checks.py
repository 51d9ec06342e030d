"""What a replay gets wrong of the SLOs' own histograms, near the bound and near the load at which they break.

At a bucket's edge e the pages say which share of a group's requests kept it. The replay has that share at another time,
e times a factor; its logarithm x is what the replica gets wrong there. Edges near the bound and loads near the one
that is asked about count most. The weighted mean of x corrects the bounds, shrunk as in ``twin.calibration``; what is
left of it is the misfit, and part of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.calibration import stretch_of
from gpusize.estimate.twin.simulate import Values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.telemetry.replay import Replayed

__all__ = ["HISTOGRAM", "Check", "Held", "check", "edges_around"]

HISTOGRAM: Final = {"runtime": "request_time", "service": "request_time", "ttft": "ttft", "itl_mean": "tpot"}
"""The histogram that tells a metric, by request."""
MEANS: Final = {"itl_mean": "itl"}
"""A histogram whose mean tells it where the other is not there."""
EDGES: Final = 2
"""Edges of a group that are looked at."""
FEWEST: Final = 60
"""Groups with fewer observations say too little."""
AWAY: Final = (0.1, 0.15, 0.06)
"""What a replica gets wrong changes by so much per unit of the logarithm of the bound, of that of the load, and of the
normal quantile of the share."""
EITHER: Final = 12
"""So many observations must lie on either side of an edge."""
FAR: Final = math.log(5.0)
"""Edges and loads that are further from those that are asked about are not looked at."""
PRIOR: Final = 0.03
"""How wrong the replica is thought to be where nothing speaks against it."""
LEAST_ERROR: Final = 0.015
TOGETHER: Final = 2.0
"""Requests of one time wait together: so many times the variance of independent ones."""
UNCHECKED: Final = 0.08
"""Standard error of a bound that nothing was held against but means."""
BLIND: Final = 0.25
"""And where there are not even means."""


@dataclass(frozen=True, slots=True)
class Held:
    """One edge in one group of load.

    Attributes:
        group: of load.
        edge_s: the bucket's bound, s; of a mean, the mean.
        share: of the observations at or below it; None of a mean.
        n: observations.
        off: logarithm of what the replay gets wrong.
        error: its standard error.
    """

    group: int
    edge_s: float
    share: float | None
    n: int
    off: float
    error: float


@dataclass(frozen=True, slots=True)
class Check:
    """How far the replay is off for one SLO.

    Attributes:
        correction: logarithm of the factor on its bound.
        error: standard error of that.
        misfit: scatter beyond chance.
        held: what it rests on; empty where nothing tells.
        between: the edges of the buckets around the bound, s; None without a histogram.
        by: ``buckets``, ``means`` or ``nothing``.
    """

    correction: float
    error: float
    misfit: float
    held: tuple[Held, ...]
    between: tuple[float, float] | None
    by: str


def edges_around(production: Production, metric: str, bound_s: float) -> tuple[float, float] | None:
    """The edges of the bucket that a bound lies in, s, both it where it is one; None without the histogram."""
    import numpy as np

    found = production.steps.buckets.get(HISTOGRAM[metric])
    if found is None:
        return None
    at = int(np.searchsorted(found.bounds, bound_s * (1 - 1e-9), "left"))
    high = float(found.bounds[min(at, found.bounds.size - 1)])
    if abs(high / bound_s - 1) < 1e-9:
        return bound_s, bound_s
    return (float(found.bounds[at - 1]) if at else 0.0), high


def check(
    production: Production,
    replays: Sequence[Replayed],
    metric: str,
    bound_s: float,
    target: float,
    edge_per_s: float,
) -> Check:
    """Hold replays against the pages.

    Args:
        production: what was scraped.
        replays: of the same day, with other draws each.
        metric: of the SLO.
        bound_s: its bound.
        target: the share that must keep it.
        edge_per_s: requests per second and replica at which the replica breaks it, as fitted so far.
    """
    loads, normal = _loads(production), NormalDist()
    at = normal.inv_cdf(min(max(target, 1e-3), 1 - 1e-4))
    between = edges_around(production, metric, bound_s)
    held = _buckets(production, replays, metric, bound_s, loads, edge_per_s)
    by = "buckets"
    if not held:
        held, by = _means(production, replays, metric, loads, edge_per_s), "means"
    if not held:
        return Check(0.0, BLIND, 0.0, (), between, "nothing")

    def variance(each: Held) -> float:
        far = AWAY[1] * math.log(loads[each.group] / edge_per_s)
        if each.share is None:
            return each.error**2 + far**2
        return (
            math.hypot(
                each.error, far, AWAY[0] * math.log(each.edge_s / bound_s), AWAY[2] * (normal.inv_cdf(each.share) - at)
            )
            ** 2
        )

    # Edges of one group are told by the same requests: those that say most, and no more.
    held = [
        each
        for group in sorted({each.group for each in held})
        for each in sorted((one for one in held if one.group == group), key=variance)[:EDGES]
    ]
    variances = [variance(each) for each in held]
    weights = [1 / each for each in variances]
    total = sum(weights)
    x = sum(w * each.off for w, each in zip(weights, held, strict=True)) / total
    # Edges of one group are the same requests, and what is far off is so for all: the best alone counts in full.
    error = math.sqrt(min(variances) / min(len({each.group for each in held}), 2))
    scatter = sum(w * ((each.off - x) ** 2 - v) for w, each, v in zip(weights, held, variances, strict=True))
    misfit = math.sqrt(max(0.0, scatter / total))
    known = max(PRIOR**2, misfit**2, x * x - error * error)
    shrunk = known / (known + error * error)
    blunt = UNCHECKED if by == "means" else 0.0
    return Check(shrunk * x, math.hypot(error * math.sqrt(shrunk), blunt), misfit, tuple(held), between, by)


def _loads(production: Production) -> NDArray[np.float64]:
    """Requests per second and replica in each group; shape (groups,)."""
    import numpy as np

    there = production.alive * production.bin_s
    came = np.bincount(production.group, weights=production.per_s * there, minlength=production.groups)
    return np.asarray(np.maximum(came / np.maximum(np.bincount(production.group, weights=there), 1e-9), 1e-9))


def _buckets(
    production: Production,
    replays: Sequence[Replayed],
    metric: str,
    bound_s: float,
    loads: NDArray[np.float64],
    edge_per_s: float,
) -> list[Held]:
    import numpy as np

    buckets = production.steps.buckets.get(HISTOGRAM[metric])
    if buckets is None:
        return []
    found = []
    known = np.isfinite(buckets.counts).all(axis=1)
    told = [each.values(metric) for each in replays]
    for group in range(production.groups):
        if abs(math.log(loads[group] / edge_per_s)) > FAR:
            continue
        counts = buckets.counts[known & (production.of_step == group)].sum(axis=0)
        n = int(counts[-1]) if counts.size else 0
        trials = [Values.of(_finite(values[of == group])[None, :]) for values, of in told]
        if n < FEWEST or min(each.ratios[0].size for each in trials) < FEWEST:
            continue
        for edge, count in zip(buckets.bounds[:-1], counts[:-1], strict=True):
            share = float(count / n)
            if edge <= 0 or abs(math.log(edge / bound_s)) > FAR or min(share, 1 - share) * n < EITHER:
                continue
            found.append(_held(trials, group, float(edge), share, n))
    return found


def _held(trials: Sequence[Values], group: int, edge_s: float, share: float, n: int) -> Held:
    import numpy as np

    around = math.log(edge_s)
    chance = math.sqrt(TOGETHER * share * (1 - share) * (1 / n + 1 / sum(each.ratios[0].size for each in trials)))
    low, high = max(share - chance, 0.5 * share), min(share + chance, 1 - 0.5 * (1 - share))
    each = [stretch_of([trial], 0, share, around) for trial in trials]
    slope = 0.5 * (stretch_of(trials, 0, high, around) - stretch_of(trials, 0, low, around))
    # Days of the same load differ by how their queues went; the pages are of one more of them.
    days = float(np.std(each, ddof=1)) * math.sqrt(1 + 1 / len(each)) if len(each) > 1 else 0.0
    return Held(group, edge_s, share, n, float(np.mean(each)) - around, math.hypot(max(LEAST_ERROR, slope), days))


def _means(
    production: Production,
    replays: Sequence[Replayed],
    metric: str,
    loads: NDArray[np.float64],
    edge_per_s: float,
) -> list[Held]:
    import numpy as np

    names = (HISTOGRAM[metric], MEANS.get(metric))
    name = next((each for each in names if each and np.nansum(production.steps.rise(f"{each}_count")) > FEWEST), None)
    if name is None:
        return []
    means, counts = production.mean(name), production.sums(f"{name}_count")
    told = [each.step_s() if name == "itl" else each.mean(metric) for each in replays]
    found = []
    for group in range(production.groups):
        values = [float(each[group]) for each in told if np.isfinite(each[group]) and each[group] > 0]
        if counts[group] < FEWEST or not means[group] > 0 or len(values) < len(told):
            continue
        if abs(math.log(loads[group] / edge_per_s)) > FAR:
            continue
        offs = [math.log(value / means[group]) for value in values]
        days = float(np.std(offs, ddof=1)) * math.sqrt(1 + 1 / len(offs)) if len(offs) > 1 else 0.0
        error = math.hypot(max(LEAST_ERROR, 1 / math.sqrt(counts[group])), days)
        found.append(Held(group, float(means[group]), None, int(counts[group]), float(np.mean(offs)), error))
    return found


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return values[np.isfinite(values)]
