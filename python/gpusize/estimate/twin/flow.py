"""Replicas without a service model: a flow-equivalent server, and the measured curve itself.

The first serves at the rate that was measured with as many requests active (Chandy, Herzog and Woo, IBM Journal of
Research
and Development 19, 1975), shared equally, with sizes drawn from the measured ones. What is no runtime is read from the
measured curve at the simulated numbers of active requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpusize.engine import core
from gpusize.estimate.twin.simulated import Asked, Judged, Rated, judge, judged, load, per_replica

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.curve import Curve

__all__ = ["Flow", "Measured"]


@dataclass(frozen=True, eq=False)
class Flow(Rated):
    """A replica known by its rate at every number of active requests.

    Attributes:
        rates: requests per second with 1, 2, ... active; shape (k,).
        sizes: measured sizes with mean 1, shape (n,).
        curves: one per objective: what is not a runtime is read from them at the simulated numbers of active requests.
        bounds: (metric, bound in seconds) by objective.
        max_active: most at once; the others wait.
        factors: on the bounds of each objective.
    """

    rates: NDArray[np.float64]
    sizes: NDArray[np.float64]
    curves: Sequence[Curve]
    bounds: Sequence[tuple[str, float]]
    max_active: int | None = None
    factors: tuple[float, ...] = (1.0,)
    certain: bool = False

    def scaled(self, factors: Sequence[float]) -> Flow:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def ratios(self, users: int, requests: int) -> NDArray[np.float64] | None:  # noqa: ARG002 - a protocol's
        """See ``Replica``."""
        return None

    def run(
        self, asked: Asked, replicas: int, *, stretch: float = 1.0, seed: int = 1, requests: int | None = None
    ) -> Judged:
        """See ``Replica``."""
        import numpy as np
        import polars as pl

        config = {
            "rates": self.rates.tolist(),
            "max_active": self.max_active,
            "gpus": replicas,
            "router": asked.router,
            "seed": seed,
        }
        asks = load(asked, self.residence_s(per_replica(asked, replicas)), requests)
        whole = all(metric in ("runtime", "service") for metric, _ in self.bounds)
        stream, summary = core().simulate_flow(
            json.dumps(config),
            json.dumps(asks),
            self.sizes.tobytes(),
            judge=judge(self.bounds, [stretch * each for each in self.factors]) if whole else None,
            rows=not whole,
        )
        if whole:
            return judged(json.loads(summary), joint=False)
        told = json.loads(summary)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        took = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        active = rows["active_at_arrival"].to_numpy()
        wait = (rows["start_ns"] - rows["due_ns"]).to_numpy() / 1e9
        slowness = took / self.sizes[rows["size"].to_numpy()]
        residences = np.arange(1, self.rates.size + 1) / self.rates
        felt = np.interp(slowness, residences, np.arange(1.0, self.rates.size + 1))
        shares = []
        for curve, (metric, bound_s), factor in zip(self.curves, self.bounds, self.factors, strict=True):
            wide = stretch * factor
            if metric in ("runtime", "service"):
                shares.append(float((took <= bound_s * wide).mean()))
            elif metric.startswith("ttft"):
                shares.append(_read(curve, active.astype(float), wide, wait))
            else:
                shares.append(_read(curve, felt, wide, None))
        return Judged(tuple(shares), float(told["in_flight"]), float(took.mean()))


@dataclass(frozen=True, eq=False)
class Measured(Rated):
    """A replica of which nothing is simulated: so many in flight see what so many saw.

    True of a closed loop without pauses behind a router that keeps replicas within one request of each other.

    Attributes:
        curves: one per objective.
        rates: requests per second by active requests.
        factors: on the bounds of each objective.
    """

    curves: Sequence[Curve]
    rates: NDArray[np.float64]
    factors: tuple[float, ...] = (1.0,)
    certain: bool = True

    def scaled(self, factors: Sequence[float]) -> Measured:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def ratios(self, users: int, requests: int) -> NDArray[np.float64] | None:  # noqa: ARG002 - a protocol's
        """See ``Replica``."""
        return None

    def run(
        self,
        asked: Asked,
        replicas: int,
        *,
        stretch: float = 1.0,
        seed: int = 1,  # noqa: ARG002 - a protocol's
        requests: int | None = None,  # noqa: ARG002 - a protocol's
    ) -> Judged:
        """See ``Replica``."""
        each = max(1.0, (asked.users or 1.0) / replicas)
        shares = [curve.mixed(each, stretch * factor) for curve, factor in zip(self.curves, self.factors, strict=True)]
        return Judged(tuple(shares), asked.users or 1.0, self.residence_s(each))


def _read(curve: Curve, active: NDArray[np.float64], stretch: float, wait: NDArray[np.float64] | None) -> float:
    """Mean attainment at numbers of active requests; a wait in the queue takes its part of the bound."""
    import numpy as np

    places = np.maximum(1, np.rint(active)).astype(int)
    if wait is None or not (wait > 0).any():
        known, counts = np.unique(places, return_counts=True)
        return float(
            sum(curve.stretched(int(k), stretch) * n for k, n in zip(known, counts, strict=True)) / counts.sum()
        )
    bound = curve.objective.bound * stretch
    left = np.round(np.clip(1 - wait / bound, 0, 1), 3)
    pairs, counts = np.unique(np.stack([places, left]), axis=1, return_counts=True)
    total = sum(
        curve.stretched(int(k), stretch * part) * n if part > 0 else 0.0
        for (k, part), n in zip(pairs.T, counts, strict=True)
    )
    return float(total / counts.sum())
