"""What a cluster of so many replicas would do, by simulation of a fitted replica: attainments over a finite horizon.

``Batching`` is the simulated cluster's own service model with fitted costs; ``flow`` has replicas without one. All
draw what
requests bring from the measured ones, with the same seeds for every number of replicas, so that answers differ by the
replicas and not by luck.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gpusize.engine.session import core
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.visit_data import mean_kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.batching_model import Service

__all__ = [
    "Batching",
    "Rated",
    "Replica",
    "TimeBound",
    "Trial",
    "Values",
    "horizon",
    "in_system",
    "judge",
    "load",
    "stretched",
]

ROUNDS: Final = 24.0
WARMUP_ROUNDS: Final = 4.0
FEWEST: Final = 4_000
MOST: Final = 100_000
MOST_AT_ONCE: Final = 100_000
"""Sequences at once where no limit is known."""
SATURATED: Final = 2
"""So many times what it works on at once, in flight, and a replica is never short of work."""
NO_MORE: Final = 1.005
"""With twice as many in flight it does so much more, or it has no more to give."""
MOST_BUSY: Final = 4_000
WAITS: Final = ("runtime", "service", "ttft")
METRICS: Final = {"runtime": "runtime", "service": "service", "ttft": "ttft", "itl_mean": "itl_mean"}


class TimeBound(NamedTuple):
    """What a simulated request's time is held against, or the mean of all of them."""

    metric: str
    bound_s: float
    mean: bool = False


def in_system(asked: ClusterLoad, residence_s: float, patience_s: float) -> float:
    """Requests in one round: those in flight, or all that come while one that just keeps its bounds is there.

    Where more comes than is served, a queue grows until it is as long as the bounds allow: in less time than that, none
    would be seen to.
    """
    return asked.users if asked.users is not None else (asked.rate or 0.0) * max(residence_s, patience_s)


def horizon(asked: ClusterLoad, residence_s: float, patience_s: float = 0.0) -> int:
    """Requests that count in one simulated run: 24 rounds, within bounds."""
    return int(min(MOST, max(FEWEST, math.ceil(ROUNDS * in_system(asked, residence_s, patience_s)))))


class Replica(Protocol):
    """A fitted replica, of which a cluster can have any number."""

    @property
    def certain(self) -> bool:
        """Whether runs do not depend on a seed."""
        ...

    @property
    def factors(self) -> tuple[float, ...]:
        """On the bounds of each objective: what calibration found."""
        ...

    @property
    def tokens(self) -> float | None:
        """Of an answer, the mean; None where they are not known."""
        ...

    def run(self, asked: ClusterLoad, replicas: int, *, seed: int = 1, requests: int | None = None) -> Trial:
        """A load on so many replicas, to be judged by bounds of any width, before what calibration corrects."""
        ...

    def residence_s(self, in_flight: float) -> float:
        """Mean time in service of a request with so many on its replica."""
        ...

    def at_work_s(self, asked: ClusterLoad, replicas: int) -> float:
        """The same with the load on so many of it."""
        ...

    @property
    def most_per_s(self) -> float:
        """Requests per second that it serves with more in flight than it can do with."""
        ...

    @property
    def patience_s(self) -> float:
        """The longest that a request may take by the bounds; 0 where none is on a time from when it is due."""
        ...

    def scaled(self, factors: Sequence[float]) -> Replica:
        """The same with the bounds of each objective multiplied by a factor."""
        ...


class Trial(Protocol):
    """One simulated run whose requests are kept."""

    @property
    def in_flight(self) -> float:
        """Mean of requests in flight."""
        ...

    @property
    def runtime_s(self) -> float:
        """Mean; not a number without a request that ended ok."""
        ...

    def share(self, number: int, stretch: float) -> float:
        """Attainment of an objective with its bound multiplied by ``stretch``."""
        ...


