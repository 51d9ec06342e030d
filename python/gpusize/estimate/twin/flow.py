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
from typing import TYPE_CHECKING, Any, Final

from gpusize.engine import core
from gpusize.estimate.twin.simulated import Asked, Judged, Rated, judge, judged, load, per_replica

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.twin.curve import Curve

__all__ = ["Flow", "Measured"]

WHOLE: Final = ("runtime", "service")
"""Metrics that a flow-equivalent server has itself.

The others are read from the measured curve."""


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

    def cluster(self, replicas: int, router: str, seed: int) -> dict[str, Any]:
        """So many of it as the core's flow-equivalent servers."""
        return {
            "rates": self.rates.tolist(),
            "max_active": self.max_active,
            "gpus": replicas,
            "router": router,
            "seed": seed,
        }

    @property
    def whole(self) -> bool:
        """Whether all bounds are on times that the servers themselves tell; else the measured curve is read."""
        return all(metric in WHOLE for metric, _ in self.bounds)

    def run(
        self, asked: Asked, replicas: int, *, stretch: float = 1.0, seed: int = 1, requests: int | None = None
    ) -> Judged:
        """See ``Replica``."""
        import polars as pl

        config = self.cluster(replicas, asked.router, seed)
        asks = load(asked, self.residence_s(per_replica(asked, replicas)), requests)
        whole = self.whole
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
        shares = tuple(float(each.mean()) for each in self.kept(rows, stretch))
        took = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        return Judged(shares, float(told["in_flight"]), float(took.mean()))

    def kept(self, rows: pl.DataFrame, stretch: float) -> list[NDArray[np.float64]]:
        """How likely each of the core's rows keeps its bounds: by objective, shape (n,) each."""
        import numpy as np

        took = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        active = rows["active_at_arrival"].to_numpy()
        wait = (rows["start_ns"] - rows["due_ns"]).to_numpy() / 1e9
        slowness = took / self.sizes[rows["size"].to_numpy()]
        residences = np.arange(1, self.rates.size + 1) / self.rates
        felt = np.interp(slowness, residences, np.arange(1.0, self.rates.size + 1))
        shares = []
        for curve, (metric, bound_s), factor in zip(self.curves, self.bounds, self.factors, strict=True):
            wide = stretch * factor
            if metric in WHOLE:
                shares.append((took <= bound_s * wide).astype(float))
            elif metric.startswith("ttft"):
                shares.append(_read(curve, active.astype(float), wide, wait))
            else:
                shares.append(_read(curve, felt, wide, None))
        return shares


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


def _read(curve: Curve, active: NDArray[np.float64], stretch: float, wait: NDArray[np.float64] | None) -> Any:
    """Attainment at numbers of active requests, shape (n,); a wait in the queue takes its part of the bound."""
    import numpy as np

    places = np.maximum(1, np.rint(active)).astype(int)
    if wait is None or not (wait > 0).any():
        known, of = np.unique(places, return_inverse=True)
        return np.array([curve.stretched(int(k), stretch) for k in known])[of.ravel()]
    bound = curve.objective.bound * stretch
    left = np.round(np.clip(1 - wait / bound, 0, 1), 3)
    pairs, of = np.unique(np.stack([places, left]), axis=1, return_inverse=True)
    each = [curve.stretched(int(k), stretch * part) if part > 0 else 0.0 for k, part in pairs.T]
    return np.array(each)[of.ravel()]
