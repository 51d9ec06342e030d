"""Who answers: estimators by name, each with its own way to spend the budget.

An estimator gets a probe, the question and the budget, and answers with an ``Estimate`` in GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from benches.estimates.probe import Probe
from benches.estimates.question import Visible
from benches.estimates.twin import auto, twin
from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Estimate, Question, estimate

__all__ = ["JUDGED", "METHODS", "Estimator"]

Estimator = Callable[[Probe, Visible, int], Estimate]

LOOKS = 10


def _question(visible: Visible) -> Question:
    return Question(users=visible.load, slos=visible.slos, gpus_per_replica=visible.gpus_per_replica)


def slope(probe: Probe, visible: Visible, _budget: int) -> Estimate:
    """The sizing calculator's way: 1, 2, 4, 8, 16 and 32 requests in flight, two passes each."""
    if visible.users is None:
        return Estimate("slope", 1, visible.load, reason="there is no closed-loop level to estimate from")
    levels = [probe.measure(c, requests=c, passes=True) for c in (1, 2, 4, 8, 16, 32) for _ in range(2)]
    return estimate(levels, _question(visible), "slope")[0]


def crossing(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """Doubling until an SLO is missed, then halving the gap until the budget is spent; no model."""
    if visible.users is None:
        return Estimate("crossing", 1, visible.load, reason="there is no closed-loop level to estimate from")
    return estimate(_edge(probe, budget, visible.slos), _question(visible), "crossing")[0]


def scaling(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """The stand-in for rates, from figures of closed loops: what users get whose runs have no requests to look at."""
    if visible.rate is None:
        return Estimate("scaling", 1, visible.load, reason="there is no rate")
    levels = _edge(probe, budget, visible.slos, closed=True)
    question = Question(
        0,
        visible.slos,
        visible.gpus_per_replica,
        rate=visible.rate,
        process=visible.process,
        router=visible.router,
    )
    return estimate(levels, question, "scaling")[0]


def load_match(probe: Probe, visible: Visible, budget: int) -> Estimate:
    """AIConfigurator's rule (0.12, `--target-concurrency` and `--target-request-rate`), by measurements.

    Of the batch sizes whose mean latencies keep the bounds the one that needs the fewest replicas, ceil(load / what one
    replica has of it). It knows neither quantiles nor pauses. Its own latencies come from a database of GPUs and
    models, in which these clusters are not; here they are measured, as by ``crossing``.
    """
    means = tuple(replace(slo, kind="mean", share=1.0) if slo.kind == "percentile" else slo for slo in visible.slos)
    levels = _edge(probe, budget, means, closed=True)
    kept = [level for level in levels if all(level.met(slo) for slo in means)]
    if not kept:
        return Estimate("load_match", 1, visible.load, reason="not even a single request keeps the means of all SLOs")
    each = max(float(level.concurrency or 0) if visible.rate is None else _per_second(level) for level in kept)
    raw = visible.load / each
    gpus = max(1, math.ceil(raw)) * visible.gpus_per_replica
    return Estimate("load_match", 1, visible.load, gpus=gpus, gpus_raw=raw * visible.gpus_per_replica)


def _per_second(level: LevelData) -> float:
    """Requests per second of a closed loop without pauses, by Little's law."""
    took = level.steady("end_ns", "sent_ns").select((pl.col("end_ns") - pl.col("sent_ns")).mean() / 1e9)
    return float(level.concurrency or 0) / float(took.collect().item())


def _edge(probe: Probe, budget: int, slos: Sequence[Slo], *, closed: bool = False) -> list[LevelData]:
    """Levels of a search for the most in flight that keep the SLOs."""
    levels: list[LevelData] = []
    low, high, c = 0, 0, 1
    while probe.left > 0:
        # A look lasts a tenth of the budget, and eight rounds at least: the first and the last of them do not count.
        requests = min(probe.left, max(budget // LOOKS, 8 * c))
        if requests < 4 * c:
            break
        levels.append(probe.measure(c, requests=requests, closed=closed))
        met = all(levels[-1].met(slo) for slo in slos)
        low, high = (c, high) if met else (low, c)
        following = (2 * c if not high else (low + high) // 2) or 1
        if following in (low, high):
            # Both ends are known: again the one that was looked at longer ago.
            following = low if c == high and low else high
        c = following
    return levels


METHODS: Mapping[str, Estimator] = {
    "slope": slope,
    "load_match": load_match,
    "crossing": crossing,
    "scaling": scaling,
    "twin": twin,
    "auto": auto,
}
"""By the name in the table; the last one is the default, as users get it who name no method."""
JUDGED = ("slope", "load_match", "crossing", "auto")
"""Who is judged when nobody is named: the default is the twin in all but the few scenarios in which it falls back."""
