"""What a cluster of so many replicas would do, by simulation of a fitted replica: attainments over a finite horizon.

Two models of a replica: ``Batching`` is the simulated cluster's own service model with fitted costs; ``Flow`` takes none, only the
measured rate at every number of active requests (Chandy, Herzog and Woo, IBM Journal of Research and Development 19, 1975)
and the measured mix of sizes. Both draw what requests bring from the measured ones, with the same seeds for every
number of replicas, so that answers differ by the replicas and not by luck.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpusize.engine import core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.batching import Service
    from gpusize.estimate.twin.curve import Curve

__all__ = ["Asked", "Batching", "Flow", "Judged", "Measured", "Replica"]

ROUNDS: Final = 24.0
WARMUP_ROUNDS: Final = 4.0
FEWEST: Final = 4_000
MOST: Final = 100_000
METRICS: Final = {"runtime": "runtime", "service": "service", "ttft": "ttft", "itl_mean": "itl_mean"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The load on the whole cluster.

    Attributes:
        users: users of a closed loop; None for an open one.
        rate: requests per second of an open loop; None for a closed one.
        process: ``poisson`` or ``constant``.
        think_s: mean pause.
        think: ``none``, ``constant`` or ``exponential``.
        router: ``least_loaded``, ``round_robin`` or ``random``.
    """

    users: float | None = None
    rate: float | None = None
    process: str = "poisson"
    think_s: float = 0.0
    think: str = "none"
    router: str = "least_loaded"

    @property
    def load(self) -> float:
        """Users, or requests per second."""
        return self.users if self.users is not None else (self.rate or 0.0)

    def of(self, load: float) -> Asked:
        """The same at another load."""
        return replace(self, users=load) if self.users is not None else replace(self, rate=load)

    def quickened(self, factor: float) -> Asked:
        """The same in a time that runs so many times as fast: what replicas see that are slower by it."""
        rate = None if self.rate is None else self.rate * factor
        return replace(self, rate=rate, think_s=self.think_s / factor)


@dataclass(frozen=True, slots=True)
class Judged:
    """How a simulated run fared: attainment by objective, mean requests in flight, mean runtime, mean tokens of answers."""

    shares: tuple[float, ...]
    in_flight: float
    runtime_s: float
    tokens: float | None = None


def horizon(asked: Asked, residence_s: float) -> int:
    """Requests that count in one simulated run: 24 rounds, within bounds."""
    together = asked.users if asked.users is not None else (asked.rate or 0.0) * residence_s
    return int(min(MOST, max(FEWEST, math.ceil(ROUNDS * together))))


class Replica(Protocol):
    """A fitted replica, of which a cluster can have any number.

    Attributes:
        certain: whether runs do not depend on a seed.
    """

    certain: bool

    def run(
        self, asked: Asked, replicas: int, *, stretch: float = 1.0, seed: int = 1, requests: int | None = None
    ) -> Judged:
        """Attainments on so many replicas. With ``stretch`` all bounds are multiplied by it."""
        ...

    def residence_s(self, in_flight: float) -> float:
        """Mean time in service of a request with so many on its replica."""
        ...

    def scaled(self, factors: Sequence[float]) -> Replica:
        """The same with the bounds of each objective multiplied by a factor."""
        ...

    def ratios(self, users: int, requests: int) -> NDArray[np.float64] | None:
        """Values over bounds of a closed loop on one replica, shape (objectives, n); None where only shares are known."""
        ...


def _horizon(asked: Asked, residence_s: float, requests: int | None) -> dict[str, int]:
    """Counted and warm-up requests."""
    together = asked.users if asked.users is not None else (asked.rate or 0.0) * residence_s
    return {"requests": requests or horizon(asked, residence_s), "warmup_requests": math.ceil(WARMUP_ROUNDS * together)}


def _load(asked: Asked, residence_s: float, requests: int | None) -> dict[str, Any]:
    if asked.users is None:
        arrivals: dict[str, Any] = {"open": {"rate_per_s": asked.rate, "process": asked.process}}
    else:
        closed: dict[str, Any] = {"users": max(1, round(asked.users)), "stagger_s": residence_s + asked.think_s}
        if asked.think != "none" and asked.think_s > 0:
            closed |= {"think_s": asked.think_s, "think": asked.think}
        arrivals = {"closed": closed}
    return {"arrivals": arrivals, **_horizon(asked, residence_s, requests)}


