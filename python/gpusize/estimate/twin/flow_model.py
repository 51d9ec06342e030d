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
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpusize.engine.session import core
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Rated, TimeBound, Trial, load
from gpusize.estimate.twin.visit_data import mean_kept

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.twin.attainment_curve import Curve

__all__ = ["Flow", "Measured"]

RUNTIMES: Final = ("runtime", "service")


@dataclass(frozen=True, eq=False)
class Flow(Rated):
    """A replica known by its rate at every number of active requests.

    Attributes:
        rates: requests per second with 1, 2, ... active, to the limit where there is one; shape (k,).
        sizes: measured sizes with mean 1, shape (n,).
        curves: one per objective: what is not a runtime is read from them at the simulated numbers of active requests.
        bounds: one per objective.
        max_active: most at once; the others wait.
        factors: on the bounds of each objective.
    """

    rates: NDArray[np.float64]
    sizes: NDArray[np.float64]
    curves: Sequence[Curve]
    bounds: Sequence[TimeBound]
    max_active: int | None = None
    factors: tuple[float, ...] = (1.0,)
    certain: bool = False
    tokens: None = None

    def scaled(self, factors: Sequence[float]) -> Flow:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def run(self, asked: ClusterLoad, replicas: int, *, seed: int = 1, requests: int | None = None) -> Trial:
        """See ``Replica``."""
        import polars as pl

        stream, summary = self._run(asked, replicas, requests, seed)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        return self._trial_of(rows, float(json.loads(summary)["in_flight"]))

    @property
    def whole(self) -> bool:
        """Whether all bounds are on times of requests, which the core itself judges."""
        return all(each.metric in RUNTIMES for each in self.bounds)

    def kept(self, rows: pl.DataFrame, stretch: float) -> list[NDArray[np.float64]]:
        """How likely each of the core's rows keeps its bounds, read from the curves: by objective, shape (n,) each."""
        trial = self._trial_of(rows, 0.0)
        ok = (rows["outcome"] == 0).to_numpy()
        return [trial.kept(number, stretch * factor) * ok for number, factor in enumerate(self.factors)]

    def _trial_of(self, rows: pl.DataFrame, in_flight: float) -> FlowTrial:
        import numpy as np

        took_s = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
        # One that was refused never began.
        wait_s = (rows["start_ns"].fill_null(rows["due_ns"]) - rows["due_ns"]).to_numpy() / 1e9
        slowness = (took_s - wait_s) / self.sizes[rows["size"].to_numpy()]
        loads = np.arange(1.0, self.rates.size + 1)
        active = rows["active_at_arrival"].to_numpy().astype(float)
        return FlowTrial(
            self.curves,
            self.bounds,
            took_s,
            active,
            # Who waits feels those before it; who is served at once feels who comes and goes meanwhile.
            np.where(wait_s > 0, active, np.interp(slowness, loads / self.rates, loads)),
            in_flight,
        )

    def cluster(self, replicas: int, router: str, seed: int) -> dict[str, Any]:
        """So many of it as the core's flow-equivalent servers."""
        return {
            "rates": self.rates.tolist(),
            "max_active": self.max_active,
            "gpus": replicas,
            "router": router,
            "seed": seed,
        }

    def tasks(self, slowness: float = 1.0) -> tuple[bytes, bytes, bytes] | None:  # noqa: ARG002 - of those that have some
        """What requests do between their calls, as the core takes it; None where they are one each."""
        return None

    def _run(self, asked: ClusterLoad, replicas: int, requests: int | None, seed: int) -> Any:
        config = self.cluster(replicas, asked.router, seed)
        asks = load(asked, self.at_work_s(asked, replicas), self.patience_s, requests)
        tasks = self.tasks(asked.slowness)
        return core().simulate_flow(json.dumps(config), json.dumps(asks), self.sizes.tobytes(), tasks=tasks)


@dataclass(frozen=True, eq=False)
class FlowTrial:
    """A run of a flow-equivalent server; what is no runtime is read from the measured curves.

    Attributes:
        curves: one per objective.
        bounds: likewise.
        took_s: from due to end, shape (n,); so are the following.
        active: requests that were there on arrival, those that waited included, and itself.
        felt: the number at which a request of its size would have taken as long; of those that waited, ``active``.
        in_flight: mean of requests in flight.
    """

    curves: Sequence[Curve]
    bounds: Sequence[TimeBound]
    took_s: NDArray[np.float64]
    active: NDArray[np.float64]
    felt: NDArray[np.float64]
    in_flight: float

    @property
    def runtime_s(self) -> float:
        """Mean."""
        return float(self.took_s.mean())

    def share(self, number: int, stretch: float) -> float:
        """See ``Trial``."""
        metric = self.bounds[number].metric
        if metric in RUNTIMES:
            return float(self.kept(number, stretch).mean())
        # Judged by many bounds, so that loads are counted once.
        known, counts = self._loads["active" if metric.startswith("ttft") else "felt"]
        return float(counts @ _shares(self.curves[number], known, stretch)) / self.active.size

    @cached_property
    def _loads(self) -> dict[str, tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Whole numbers of requests in flight, and how many requests saw so many."""
        import numpy as np

        return {name: np.unique(_whole(getattr(self, name)), return_counts=True) for name in ("active", "felt")}

    def kept(self, number: int, stretch: float) -> NDArray[np.float64]:
        """How likely each request keeps an objective, shape (n,); of a mean what ``mean_kept`` says of its time."""
        metric, bound_s, mean = self.bounds[number]
        if metric in RUNTIMES:
            if mean:
                return mean_kept(self.took_s / (bound_s * stretch))
            return (self.took_s <= bound_s * stretch).astype(float)
        if metric.startswith("ttft"):
            return _read(self.curves[number], self.active, stretch)
        return _read(self.curves[number], self.felt, stretch)


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
    bounds: tuple[TimeBound, ...] = ()
    certain: bool = True
    tokens: None = None

    def scaled(self, factors: Sequence[float]) -> Measured:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def run(
        self,
        asked: ClusterLoad,
        replicas: int,
        *,
        seed: int = 1,  # noqa: ARG002 - a protocol's
        requests: int | None = None,  # noqa: ARG002 - a protocol's
    ) -> MeasuredTrial:
        """See ``Replica``."""
        each = max(1.0, (asked.users or 1.0) / replicas)
        return MeasuredTrial(self.curves, each, asked.users or 1.0, self.residence_s(each))


@dataclass(frozen=True, eq=False)
class MeasuredTrial:
    """What was measured with so many in flight on each replica."""

    curves: Sequence[Curve]
    each: float
    in_flight: float
    runtime_s: float

    def share(self, number: int, stretch: float) -> float:
        """See ``Trial``."""
        return self.curves[number].mixed(self.each, stretch)


def _read(curve: Curve, active: NDArray[np.float64], stretch: float) -> NDArray[np.float64]:
    """Attainment at numbers of requests in flight, shape (n,): what so many saw, waits in the queue included."""
    import numpy as np

    known, which = np.unique(_whole(active), return_inverse=True)
    return _shares(curve, known, stretch)[which]


def _whole(active: NDArray[np.float64]) -> NDArray[np.intp]:
    import numpy as np

    return np.maximum(1, np.rint(active)).astype(int)


def _shares(curve: Curve, known: NDArray[np.intp], stretch: float) -> NDArray[np.float64]:
    import numpy as np

    bound = np.array([stretch])
    return np.array([float(curve.stretches(int(k), bound)[0]) for k in known])
