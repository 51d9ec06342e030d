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
from gpusize.estimate.twin.asked import Asked
from gpusize.estimate.twin.simulated import Judged, Rated, judge, judged, load, per_replica

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.curve import Curve

__all__ = ["Flow", "Measured"]

RUNTIMES: Final = ("runtime", "service")


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

    def run(
        self, asked: Asked, replicas: int, *, stretch: float = 1.0, seed: int = 1, requests: int | None = None
    ) -> Judged:
        """See ``Replica``."""
        if not self._whole:
            trial = self._tried(asked, replicas, requests, seed)
            wide = [stretch * factor for factor in self.factors]
            shares = tuple(trial.share(number, each) for number, each in enumerate(wide))
            return Judged(shares, trial.in_flight, trial.runtime_s)
        asking = judge(self.bounds, [stretch * each for each in self.factors])
        _, summary = self._run(asked, replicas, requests, seed, asking)
        return judged(json.loads(summary), joint=False)

    def trial(self, asked: Asked, requests: int) -> FlowTrial:
        """See ``Replica``."""
        return self._tried(asked, 1, requests, 1)

    @property
    def _whole(self) -> bool:
        return all(metric in RUNTIMES for metric, _ in self.bounds)

    def _tried(self, asked: Asked, replicas: int, requests: int | None, seed: int) -> FlowTrial:
        import numpy as np
        import polars as pl

        stream, summary = self._run(asked, replicas, requests, seed, None)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        took_s = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        slowness = took_s / self.sizes[rows["size"].to_numpy()]
        residences = np.arange(1, self.rates.size + 1) / self.rates
        return FlowTrial(
            self.curves,
            self.bounds,
            took_s,
            (rows["start_ns"] - rows["due_ns"]).to_numpy() / 1e9,
            rows["active_at_arrival"].to_numpy().astype(float),
            np.interp(slowness, residences, np.arange(1.0, self.rates.size + 1)),
            float(json.loads(summary)["in_flight"]),
        )

    def _run(self, asked: Asked, replicas: int, requests: int | None, seed: int, asking: str | None) -> Any:
        config = {
            "rates": self.rates.tolist(),
            "max_active": self.max_active,
            "gpus": replicas,
            "router": asked.router,
            "seed": seed,
        }
        asks = load(asked, self.residence_s(per_replica(asked, replicas)), requests)
        return core().simulate_flow(
            json.dumps(config), json.dumps(asks), self.sizes.tobytes(), judge=asking, rows=asking is None
        )


@dataclass(frozen=True, eq=False)
class FlowTrial:
    """A run of a flow-equivalent server; what is no runtime is read from the measured curves.

    Attributes:
        curves: one per objective.
        bounds: likewise.
        took_s: from due to end, shape (n,); so are the following.
        wait_s: in the queue.
        active: requests that were there on arrival.
        felt: the number of active requests at which a request would have taken as long.
        in_flight: mean of requests in flight.
    """

    curves: Sequence[Curve]
    bounds: Sequence[tuple[str, float]]
    took_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    active: NDArray[np.float64]
    felt: NDArray[np.float64]
    in_flight: float

    @property
    def runtime_s(self) -> float:
        """Mean."""
        return float(self.took_s.mean())

    def share(self, number: int, stretch: float) -> float:
        """See ``Trial``."""
        metric, bound_s = self.bounds[number]
        if metric in RUNTIMES:
            return float((self.took_s <= bound_s * stretch).mean())
        if metric.startswith("ttft"):
            return _read(self.curves[number], self.active, stretch, self.wait_s)
        return _read(self.curves[number], self.felt, stretch, None)


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

    def trial(self, asked: Asked, requests: int) -> MeasuredTrial:  # noqa: ARG002 - a protocol's
        """See ``Replica``."""
        return MeasuredTrial(self.curves, max(1.0, asked.users or 1.0))

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


@dataclass(frozen=True, eq=False)
class MeasuredTrial:
    """What was measured with so many in flight."""

    curves: Sequence[Curve]
    users: float

    def share(self, number: int, stretch: float) -> float:
        """See ``Trial``."""
        return self.curves[number].mixed(self.users, stretch)


def _read(curve: Curve, active: NDArray[np.float64], stretch: float, wait: NDArray[np.float64] | None) -> float:
    """Mean attainment at numbers of active requests; a wait in the queue takes its part of the bound."""
    import numpy as np

    places = np.maximum(1, np.rint(active)).astype(int)
    bound = curve.objective.bound * stretch
    left = np.ones_like(active) if wait is None else np.maximum(0.0, 1 - wait / bound)
    order = np.argsort(places, kind="stable")
    known, begins = np.unique(places[order], return_index=True)
    groups = np.split(stretch * left[order], begins[1:])
    within = sum(float(curve.stretches(int(k), each).sum()) for k, each in zip(known, groups, strict=True))
    return within / places.size
