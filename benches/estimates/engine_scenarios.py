"""Questions about engines of language models: the second family, written apart from what is judged on it.

A scenario is drawn in two steps. A sketch is all that chance decides: a pure function of the seed, without any
simulation. Then the sketch is settled: the simulation says where its bounds lie, or that its times do not feel the
load; then the next sketch is taken. Like the first family's the answer comes first, and the bound last.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from benches.estimates.engines import KINDS, Replica
from benches.estimates.mechanics import log_uniform
from benches.estimates.question import Visible, metric_ns, share_kept
from benches.estimates.refused import refused
from benches.estimates.scenario import Scenario, horizon
from benches.estimates.scenarios import opened, truth_to_be, with_budget
from benches.estimates.slos import bound_above, feels, joint, quantile_s, rows_at
from benches.estimates.worlds import ForeignWorld, Process, Router, Rows, Think, WorldLoad
from gpusize.analysis.slo import Slo

__all__ = ["Sketch", "draw", "found_at", "sketch_of"]

NO_ANSWER = 0.08
OPEN_SHARE = 0.33
SEVERAL_COUNTS = 0.12
USERS = (8, 10_000)
ATTEMPTS = 300
TOLD = 0.04
"""How well a run of the budget's size on one replica tells the place of the edge: relative, at most (standard error).

4,000 independent requests tell a p95 of times that just feel the load as well as that. Requests that share iterations
are not independent: here it is measured, over ``RUNS`` runs.
"""
RUNS = 10
_NORMAL = NormalDist()

_Part = tuple[str, float | None]
"""A metric and the share of requests that its bound asks for; None: the bound is on the mean."""

_ASKED: dict[str, tuple[float, Sequence[_Part]]] = {
    "p95 runtime": (0.16, [("runtime", 0.95)]),
    "p99 runtime": (0.10, [("runtime", 0.99)]),
    "p90 runtime": (0.04, [("runtime", 0.9)]),
    "p50 runtime": (0.04, [("runtime", 0.5)]),
    "mean runtime": (0.03, [("runtime", None)]),
    "p95 ttft": (0.15, [("ttft", 0.95)]),
    "p99 ttft": (0.09, [("ttft", 0.99)]),
    "p50 ttft": (0.04, [("ttft", 0.5)]),
    "p95 itl": (0.10, [("itl_mean", 0.95)]),
    "p99 itl": (0.04, [("itl_mean", 0.99)]),
    "p50 itl": (0.03, [("itl_mean", 0.5)]),
    "ttft and itl": (0.06, [("ttft", 0.95), ("itl_mean", 0.95)]),
    "runtime and ttft": (0.04, [("runtime", 0.95), ("ttft", 0.99)]),
    "goodput of ttft and itl": (0.05, [("ttft", 0.95), ("itl_mean", 0.95)]),
    "goodput of runtime and ttft": (0.03, [("runtime", 0.9), ("ttft", 0.9)]),
}


@dataclass(frozen=True)
class Sketch:
    """All of a scenario that chance decides.

    Attributes:
        replicas: that are to be the answer.
        part: how much of the last one is needed.
        replica: what one is.
        router: of the question.
        process: gaps of an open loop; None in a closed one.
        busy: share of its best throughput that a replica has at the edge, in an open loop.
        think: spread of think times.
        thinking: think time over the time in the cluster.
        counts: replicas that can be had for measuring.
        asked: kind of the SLOs.
        slacks: how much more load than the first the other SLOs carry, as a factor.
    """

    replicas: int
    part: float
    replica: Replica
    router: Router
    process: Process | None
    busy: float
    think: Think
    thinking: float
    counts: tuple[int, ...]
    asked: str
    slacks: tuple[float, ...]

    @property
    def edge(self) -> float:
        """Users per replica at the edge of a closed loop."""
        return self.replica.in_flight * (1 + self.thinking)

    @property
    def users(self) -> int:
        """Of the whole question, in a closed loop."""
        return round(self.edge * (self.replicas - 1 + self.part))

    def digest(self) -> str:
        """A name for all of it, but for the last digits of numbers, which are the machine's."""
        what = _short({**vars(self), "replica": vars(self.replica)})
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return f"{value:.9g}" if isinstance(value, float) else value


def draw(seed: int, count: int, *, first: int = 0) -> list[Scenario]:
    """``count`` scenarios, from number ``first`` on; a pure function of the seed and of each one's number."""
    return [found_at(seed, number)[1] for number in range(first, first + count)]


def found_at(seed: int, number: int) -> tuple[int, Scenario]:
    """A scenario, and the attempt that it was found at."""
    lot = np.random.default_rng([seed, number, 10_000])
    without = lot.random() < NO_ANSWER
    for attempt in range(ATTEMPTS):
        sketch = sketch_of(seed, number, attempt)
        found = sketch and _settled(sketch, f"{seed}/{number}")
        if found:
            return attempt, refused(lot, found) if without else found
    raise AssertionError(f"no scenario after {ATTEMPTS} attempts: seed {seed}, number {number}")


