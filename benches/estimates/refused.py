"""Questions that have no answer, made from ones that have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benches.estimates.question import metric_ns
from benches.estimates.scenario import Scenario
from benches.estimates.worlds import ForeignWorld, OwnWorld, World
from gpusize.analysis.slo import Slo

__all__ = ["refused"]


def refused(rng: np.random.Generator, scenario: Scenario) -> Scenario:
    """The same cluster with a question to which the right answer is no number, with the reason drawn by lot."""
    kind = str(rng.choice(["single", "flat", "never"], p=[0.5, 0.3, 0.2]))
    if kind == "flat":
        return _flat(rng, scenario)
    if kind == "never" and scenario.visible.users is not None:
        return _never(scenario)
    return _single(scenario)


def _single(scenario: Scenario) -> Scenario:
    """The first SLO is missed by requests that have a replica for themselves."""
    slo, visible = scenario.visible.slos[0], scenario.visible
    alone = replace(visible, users=1, rate=None, think_s=0.0, think="none").world_load(1, 2000, 10)
    rows = scenario.world.run(alone, gpus=1, seed=33)
    values = metric_ns(rows, slo.metric)[~rows.warmup]
    # Far enough below that no share of luck meets it: half of the idle requests miss it.
    bound_s = float(np.nanquantile(values, min(0.5, slo.share / 2))) / 1e9 * 0.9
    first = replace(slo, bound=float(f"{bound_s:.3g}"))
    slos: tuple[Slo, ...] = (first, *visible.slos[1:])
    return replace(scenario, expects="single", visible=replace(visible, slos=slos))


def _flat(rng: np.random.Generator, scenario: Scenario) -> Scenario:
    """Requests take their time whatever the load, and there are far more users than the budget can bring in."""
    base_s = float(rng.uniform(0.2, 2))
    spec = {
        "mechanics": {
            "sharing": {
                "rates": [float(k) for k in range(1, 10_001)],
                "max_active": 1_000_000,
                "work": {"lognormal": {"median": base_s, "sigma": 0.3, "max": 10 * base_s}},
            }
        },
        "lengths": {"apart": {"prompt": {"fixed": {"value": 100}}, "output": {"fixed": {"value": 100}}}},
    }
    slo = Slo("percentile", "runtime", 0.95, "<=", float(f"{4 * base_s:.3g}"))
    visible = replace(scenario.visible, slos=(slo,), goodput=False, users=10_000, rate=None, think="none", think_s=0.0)
    return replace(
        scenario,
        kind="sharing",
        traits=("flat",),
        world=ForeignWorld(spec),
        visible=visible,
        expects="flat",
        hint=1,
        edge=100.0,
        per_load=1.0,
        budget=4000,
    )


def _never(scenario: Scenario) -> Scenario:
    """Replicas that slow each other down: from a few on, another one makes less of all of them."""
    contention = {"sigma": 0.25, "kappa": 0.03}
    world = scenario.world
    changed: World
    if isinstance(world, ForeignWorld):
        changed = ForeignWorld({**world.spec, "contention": contention})
    else:
        assert isinstance(world, OwnWorld)
        changed = replace(world, contention=contention)
    visible = replace(scenario.visible, users=10_000, replicas=(1, 2, 4))
    return replace(scenario, world=changed, visible=visible, expects="never")