@dataclass(frozen=True, eq=False)
class Values:
    """A trial of which every request's value is known.

    Attributes:
        ratios: values over bounds, ascending, one array per objective; without those that count nowhere.
        means: of each objective, whether its bound is the mean's.
        in_flight: mean of requests in flight.
        runtime_s: mean.
    """

    ratios: Sequence[NDArray[np.float64]]
    means: Sequence[bool]
    in_flight: float = math.nan
    runtime_s: float = math.nan

    @classmethod
    def of(
        cls,
        ratios: NDArray[np.float64],
        means: Sequence[bool] | None = None,
        *,
        in_flight: float = math.nan,
        runtime_s: float = math.nan,
    ) -> Values:
        """From values over bounds in any order, shape (objectives, n), NaN where one counts nowhere."""
        import numpy as np

        known = [np.sort(each[~np.isnan(each)]) for each in ratios]
        return cls(known, means or (False,) * len(ratios), in_flight, runtime_s)

    def share(self, number: int, stretch: float) -> float:
        """See ``Trial``."""
        import numpy as np

        known = self.ratios[number]
        if self.means[number]:
            return mean_kept(float(known.mean()) / stretch) if known.size else 0.0
        return float(np.searchsorted(known, stretch, "right")) / max(1, known.size)


def load(asked: ClusterLoad, residence_s: float, patience_s: float, requests: int | None) -> dict[str, Any]:
    """The load as the core takes it."""
    if asked.users is None:
        arrivals: dict[str, Any] = {"open": {"rate_per_s": asked.rate, "process": asked.process}}
    else:
        closed: dict[str, Any] = {"users": max(1, round(asked.users)), "stagger_s": residence_s + asked.think_s}
        if asked.think != "none" and asked.think_s > 0:
            closed |= {"think_s": asked.think_s, "think": asked.think}
        arrivals = {"closed": closed}
    return {
        "arrivals": arrivals,
        "requests": requests or horizon(asked, residence_s, patience_s),
        "warmup_requests": math.ceil(WARMUP_ROUNDS * in_system(asked, residence_s, patience_s)),
    }


class Rated:
    """What every replica knows from its rates with 1, 2, ... active requests, shape (k,)."""

    rates: NDArray[np.float64]
    bounds: Sequence[TimeBound]

    @property
    def in_progress(self) -> NDArray[np.float64]:
        """Requests per second with 1, 2, ... of them on a replica; the rates, where it works on all of these."""
        return self.rates

    @property
    def most_per_s(self) -> float:
        """See ``Replica``."""
        return float(self.in_progress.max())

    @property
    def patience_s(self) -> float:
        """See ``Replica``."""
        waits = (each.bound_s for each in self.bounds if each.metric in WAITS and math.isfinite(each.bound_s))
        return max(waits, default=0.0)

    def residence_s(self, in_flight: float) -> float:
        """See ``Replica``."""
        return residence_at(self.in_progress, in_flight)

    def at_work_s(self, asked: ClusterLoad, replicas: int) -> float:
        """See ``Replica``. At a rate, with the fewest in flight that were served at it, or at the largest."""
        import numpy as np

        if asked.users is not None:
            return self.residence_s(asked.users / replicas)
        rates = self.in_progress
        enough = rates >= min((asked.rate or 0.0) / replicas, float(rates.max()))
        return self.residence_s(1.0 + float(np.argmax(enough)))


