"""Questions with known answers: drawn from a seed, so that nobody can have chosen them.

What is drawn first is the answer: how many replicas, and where between two whole numbers the need for them lies. Then
come the mechanism, the load and the SLOs; last the bound, as the quantile that the cluster shows where its edge is to
be. The answer that counts is not the drawn one but ``benches.estimates.truth``'s.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benches.estimates.mechanics import FOREIGN, Shape, foreign_world, log_uniform, own_world
from benches.estimates.question import Visible, metric_ns
from benches.estimates.refused import refused
from benches.estimates.worlds import Router, Rows, World
from gpusize.slo import Slo

__all__ = ["Expected", "Scenario", "draw", "horizon"]

Expected = Literal["answer", "single", "flat", "never"]

MIN_COUNTED = 4_000
MAX_COUNTED = 100_000
COUNTED_ROUNDS = 24
WARMUP_ROUNDS = 4
BUDGET_REQUESTS = 4_000
BUDGET_ROUNDS = 40
NO_ANSWER = 0.08
FOREIGN_SHARE = 0.48
FEELS = 1.12
"""What the percentile rises by at least from 0.8 to 1.25 of the edge: a quarter as fast as the load."""
ATTEMPTS = 60


@dataclass(frozen=True)
class Scenario:
    """A cluster, a question about it, and what may be spent on the answer.

    Attributes:
        name: seed and number.
        kind: ``own`` or the name of a foreign mechanism.
        traits: what else is special about it, for tables.
        world: the replicas' nature. Hidden from estimators.
        visible: the question.
        expects: ``answer``, or why there is none: ``single`` (one request alone misses an SLO), ``flat`` (nothing that
            the budget can measure comes near an SLO), ``never`` (replicas slow each other down too much).
        hint: the replicas that were drawn; near the truth.
        edge: users (or rate) per replica at the drawn edge.
        per_load: requests in flight, thinking users included, per user (1) or per request/s.
        budget: requests that an estimator may send, warm-up included.
    """

    name: str
    kind: str
    traits: tuple[str, ...]
    world: World
    visible: Visible
    expects: Expected
    hint: int
    edge: float
    per_load: float
    budget: int

    @property
    def foreign(self) -> bool:
        """Whether its mechanism is not the project's own model."""
        return self.kind != "own"

    def rounds(self, load: float) -> float:
        """Requests of a round at a load on the whole cluster: one per user, or per request in flight."""
        return max(1.0, load * self.per_load)

    def digest(self) -> str:
        """A name for what the truth depends on."""
        what = {"world": self.world.to_json(), "asked": self.visible.to_json(), "per_load": self.per_load}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def horizon(scenario: Scenario, load: float) -> tuple[int, int]:
    """(counted requests, warm-up requests) over which an answer must hold."""
    each = scenario.rounds(load)
    counted = int(np.clip(math.ceil(COUNTED_ROUNDS * each), MIN_COUNTED, MAX_COUNTED))
    return counted, math.ceil(WARMUP_ROUNDS * each)


def draw(seed: int, count: int, *, first: int = 0) -> list[Scenario]:
    """``count`` scenarios, from number ``first`` on; a pure function of the seed and of each one's number."""
    return [_one(seed, number) for number in range(first, first + count)]


def _one(seed: int, number: int) -> Scenario:
    lot = np.random.default_rng([seed, number, 10_000])
    without = lot.random() < NO_ANSWER
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([seed, number, attempt])
        found = _attempt(rng, f"{seed}/{number}")
        if found is not None:
            return refused(lot, found) if without else found
    raise AssertionError(f"no scenario after {ATTEMPTS} attempts: seed {seed}, number {number}")


def _truth_to_be(rng: np.random.Generator) -> tuple[int, float]:
    """Replicas, two thirds at most 20, and how much of the last one is needed."""
    low, high = (1, 21) if rng.random() < 2 / 3 else (21, 501)
    return int(log_uniform(rng, low, high)), float(rng.uniform(0.03, 1))


