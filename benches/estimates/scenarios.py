"""Questions with known answers: drawn from a seed, so that nobody can have chosen them.

What is drawn first is the answer: how many replicas, and where between two whole numbers the need for them lies. Then
come the mechanism, the load and the SLOs; last the bound, as the quantile that the cluster shows where its edge is to
be. The answer that counts is not the drawn one but ``benches.estimates.truth``'s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from benches.estimates.mechanics import FOREIGN, Shape, foreign_world, log_uniform, own_world
from benches.estimates.question import Visible
from benches.estimates.refused import refused
from benches.estimates.scenario import Scenario, horizon
from benches.estimates.slos import with_slos
from benches.estimates.worlds import Router, Rows

__all__ = ["NO_ANSWER", "Scenario", "draw", "horizon", "opened", "truth_to_be", "with_budget"]

BUDGET_REQUESTS = 4_000
BUDGET_ROUNDS = 40
NO_ANSWER = 0.08
FOREIGN_SHARE = 0.48
OPEN_SHARE = 0.33
ATTEMPTS = 60


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


def truth_to_be(rng: np.random.Generator) -> tuple[int, float]:
    """Replicas, two thirds at most 20, and how much of the last one is needed."""
    low, high = (1, 21) if rng.random() < 2 / 3 else (21, 501)
    return int(log_uniform(rng, low, high)), float(rng.uniform(0.03, 1))


def _attempt(rng: np.random.Generator, name: str) -> Scenario | None:
    """A scenario whose SLO feels the load; None where this draw has none."""
    contended = rng.random() < 0.12
    replicas, part = truth_to_be(rng)
    if contended:
        replicas = int(log_uniform(rng, 2, 13))
    open_loop = rng.random() < OPEN_SHARE
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
    special = {
        "contention": contention is not None,
        "pauses": pauses,
        "noise": shape.noise_sigma > 0,
        "several counts": few,
    }
    traits = [lengths, *(name for name, there in special.items() if there)]
    scenario = Scenario(name, kind, tuple(traits), world, visible, "answer", replicas, edge, 1.0, 0)
    if open_loop:
        opened_up = opened(scenario, part, float(rng.uniform(0.5, 0.92)))
        if opened_up is None:
            return None
        scenario = opened_up
    return with_slos(rng, with_budget(scenario))


def with_budget(scenario: Scenario) -> Scenario:
    """With what an estimator may spend."""
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
    if kind == "sharing":
        return str(rng.choice(["fixed", "lognormal", "geometric", "bimodal"], p=[0.15, 0.4, 0.2, 0.25]))
    kinds = ["fixed", "lognormal", "geometric", "bimodal", "trace", "uniform"]
    # A foreign mechanism has no uniform lengths.
    shares = [0.15, 0.35, 0.1, 0.15, 0.2, 0.05] if kind == "own" else [0.12, 0.35, 0.13, 0.18, 0.22, 0.0]
    return str(rng.choice(kinds, p=shares))


def opened(scenario: Scenario, part: float, busy: float) -> Scenario | None:
    """The open loop at a share of what a replica can do at most; None where that is hardly anything in flight."""
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
    edge = best * busy
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