def sketch_of(seed: int, number: int, attempt: int) -> Sketch | None:
    """What chance decides; None where it is a question that nobody asks."""
    # What is asked of which kind of replica stays from attempt to attempt, or questions that are seldom settled were
    # rare.
    lot = np.random.default_rng([seed, number, 20_000])
    replicas, part = truth_to_be(lot)
    open_loop = lot.random() < OPEN_SHARE
    kind = str(lot.choice(list(KINDS), p=list(KINDS.values())))
    kinds = list(_ASKED)
    asked = str(lot.choice(kinds, p=np.array([share for share, _ in _ASKED.values()])))
    rng = np.random.default_rng([seed, number, attempt])
    thinks: list[Think] = ["none", "fixed", "exponential"]
    think = thinks[int(rng.choice(3, p=[0.6, 0.13, 0.27]))]
    if open_loop:
        think = "none"
    thinking = 0.0 if think == "none" else log_uniform(rng, 0.3, 3)
    most = USERS[1] / ((1 + thinking) * (replicas - 1 + part))
    replica = Replica.draw(rng, kind, most)
    routers: list[Router] = ["least_loaded", "round_robin", "random"]
    router = routers[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    process: Process = "poisson" if rng.random() < 0.8 else "constant"
    found = Sketch(
        replicas=replicas,
        part=part,
        replica=replica,
        router=router,
        process=process if open_loop else None,
        busy=float(rng.uniform(0.45, 0.92)),
        think=think,
        thinking=thinking,
        counts=(1, 2, 4) if rng.random() < SEVERAL_COUNTS else (1,),
        asked=asked,
        slacks=tuple(float(rng.uniform(1.0, 1.5)) for _ in _ASKED[asked][1][1:]),
    )
    return found if USERS[0] <= found.users <= USERS[1] else None


def _settled(sketch: Sketch, name: str) -> Scenario | None:
    """The scenario with its load and its bounds; None where its times do not feel the load."""
    replica = sketch.replica
    world = ForeignWorld(replica.spec)
    visible = Visible(
        (),
        users=None if sketch.process else sketch.users,
        rate=1.0 if sketch.process else None,
        process=sketch.process or "poisson",
        think=sketch.think,
        router=sketch.router,
        replicas=sketch.counts,
        gpus_per_replica=replica.gpus,
    )
    if sketch.thinking:
        alone = WorldLoad(users=max(1, round(replica.in_flight)), requests=2000, warmup_requests=500)
        rows = world.run(alone, gpus=1, seed=16)
        residence_s = float((rows.end_ns - rows.due_ns)[~rows.warmup].mean()) / 1e9
        visible = replace(visible, think_s=float(f"{sketch.thinking * residence_s:.3g}"))
    scenario: Scenario | None = Scenario(
        name, replica.kind, _traits(sketch), world, visible, "answer", sketch.replicas, sketch.edge, 1.0, 0
    )
    assert scenario is not None
    if sketch.process:
        scenario = opened(scenario, sketch.part, sketch.busy)
    return scenario and _with_slos(with_budget(scenario), sketch)


def _traits(sketch: Sketch) -> tuple[str, ...]:
    parts = _ASKED[sketch.asked][1]
    special = {
        "several counts": len(sketch.counts) > 1,
        "p99": any(share == 0.99 for _, share in parts),
        "TTFT": any(metric == "ttft" for metric, _ in parts),
        "ITL": any(metric == "itl_mean" for metric, _ in parts),
        "long prompts of 2,048 tokens and more": _middle(sketch.replica.spec) >= 2048,
        "thinks": sketch.thinking > 0,
    }
    return (*sketch.replica.traits, *(name for name, there in special.items() if there), sketch.asked)


def _middle(spec: dict[str, Any]) -> float:
    """Median of the prompts."""
    return float(np.median([prompt for prompt, _ in spec["lengths"]["pairs"]]))


def _with_slos(scenario: Scenario, sketch: Sketch) -> Scenario | None:
    at_edge = rows_at(scenario, 1.0)
    slos: list[Slo] = []
    for (metric, share), slack in zip(_ASKED[sketch.asked][1], (1.0, *sketch.slacks), strict=True):
        slo = _bound(at_edge if slack == 1 else rows_at(scenario, slack), metric, share)
        if slo is None:
            return None
        slos.append(slo)
    if not (feels(scenario, slos[0]) and _told(scenario, slos[0])):
        return None
    goodput = sketch.asked.startswith("goodput")
    found = joint(tuple(slos), at_edge) if goodput else tuple(slos)
    return replace(scenario, visible=replace(scenario.visible, slos=found, goodput=goodput))


def _told(scenario: Scenario, slo: Slo) -> bool:
    """Whether the budget tells the place of the edge: the spread of runs there, over how fast attainment falls."""

    def score(share: float, seed: int) -> float:
        load = max(1, round(scenario.edge * share)) if scenario.visible.users else scenario.edge * share
        warmup = horizon(scenario, load)[1]
        rows = scenario.world.run(scenario.visible.world_load(load, scenario.budget, warmup), gpus=1, seed=seed)
        least = 0.5 / scenario.budget
        return _NORMAL.inv_cdf(float(np.clip(share_kept(rows, slo), least, 1 - least)))

    scores = np.array([[score(share, 300 + run) for share in (0.8, 1.0, 1.25)] for run in range(RUNS)])
    falls = float(scores[:, 0].mean() - scores[:, 2].mean()) / math.log(1.25 / 0.8)
    return falls > 0 and float(scores[:, 1].std(ddof=1)) <= TOLD * falls


def _bound(rows: Rows, metric: str, share: float | None) -> Slo | None:
    """What these rows just keep; None where there is hardly anything to keep."""
    if share is None:
        mean_s = float(np.nanmean(metric_ns(rows, metric)[~rows.warmup])) / 1e9
        return Slo("mean", metric, 1.0, "<=", float(f"{mean_s:.4g}"))
    value_s = quantile_s(rows, metric, share)
    return bound_above(metric, share, value_s) if value_s else None
