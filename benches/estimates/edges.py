"""How much load so many replicas carry: where their attainment falls to the target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from benches.estimates.question import attainments, targets
from benches.estimates.scenarios import Scenario, horizon

__all__ = ["FIRST_SEED", "Edge", "attained", "edge_of", "margin_of"]

FIRST_SEED = 7_000
"""The first of the seeds of truths; probes have others."""
EDGE_REQUESTS = (40_000, 1_000_000)
"""Counted requests of each point of an edge over all its seeds: on the way, and at most for the last two."""
EDGE_ERROR = 0.003
"""Relative error of an edge that is small enough."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Edge:
    """How much load so many replicas carry within every SLO, interpolated, and how well that is known.

    Attributes:
        load: users or requests per second.
        error: standard error of it, relative.
    """

    load: float
    error: float


def attained(scenario: Scenario, replicas: int, load: float, seed: int) -> list[float]:
    """Attainments of one run over the horizon, as ``attainments``."""
    counted, warmup = horizon(scenario, load)
    asked = scenario.visible.world_load(load, counted, warmup)
    rows = scenario.world.run(asked, gpus=replicas, seed=seed)
    return attainments(rows, scenario.visible)


def edge_of(scenario: Scenario, replicas: int) -> Edge:
    """The load at which so many replicas just keep every SLO, between whole numbers of users where there are users.

    The attainments (as normal quantiles, less the target's) of loads around it are joined by straight lines; the least
    over the SLOs decides. The same seeds serve all loads.
    """
    points = _Points(scenario, replicas)
    start = points.rounded(scenario.edge * replicas)
    while True:
        low, high = points.around(start)
        if low == 0 or math.isinf(high):
            return Edge(high * 0.5 if low == 0 else low, math.inf)
        low, high = points.narrowed(low, high)
        # Until more seeds move the edge out of the stretch.
        while points.at(low)[0] >= 0 > points.at(high)[0]:
            (a, ea), (b, eb) = points.at(low), points.at(high)
            slope = (a - b) / (high - low)
            load = low + a / slope
            error = math.hypot(ea, eb) / math.sqrt(2) / slope / load
            if error <= EDGE_ERROR or points.requests >= EDGE_REQUESTS[1]:
                return Edge(load, error)
            points.requests *= 3
        start = low


class _Points:
    """Margins of one number of replicas at several loads: attainments less targets as normal quantiles, and errors."""

    def __init__(self, scenario: Scenario, replicas: int) -> None:
        self.scenario = scenario
        self.replicas = replicas
        self.whole = scenario.visible.users is not None
        self.least = 1.0 if self.whole else 0.0
        self.requests = EDGE_REQUESTS[0]
        self._found: dict[float, list[list[float]]] = {}

    def rounded(self, load: float) -> float:
        return float(max(1, round(load))) if self.whole else load

    def at(self, load: float) -> tuple[float, float]:
        """The least margin over the SLOs, and its standard error."""
        counted, _ = horizon(self.scenario, load)
        seeds = max(3, math.ceil(self.requests / counted))
        rows = self._found.setdefault(load, [])
        while len(rows) < seeds:
            rows.append(attained(self.scenario, self.replicas, load, FIRST_SEED + len(rows)))
        return margin_of(np.array(rows), targets(self.scenario.visible), counted)

    def keeps(self, load: float) -> bool:
        return self.at(load)[0] >= 0

    def around(self, start: float) -> tuple[float, float]:
        """A load that is kept and a larger one that is not; 0 and infinity where there is none."""
        factor = 1.03
        if self.keeps(start):
            low, high = start, self.rounded(max(start * factor, start + self.least))
            while self.keeps(high):
                factor = factor**1.7
                low, high = high, self.rounded(max(high * factor, high + self.least))
                if high > 1000 * start:
                    return low, math.inf
            return low, high
        low, high = self.rounded(min(start / factor, start - self.least)), start
        while low < high and not self.keeps(low):
            factor = factor**1.7
            high, low = low, self.rounded(min(low / factor, low - self.least))
            if low < start / 1000:
                return 0.0, high
        return (low, high) if low < high else (0.0, high)

    def narrowed(self, low: float, high: float) -> tuple[float, float]:
        """The same, closer together: by the line between the ends, not too near either of them."""
        for _ in range(6):
            # Closer than this the difference of the ends would be noise.
            if high - low <= max(self.least, 0.03 * high):
                break
            a, b = self.at(low)[0], self.at(high)[0]
            middle = self.rounded(low + float(np.clip(a / (a - b), 0.15, 0.85)) * (high - low))
            if not low < middle < high:
                break
            low, high = (middle, high) if self.keeps(middle) else (low, middle)
        return low, high


def margin_of(shares: NDArray[np.float64], wanted: Sequence[float], counted: int) -> tuple[float, float]:
    """The least over the SLOs of mean share less target, as normal quantiles, and its standard error.

    Args:
        shares: attainments, shape (seeds, SLOs).
        wanted: their targets.
        counted: requests of each seed.
    """
    mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    least = 0.5 / (counted * len(shares))
    inside = [min(max(float(p), least), 1 - least) for p in mean]
    margins = [_NORMAL.inv_cdf(p) - _NORMAL.inv_cdf(q) for p, q in zip(inside, wanted, strict=True)]
    k = margins.index(min(margins))
    return margins[k], float(error[k]) / _NORMAL.pdf(_NORMAL.inv_cdf(inside[k]))