@dataclass(frozen=True, eq=False)
class Batching(Rated):
    """A replica that serves with continuous batching.

    Attributes:
        service: costs and limits.
        bounds: one per objective, or per part of a joint one; metrics of ``METRICS``.
        joint: whether one share is asked for of requests that keep all bounds.
        prompt_tokens: measured prompts, shape (n,).
        output_tokens: the answers to them, shape (n,).
        rates: requests per second by active requests, for first guesses.
        factors: on the bounds of each objective: what calibration found.
        cached_tokens: of each prompt's tokens, those that cost nothing, shape (n,); None: all cost.
    """

    service: Service
    bounds: Sequence[TimeBound]
    joint: bool
    prompt_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    rates: NDArray[np.float64]
    factors: tuple[float, ...] = (1.0,)
    certain: bool = False
    cached_tokens: NDArray[np.uint32] | None = None

    @property
    def tokens(self) -> float:
        """See ``Replica``."""
        return float(self.output_tokens.mean())

    @cached_property
    def most_per_s(self) -> float:
        """See ``Replica``. Simulated, for the rates know nothing of what was not measured."""
        users = max(self.rates.size, SATURATED * (self.service.max_batch or 1))
        found, more = 0.0, self._served_per_s(users)
        # Without a limit ever more are worked on at once, each time for a little more.
        while more > NO_MORE * found and users < MOST_BUSY:
            users *= 2
            found, more = more, max(more, self._served_per_s(users))
        return more

    def _served_per_s(self, users: int) -> float:
        _, summary = self._run(ClusterLoad(users=users), 1, 1, None)
        return float(json.loads(summary)["rate_per_s"])

    def run(self, asked: ClusterLoad, replicas: int, *, seed: int = 1, requests: int | None = None) -> Values:
        """See ``Replica``."""
        import numpy as np
        import polars as pl

        stream, summary = self._run(asked, replicas, seed, requests)
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        due, first, end = (rows[name].to_numpy() / 1e9 for name in ("due_ns", "first_token_ns", "end_ns"))
        gaps = rows["tokens_out"].to_numpy().astype(float) - 1
        known = {"runtime": end - due, "service": end - due, "ttft": first - due}
        with np.errstate(divide="ignore", invalid="ignore"):
            known["itl_mean"] = np.where(gaps >= 1, (end - first) / gaps, np.nan)
        found = np.array([known[each.metric] / each.bound_s for each in self.bounds])
        means = None if self.joint else [each.mean for each in self.bounds]
        told = {"in_flight": float(json.loads(summary)["in_flight"]), "runtime_s": float((end - due).mean())}
        return Values.of(np.fmax.reduce(found)[None, :] if self.joint else found, means, **told)

    def scaled(self, factors: Sequence[float]) -> Batching:
        """See ``Replica``."""
        return replace(self, factors=tuple(factors))

    def each_factor(self) -> Sequence[float]:
        """One factor for each bound."""
        return self.factors * len(self.bounds) if self.joint else self.factors

    def cluster(self, replicas: int, router: str, seed: int) -> dict[str, Any]:
        """So many of it as the core's simulated cluster."""
        service = self.service
        largest = int((self.prompt_tokens.astype(int) + self.output_tokens).max())
        whole = None if service.whole is None else dict(zip(("base_s", "delay_s"), service.whole, strict=True))
        return {
            "iteration_base_s": service.base_s,
            "iteration_per_sequence_s": service.per_sequence_s,
            "prefill_per_token_s": service.per_prompt_token_s,
            "noise_sigma": service.noise,
            # Of the tokens of an iteration, all but those of a chunk may be answers'.
            "max_batch": min(service.max_batch or MOST_AT_ONCE, service.batched_tokens or MOST_AT_ONCE),
            "static_batching": whole,
            "max_batched_tokens": service.batched_tokens,
            "prefill_servers": None if service.apart is None else service.apart.to_json(),
            "kv_blocks": max(service.kv_tokens or 2**31, largest),
            "kv_preemption": service.preempts,
            "kv_block_tokens": 1,
            "gpus": replicas,
            "router": router,
            "seed": seed,
        }

    def _run(self, asked: ClusterLoad, replicas: int, seed: int, requests: int | None) -> Any:
        config = self.cluster(replicas, asked.router, seed)
        asks = load(asked, self.at_work_s(asked, replicas), self.patience_s, requests)
        return core().simulate(
            json.dumps(config),
            json.dumps(asks),
            prompt_tokens=self.prompt_tokens.tobytes(),
            output_tokens=self.output_tokens.tobytes(),
            cached_tokens=None if self.cached_tokens is None else self.cached_tokens.tobytes(),
        )


def residence_at(rates: NDArray[np.float64], in_flight: float) -> float:
    """Mean residence by Little's law from the rates with 1, 2, ... active."""
    import numpy as np

    k = max(1.0, in_flight)
    known = np.arange(1, rates.size + 1)
    return float(k / np.interp(k, known, rates))


def stretched(bounds: Sequence[TimeBound], factors: Sequence[float]) -> list[TimeBound]:
    """Bounds times factors."""
    return [each._replace(bound_s=each.bound_s * factor) for each, factor in zip(bounds, factors, strict=True)]


def judge(bounds: Sequence[TimeBound]) -> str:
    """What the core is to judge."""
    return json.dumps({"bounds": [{"metric": METRICS[each.metric], "bound_s": each.bound_s} for each in bounds]})