def _attempt(rng: np.random.Generator, name: str) -> Scenario | None:
    """A scenario whose SLO feels the load; None where this draw has none."""
    contended = rng.random() < 0.12
    replicas, part = _truth_to_be(rng)
    if contended:
        replicas = int(log_uniform(rng, 2, 13))
    open_loop = rng.random() < 0.33
    kind = str(rng.choice(list(FOREIGN))) if rng.random() < FOREIGN_SHARE else "own"
    users = round(log_uniform(rng, 10, 10_000))
    edge = users / (replicas - 1 + part)
    if not 2 <= edge <= 400:
        return None
    visible, thinking = _loop(rng, users, open_loop=open_loop)
    lengths = _lengths(rng, kind)
    shape = Shape.draw(rng, max(1.2, edge / (1 + thinking)), lengths)
    contention = {"sigma": log_uniform(rng, 0.01, 0.1), "kappa": float(rng.choice([0, 0.001]))} if contended else None
    pauses = kind != "own" and rng.random() < 0.25
    world = (
        own_world(rng, shape, contention)
        if kind == "own"
        else foreign_world(rng, kind, shape, contention, pauses=pauses)
    )
    few = contended or rng.random() < 0.12
    visible = replace(
        visible,
        think_s=thinking * shape.output * shape.base_s * 1.5,
        replicas=(1, 2, 4) if few else (1,),
        gpus_per_replica=int(rng.choice([1, 2, 4, 8], p=[0.88, 0.05, 0.04, 0.03])),
    )
    traits = [lengths, *(["contention"] if contention else []), *(["pauses"] if pauses else [])]
    scenario = Scenario(name, kind, tuple(traits), world, visible, "answer", replicas, edge, 1.0, 0)
    if open_loop:
        opened = _opened(rng, scenario, part)
        if opened is None:
            return None
        scenario = opened
    return _with_slos(rng, _with_budget(scenario))


def _with_budget(scenario: Scenario) -> Scenario:
    at_edge = scenario.rounds(scenario.edge * scenario.visible.replicas[0])
    return replace(scenario, budget=max(BUDGET_REQUESTS, math.ceil(BUDGET_ROUNDS * at_edge)))


