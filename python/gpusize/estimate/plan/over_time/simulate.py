"""A whole trace on replicas that come and go, in virtual time, and who was served within the SLOs."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.engine.session import core
from gpusize.estimate.plan.over_time.policies import Schedule
from gpusize.estimate.question import as_share
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.simulate import Batching, judge, stretched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.demand import Demand
    from gpusize.estimate.twin.simulate import Replica, TimeBound

__all__ = ["Decided", "Served", "Worst", "serve", "serve_scaled", "with_lengths"]

NS_PER_S: Final = 1e9
STEP_S: Final = 10.0
"""Requests are counted in steps of this length, by when they were due."""
MOST_STEPS: Final = 200_000
SPAN_S: Final = 300.0
"""The worst stretch of the trace is so long."""
FEWEST: Final = 20
"""A stretch with fewer requests says little, unless there is none with more."""
ROUNDS: Final = 12
LEAST: Final = 600


@dataclass(frozen=True, slots=True)
class Worst:
    """The stretch in which the smallest share was served within an SLO: when it begins, its share and requests."""

    at_s: float
    share: float
    requests: int


@dataclass(frozen=True, eq=False)
class Served:
    """How a trace fared.

    Attributes:
        step_s: length of a step.
        requests: that were due in each step, shape (n,).
        kept: of these, those that kept each objective, shape (objectives, n); of a mean the sum of ``mean_kept``.
        draining_s: replicas times seconds in which removed ones finished what they had.
    """

    step_s: float
    requests: NDArray[np.float64]
    kept: NDArray[np.float64]
    draining_s: float

    def shares(self) -> tuple[float, ...]:
        """The share of all requests that kept each objective; of a mean ``mean_kept``, which may be above 1."""
        return tuple((self.kept.sum(axis=1) / max(1.0, self.requests.sum())).tolist())

    def worst(self, objective: int, span_s: float = SPAN_S) -> Worst:
        """The worst ``span_s`` for an objective, whole steps; of all of it where it is shorter."""
        import numpy as np

        came, kept = self._moving(objective, span_s)
        enough = came >= min(FEWEST, came.max())
        share = np.where(enough, kept / np.maximum(came, 1), np.inf)
        at = int(np.argmin(share))
        return Worst(at * self.step_s, as_share(float(share[at])), int(came[at]))

    def rolling(self, objective: int, span_s: float = SPAN_S) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ends of all stretches of ``span_s``, and the share within an objective in each; NaN without requests."""
        import numpy as np

        came, kept = self._moving(objective, span_s)
        wide = self.requests.size - came.size + 1
        with np.errstate(invalid="ignore"):
            share: NDArray[np.float64] = np.clip(kept / np.where(came > 0, came, np.nan), 0.0, 1.0)
        ends = np.arange(wide, wide + came.size, dtype=np.float64) * self.step_s
        return ends, share

    def _moving(self, objective: int, span_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Requests, and those of them that kept an objective, in all stretches of ``span_s``."""
        wide = max(1, min(self.requests.size, round(span_s / self.step_s)))
        return _sums(self.requests, wide), _sums(self.kept[objective], wide)

    def between(self, edges_s: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Requests, shape (m,), and those that kept each objective, shape (objectives, m), between times."""
        import numpy as np

        places = np.minimum(np.round(np.asarray(edges_s[:-1]) / self.step_s).astype(int), self.requests.size - 1)
        return np.add.reduceat(self.requests, places), np.add.reduceat(self.kept, places, axis=1)


@dataclass(frozen=True, slots=True)
class Decided:
    """What an autoscaler decided, and what came of having no replica.

    Attributes:
        decisions: of the HPA, by their reason.
        polls: of KEDA, by what they found; empty without KEDA.
        held: requests that came while no replica took any, and waited for one.
        refused: those that were refused.
        longest_s: the longest that one waited.
    """

    decisions: Mapping[str, int]
    polls: Mapping[str, int]
    held: int = 0
    refused: int = 0
    longest_s: float = 0.0


def serve(
    replica: Replica, demand: Demand, schedule: Schedule, *, router: str, slowness: float = 1.0, seed: int = 1
) -> Served:
    """Simulate the requests of a trace.

    Args:
        replica: what is simulated.
        demand: the requests.
        schedule: how many replicas are asked for from when on.
        router: which replica a request goes to.
        slowness: factor on all times of a replica.
        seed: key of all draws.

    Raises:
        UsageError: a replica that cannot be simulated.
    """
    config = {
        "replicas": [
            {"at_s": at_ns / NS_PER_S / slowness, "replicas": asked}
            for at_ns, asked in zip(schedule.at_ns.tolist(), schedule.asked.tolist(), strict=True)
        ],
        "start_delay_s": schedule.start_delay_s / slowness,
    }
    return _serve(replica, demand, config, _How(router, schedule.peak, slowness, seed))[0]


def serve_scaled(
    replica: Replica,
    demand: Demand,
    autoscaler: Autoscaler,
    first: int,
    *,
    start_delay_s: float,
    router: str,
    slowness: float = 1.0,
    seed: int = 1,
) -> tuple[Served, Schedule, Decided]:
    """Simulate the requests of a trace on replicas that an autoscaler adds and removes.

    Args:
        replica: what is simulated.
        demand: the requests.
        autoscaler: its policy and signals.
        first: replicas that are ready at first; may be none.
        start_delay_s: from when a replica is asked for to when it takes requests.
        router: which replica a request goes to.
        slowness: factor on all times of a replica.
        seed: key of all draws.

    Returns:
        How the requests fared, the replicas that were asked for within the trace, and what was decided.

    Raises:
        UsageError: a replica or a policy that cannot be simulated.
    """
    import numpy as np

    config = {"replicas": [{"at_s": 0.0, "replicas": max(1, first)}], "start_delay_s": start_delay_s / slowness}
    how = _How(router, autoscaler.most, slowness, seed, autoscaler.to_json(first, slowness, demand.duration_s))
    served, told = _serve(replica, demand, config, how)
    steps = [each for each in told["steps"] if each["at_s"] < demand.duration_s]
    at_ns = np.rint(np.array([0.0, *(each["at_s"] for each in steps)]) * NS_PER_S).astype(np.int64)
    asked = np.array([first, *(each["replicas"] for each in steps)], np.int64)
    decided = Decided(dict(told["decisions"]), dict(told.get("polls", {})), **told["fronted"])
    return served, Schedule(at_ns, asked, start_delay_s), decided


@dataclass(frozen=True, slots=True)
class _How:
    """How a trace is simulated: router, the most replicas, factor on all times, key of the draws, who scales."""

    router: str
    peak: int
    slowness: float
    seed: int
    autoscaler: str | None = None


def _serve(replica: Replica, demand: Demand, config: dict[str, Any], how: _How) -> tuple[Served, Any]:
    """How the requests fared, and what the autoscaler did; None without one."""
    import numpy as np

    # All times longer by a factor are the same as load, schedule and bounds in a time that runs as much faster.
    due = np.rint(demand.due_ns / how.slowness).astype("<i8")
    step_s = max(STEP_S, math.ceil(demand.duration_s / MOST_STEPS))
    steps = max(1, math.ceil(demand.duration_s / step_s))
    if not isinstance(replica, (Batching, Flow)):
        raise UsageError("this replica cannot be simulated", None, "fit one for a rate")
    run = _batching if isinstance(replica, Batching) else _flow
    requests, kept, told = run(replica, demand, due, config, how, step_s)
    whole = np.zeros((1 + len(kept), steps))
    for row, values in zip(whole, [requests, *kept], strict=True):
        row[: len(values)] = values[:steps]
    return Served(step_s, whole[0], whole[1:], told["draining_s"] * how.slowness), told.get("scaling")


def _batching(
    replica: Any, demand: Demand, due: NDArray[np.int64], config: dict[str, Any], how: _How, step_s: float
) -> tuple[Any, list[Any], Any]:
    import numpy as np

    slowness = how.slowness
    lengths = replica.prompt_tokens, replica.output_tokens
    own = demand.tokens is not None and demand.tokens.shape[1] == due.size
    if own and demand.tokens is not None:
        lengths = demand.tokens[0], demand.tokens[1]
    bounds = stretched(replica.bounds, [each / slowness for each in replica.each_factor()])
    asking = json.loads(judge(bounds))
    cluster = {**replica.cluster(how.peak, how.router, how.seed), **config}
    # A request that never fitted was never measured either: the limit is what held requests together.
    largest = int((lengths[0].astype(np.int64) + lengths[1]).max())
    cluster["kv_blocks"] = max(cluster["kv_blocks"], largest)
    _, told = _aside(
        lambda: core().simulate(
            json.dumps(cluster),
            json.dumps({"arrivals": "plan"}),
            due=due.tobytes(),
            prompt_tokens=np.ascontiguousarray(lengths[0], "<u4").tobytes(),
            output_tokens=np.ascontiguousarray(lengths[1], "<u4").tobytes(),
            resample=not own,
            judge=json.dumps({**asking, "every_s": step_s / slowness}),
            autoscaler=how.autoscaler,
            rows=False,
        )
    )
    return _counted(json.loads(told), bounds, joint=replica.joint)


def _counted(told: Any, bounds: Sequence[TimeBound], *, joint: bool) -> tuple[Any, list[Any], Any]:
    """Requests by step, how many of them kept each objective (of a mean ``mean_kept`` of each), and what was told."""
    import numpy as np

    found = told["judged"]
    steps = found["steps"]
    requests = np.array(steps["requests"], float)

    def of_all(total: Any) -> float:
        # Who has no such metric is in no share: the steps know only how many that are of all.
        judged = total["within"] + total["over"]
        return float(requests.sum() / judged) if judged else 1.0

    if joint:
        return requests, [np.minimum(of_all(found["all"]) * np.array(steps["within_all"], float), requests)], told
    kept = []
    for bound, total, within, sums_s in zip(bounds, found["bounds"], steps["within"], steps["sums_s"], strict=True):
        if bound.mean:
            kept.append(2 * requests - of_all(total) * np.array(sums_s, float) / bound.bound_s)
        else:
            kept.append(np.minimum(of_all(total) * np.array(within, float), requests))
    return requests, kept, told


def _flow(
    replica: Any, _demand: Demand, due: NDArray[np.int64], config: dict[str, Any], how: _How, step_s: float
) -> tuple[Any, list[Any], Any]:
    import numpy as np
    import polars as pl

    slowness = how.slowness
    bounds = stretched(replica.bounds, [each / slowness for each in replica.factors])
    asking = json.loads(judge(bounds)) if replica.whole else {}
    stream, text = _aside(
        lambda: core().simulate_flow(
            json.dumps({**replica.cluster(how.peak, how.router, how.seed), **config}),
            json.dumps({"arrivals": "plan"}),
            replica.sizes.tobytes(),
            tasks=replica.tasks(slowness),
            due=due.tobytes(),
            judge=json.dumps({**asking, "every_s": step_s / slowness}) if replica.whole else None,
            autoscaler=how.autoscaler,
            rows=not replica.whole,
        )
    )
    told = json.loads(text)
    if replica.whole:
        return _counted(told, bounds, joint=False)
    rows = pl.DataFrame(stream)
    step = (rows["due_ns"].to_numpy() * slowness / NS_PER_S / step_s).astype(int)
    kept = [np.bincount(step, each) for each in replica.kept(rows, 1.0 / slowness)]
    return np.bincount(step).astype(float), kept, told


def with_lengths(replica: Batching, tokens: NDArray[np.uint32]) -> Batching:
    """The same replica for requests of other lengths, shape (2, n): its rates are simulated anew."""
    from dataclasses import replace

    import numpy as np

    from gpusize.estimate.twin.load import ClusterLoad

    chosen = replace(replica, prompt_tokens=tokens[0].copy(), output_tokens=tokens[1].copy())
    most = replica.rates.size
    users = sorted({*(2**n for n in range(most.bit_length())), most})
    held = []
    for count in users:
        found = chosen.run(ClusterLoad(users=count), 1, requests=max(LEAST, ROUNDS * count))
        held.append(found.runtime_s)
    residence = np.maximum.accumulate(held)
    known = np.arange(1, most + 1)
    return replace(chosen, rates=known / np.interp(known, users, residence))


def _aside(call: Callable[[], Any]) -> Any:
    """What a call gives that may take minutes in the core: beside the main thread, so that Ctrl-C ends the wait."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 -- it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="gpusize-over-time", daemon=True).start()
    return done.result()


def _sums(values: NDArray[np.float64], wide: int) -> NDArray[np.float64]:
    """Of each stretch of so many values; whole numbers stay exact."""
    import numpy as np

    sums = np.concatenate([[0.0], np.cumsum(values)])
    found: NDArray[np.float64] = sums[wide:] - sums[:-wide]
    return found