@dataclass(frozen=True, eq=False)
class Batching:
    """A replica that serves with continuous batching.

    Attributes:
        service: costs and limits.
        bounds: (metric, bound in seconds) by objective; metrics of ``METRICS``.
        joint: whether one share is asked for of requests that keep all bounds.
        prompt_tokens: measured prompts, shape (n,).
        output_tokens: the answers to them, shape (n,).
        rates: requests per second by active requests, for first guesses.
        factors: on the bounds of each objective: what calibration found.
    """

    service: Service
    bounds: Sequence[tuple[str, float]]
    joint: bool
    prompt_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    rates: NDArray[np.float64]
    factors: tuple[float, ...] = (1.0,)
    certain: bool = False

    def residence_s(self, in_flight: float) -> float:
        """See ``Replica``."""
        return _residence_s(self.rates, in_flight)

    def run(
        self, asked: Asked, replicas: int, *, stretch: float = 1.0, seed: int = 1, requests: int | None = None
    ) -> Judged:
        """See ``Replica``."""
        judge = _judge(self.bounds, [stretch * each for each in self._each_factor()])
        _, summary = self._run(asked, replicas, seed, requests, judge)
        return replace(_judged(json.loads(summary), self.joint), tokens=float(self.output_tokens.mean()))

    def scaled(self, factors: Sequence[float]) -> Batching:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def _each_factor(self) -> Sequence[float]:
        return self.factors * len(self.bounds) if self.joint else self.factors

    def ratios(self, users: int, requests: int) -> NDArray[np.float64]:
        """See ``Replica``."""
        import numpy as np
        import polars as pl

        stream, _ = self._run(Asked(users=users), 1, 1, requests, None)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        due, first, end = (rows[name].to_numpy() / 1e9 for name in ("due_ns", "first_token_ns", "end_ns"))
        gaps = rows["tokens_out"].to_numpy().astype(float) - 1
        known = {"runtime": end - due, "service": end - due, "ttft": first - due}
        with np.errstate(divide="ignore", invalid="ignore"):
            known["itl_mean"] = np.where(gaps >= 1, (end - first) / gaps, np.nan)
        found = np.array([known[metric] / bound_s for metric, bound_s in self.bounds])
        return np.fmax.reduce(found)[None, :] if self.joint else found

    def _run(self, asked: Asked, replicas: int, seed: int, requests: int | None, judge: str | None) -> Any:
        service = self.service
        largest = int((self.prompt_tokens.astype(int) + self.output_tokens).max())
        config = {
            "iteration_base_s": service.base_s,
            "iteration_per_sequence_s": service.per_sequence_s,
            "prefill_per_token_s": service.per_prompt_token_s,
            "noise_sigma": service.noise,
            "max_batch": service.max_batch or 100_000,
            "kv_blocks": max(service.kv_tokens or 2**31, largest),
            "kv_block_tokens": 1,
            "gpus": replicas,
            "router": asked.router,
            "seed": seed,
        }
        load = _load(asked, self.residence_s(_per_replica(asked, replicas)), requests)
        return core().simulate(
            json.dumps(config),
            json.dumps(load),
            prompt_tokens=self.prompt_tokens.tobytes(),
            output_tokens=self.output_tokens.tobytes(),
            judge=judge,
            rows=judge is None,
        )


@dataclass(frozen=True, eq=False)
class Flow:
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

    def residence_s(self, in_flight: float) -> float:
        """See ``Replica``."""
        return _residence_s(self.rates, in_flight)

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
        load = _load(asked, self.residence_s(_per_replica(asked, replicas)), requests)
        whole = all(metric in ("runtime", "service") for metric, _ in self.bounds)
        stream, summary = core().simulate_flow(
            json.dumps(config),
            json.dumps(load),
            self.sizes.tobytes(),
            judge=_judge(self.bounds, [stretch * each for each in self.factors]) if whole else None,
            rows=not whole,
        )
        if whole:
            return _judged(json.loads(summary), joint=False)
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
class Measured:
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

    def residence_s(self, in_flight: float) -> float:
        """See ``Replica``."""
        return _residence_s(self.rates, in_flight)

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


def _residence_s(rates: NDArray[np.float64], in_flight: float) -> float:
    import numpy as np

    k = max(1.0, in_flight)
    known = np.arange(1, rates.size + 1)
    return float(k / np.interp(k, known, rates))


def _per_replica(asked: Asked, replicas: int) -> float:
    return max(1.0, (asked.users or 1.0) / replicas)


def _judge(bounds: Sequence[tuple[str, float]], factors: Sequence[float]) -> str:
    judged = [
        {"metric": METRICS[metric], "bound_s": bound_s * factor}
        for (metric, bound_s), factor in zip(bounds, factors, strict=True)
    ]
    return json.dumps({"bounds": judged})


def _judged(told: Mapping[str, Any], joint: bool) -> Judged:  # noqa: FBT001
    judged = told["judged"]
    counts = [judged["all"]] if joint else judged["bounds"]
    shares = tuple(c["within"] / max(1, c["within"] + c["over"]) for c in counts)
    runtime = told.get("runtime_s") or {}
    return Judged(shares, float(told["in_flight"]), float(runtime.get("mean") or math.nan))