def _loop(rng: np.random.Generator, users: int, *, open_loop: bool) -> tuple[Visible, float]:
    """The load of the question without its SLOs, and think time over runtime."""
    routers: list[Router] = ["least_loaded", "round_robin", "random"]
    router = routers[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    if open_loop:
        poisson = rng.random() < 0.75
        return Visible((), rate=1.0, process="poisson" if poisson else "constant", router=router), 0.0
    think = rng.choice(3, p=[0.6, 0.15, 0.25])
    if think == 0:
        return Visible((), users=users, router=router), 0.0
    return Visible((), users=users, think="fixed" if think == 1 else "exponential", router=router), log_uniform(
        rng, 0.3, 4
    )


def _lengths(rng: np.random.Generator, kind: str) -> str:
    if kind == "own":
        return str(rng.choice(["fixed", "lognormal", "geometric", "uniform"], p=[0.2, 0.45, 0.2, 0.15]))
    return str(rng.choice(["fixed", "lognormal", "geometric", "bimodal", "trace"], p=[0.1, 0.3, 0.15, 0.2, 0.25]))


def _opened(rng: np.random.Generator, scenario: Scenario, part: float) -> Scenario | None:
    """The open loop at a share of what a replica can do at most."""
    visible, replicas = scenario.visible, scenario.hint
    # What a cluster of this size answers with as many in flight as the edge has.
    closed = replace(visible, users=1, rate=None)
    many = max(2, round(2 * scenario.edge))
    rows = scenario.world.run(closed.world_load(many, 1500 + 4 * many, 3 * many), gpus=1, seed=17)
    best = _throughput(rows)
    if visible.replicas[-1] > 1 and replicas > 1:
        rows = scenario.world.run(
            closed.world_load(many * replicas, 1500 + 4 * many, 3 * many * replicas), gpus=replicas, seed=17
        )
        best = min(best, _throughput(rows) / replicas)
    edge = best * float(rng.uniform(0.5, 0.92))
    rate = float(f"{edge * (replicas - 1 + part):.3g}")
    visible = replace(visible, rate=rate)
    rows = scenario.world.run(visible.world_load(edge * replicas, 4000, 1000), gpus=replicas, seed=18)
    residence_s = float(((rows.end_ns - rows.due_ns)[~rows.warmup]).mean()) / 1e9
    if not 10 <= rate * residence_s <= 20_000:
        return None
    return replace(scenario, visible=visible, edge=edge, per_load=residence_s)


def _throughput(rows: Rows) -> float:
    counted = np.sort(rows.end_ns[~rows.warmup])
    inner = counted[len(counted) // 10 : -max(1, len(counted) // 10)]
    return float((len(inner) - 1) / (inner[-1] - inner[0]) * 1e9)


# ------------------------------------------------------------------------------------------------ SLOs

_KINDS = {
    "p95 runtime": 0.40,
    "p99 runtime": 0.14,
    "p90 runtime": 0.06,
    "p95 ttft": 0.14,
    "p95 itl": 0.06,
    "several": 0.12,
    "goodput": 0.08,
}


def _with_slos(rng: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """The scenario with bounds that its cluster keeps up to its edge; None where its times do not feel the load."""
    at_edge = _rows(scenario, 1.0)
    kinds, shares = list(_KINDS), np.array(list(_KINDS.values()))
    asked = str(rng.choice(kinds, p=shares / shares.sum()))
    if scenario.kind == "sharing" and asked not in ("p99 runtime", "p90 runtime"):
        asked = "p95 runtime"
    slos = _bounds(rng, scenario, asked, at_edge)
    if slos is None or not _feels(scenario, at_edge, slos[0]):
        return None
    goodput = asked == "goodput"
    if goodput:
        slos = _joint(slos, at_edge)
    if "contention" in scenario.traits and not _more_helps(scenario, slos):
        return None
    traits = (*scenario.traits, asked)
    return replace(scenario, visible=replace(scenario.visible, slos=slos, goodput=goodput), traits=traits)


def _more_helps(scenario: Scenario, slos: Sequence[Slo]) -> bool:
    """Whether the load of the question is kept by the drawn number of replicas and by more, and not by fewer."""

    def kept(replicas: int) -> bool:
        share = scenario.visible.load / (scenario.edge * scenario.hint)
        rows = _rows(scenario, share, replicas)
        values = [(_quantile_s(rows, slo.metric, slo.share), slo.bound) for slo in slos]
        return all(value is not None and value <= 1.002 * bound for value, bound in values)

    hint = scenario.hint
    return all(kept(n) for n in (hint, hint + 1, 2 * hint + 4)) and not kept(hint - 1)


def _rows(scenario: Scenario, share: float, replicas: int | None = None) -> Rows:
    """A run at a share of the edge of the drawn number of replicas, with that many or with others."""
    load = scenario.edge * scenario.hint * share
    if scenario.visible.users is not None:
        load = max(1.0, round(load))
    counted, warmup = horizon(scenario, load)
    asked = scenario.visible.world_load(load, min(counted, 30_000), warmup)
    return scenario.world.run(asked, gpus=replicas or scenario.hint, seed=101)


def _quantile_s(rows: Rows, metric: str, share: float) -> float | None:
    values = metric_ns(rows, metric)[~rows.warmup]
    values = values[~np.isnan(values)]
    return float(np.quantile(values, share, method="inverted_cdf")) / 1e9 if values.size > 100 else None


def _slo(metric: str, share: float, value_s: float) -> Slo:
    """The bound with four digits, not below the value: a time that many requests share is kept by them."""
    step = 10.0 ** (math.floor(math.log10(value_s)) - 3)
    return Slo("percentile", metric, share, "<=", float(f"{math.ceil(value_s / step * (1 - 1e-12)) * step:.4g}"))


def _bounds(rng: np.random.Generator, scenario: Scenario, asked: str, at_edge: Rows) -> tuple[Slo, ...] | None:
    """SLOs, the one that binds first."""
    share = float(rng.choice([0.9, 0.95, 0.99]))
    wanted: Sequence[tuple[str, float]] = {
        "p95 runtime": [("runtime", 0.95)],
        "p99 runtime": [("runtime", 0.99)],
        "p90 runtime": [("runtime", 0.9)],
        "p95 ttft": [("ttft", 0.95)],
        "p95 itl": [("itl_mean", 0.95)],
        "several": [("runtime", 0.95), ("ttft", 0.99)] if share > 0.9 else [("ttft", 0.95), ("runtime", 0.99)],
        "goodput": [("runtime", share), ("ttft", share)],
    }[asked]
    found = []
    for place, (metric, prob) in enumerate(wanted):
        # The others bind later, or about at the same load.
        slack = float(rng.uniform(1.0, 1.5))
        rows = at_edge if place == 0 else _rows(scenario, slack)
        value_s = _quantile_s(rows, metric, prob)
        if value_s is None or value_s <= 0:
            return None
        found.append(_slo(metric, prob, value_s))
    return tuple(found)


def _joint(slos: tuple[Slo, ...], at_edge: Rows) -> tuple[Slo, ...]:
    """Bounds that the share of requests keeps at once at the edge: all made wider by one factor."""
    counted = ~at_edge.warmup
    worst = np.max([np.nan_to_num(metric_ns(at_edge, slo.metric)[counted]) / (slo.bound * 1e9) for slo in slos], axis=0)
    factor = float(np.quantile(worst, slos[0].share, method="inverted_cdf"))
    return tuple(_slo(slo.metric, slo.share, slo.bound * factor) for slo in slos)


def _feels(scenario: Scenario, at_edge: Rows, slo: Slo) -> bool:
    """Whether the percentile rises around the edge, a quarter as fast as the load at least: it is there to be found."""
    middle = _quantile_s(at_edge, slo.metric, slo.share)
    below, above = (_quantile_s(_rows(scenario, share), slo.metric, slo.share) for share in (0.8, 1.25))
    if middle is None or below is None or above is None:
        return False
    return above > FEELS * below and below < 0.98 * middle and middle < 0.98 * above
