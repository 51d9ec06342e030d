"""Whether tuned settings hold: ``python -m benches.autoscale --only tune [--worlds 40]``.

For each of 40 simulated worlds a policy is tuned from one day's arrivals and a measured replica. Then twenty days that
nothing was chosen by come to the world itself: they are kept or not, and cost so much. Beside it stand settings by lot,
500 of them, each tried on the world itself: the cheapest that keeps 19 of the same twenty days is the best of them, an
oracle that has seen what it is judged by. And the settings that are published for such servers.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benches.autoscale.tuned_worlds import Fate, World, preset, world
from benches.lib.bars import Bar
from benches.lib.context import say
from benches.lib.results import Report
from benches.lib.stats import Interval, bootstrap_median, plain
from gpusize.api.tune import tune_autoscaler
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
from gpusize.estimate.plan.autoscale.tune import Setting
from gpusize.estimate.plan.over_time.policies import ScalingRules

__all__ = ["tune_worlds"]

DAYS = 20
WORST_KEPT, MOST_OVER = 0.95, 1.05
PRESETS = ("queue 1 + running 16", "running 16", "waiting 1")


@dataclass(frozen=True)
class Told:
    """What was found in one world: replica-hours and days kept of each way."""

    seed: int
    requests: int
    tuned: tuple[float, int] | None
    best: tuple[float, int] | None
    presets: tuple[tuple[float, int], ...]
    why: str = ""


def _days(world_: World, policy: Autoscaler) -> tuple[float, int]:
    fates: list[Fate] = [world_.fate(policy, 1 + day) for day in range(DAYS)]
    return float(np.mean([fate.hours for fate in fates])), sum(fate.kept for fate in fates)


def _best(world_: World, policy: Autoscaler, settings: int) -> tuple[float, int] | None:
    """The cheapest setting by lot that keeps 19 of the days."""
    rnd = random.Random(world_.seed)
    peak = world_.most
    tried: list[tuple[float, Autoscaler]] = []
    for _ in range(settings):
        setting = Setting(2 ** rnd.uniform(-4, 4), rnd.choice((60, 120, 300, 600)), rnd.randint(1, peak))
        other = setting.on(policy)
        fate = world_.fate(other, 1)
        if fate.share >= 0.93:
            tried.append((fate.hours, other))
    for _, other in sorted(tried, key=lambda each: each[0]):
        hours, kept = _days(world_, other)
        if kept >= DAYS - 1:
            return hours, kept
    return None


def _world(seed: int, requests: int, settings: int) -> Told:
    made = world(seed, requests)
    policies = [preset(name, made.most) for name in PRESETS]
    known = tuple(_days(made, each) for each in policies)
    with tempfile.TemporaryDirectory() as place:
        run = made.folder(Path(place) / "runs")
        day = made.recorded(Path(place) / "day.csv")
        rules = ScalingRules(start_delay_s=made.start_delay_s)
        # By turns each of them is the policy that is tuned.
        policy = policies[seed % len(policies)]
        tuned = tune_autoscaler(run, day, policy, rules=rules, seed=seed)
    count = int(made.due(0).size)
    best = _best(made, policy, settings)
    if tuned.policy is None:
        return Told(seed, count, None, best, known, tuned.found.reason or "no setting keeps the SLOs")
    return Told(seed, count, _days(made, tuned.policy), best, known)


def tune_worlds(report: Report, worlds: int = 40, requests: int = 6000, settings: int = 500) -> None:
    """Tune in so many worlds, print the table and the bars.

    Args:
        report: where tables and bars go.
        worlds: how many.
        requests: in a day, about.
        settings: by lot, in each world.
    """
    found: list[Told] = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_world, seed, requests, settings) for seed in range(1, worlds + 1)]
        for each in waiting:
            told = each.result()
            found.append(told)
            say(
                f"world {told.seed} of {worlds}, {told.requests:,} requests: "
                f"tuned {told.tuned}, best {told.best} {told.why}"
            )
    answered = [each for each in found if each.tuned is not None]
    kept = np.array([each.tuned[1] for each in answered if each.tuned is not None], float) / DAYS
    pairs = [each for each in answered if each.best is not None and each.tuned is not None]
    ratios = [each.tuned[0] / each.best[0] for each in pairs if each.tuned is not None and each.best is not None]
    rows: list[list[object]] = [
        _row("tuned", [each.tuned for each in answered if each.tuned], [each.best for each in answered])
    ]
    for place, name in enumerate(PRESETS):
        rows.append(
            _row(f"as published: {name}", [each.presets[place] for each in found], [each.best for each in found])
        )
    note = (
        f"{worlds} worlds, {DAYS} days of some {requests:,} requests in each that nothing was chosen by; "
        f"{len(answered)} got a setting. Replica-hours over those of the best of {settings} settings by lot, which has "
        "seen the days."
    )
    header = [
        "settings",
        "days kept",
        "worlds with 19 of 20 days kept",
        "replica-hours over the best, median",
        "quartiles",
    ]
    report.table("settings of an autoscaler on unseen days", header, rows, note)
    report.bar(Bar("tune_days_kept", _mean(kept), WORST_KEPT, "of the days", at_least=True))
    report.bar(Bar("tune_replica_hours", bootstrap_median(ratios), MOST_OVER, "times the best"))


def _row(name: str, mine: Sequence[tuple[float, int]], best: Sequence[tuple[float, int] | None]) -> list[object]:
    ratios = [each[0] / other[0] for each, other in zip(mine, best, strict=True) if other is not None]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    kept = np.array([each[1] for each in mine])
    return [
        name,
        f"{kept.sum() / (DAYS * kept.size):.1%}",
        f"{int((kept >= DAYS - 1).sum())} of {kept.size}",
        plain(float(middle)),
        f"{plain(float(low))} to {plain(float(high))}",
    ]


def _mean(shares: np.ndarray) -> Interval:
    """The mean over worlds, with its bootstrap interval: days of one world stand and fall together."""
    rng = np.random.default_rng(1)
    means = shares[rng.integers(0, shares.size, size=(10_000, shares.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(shares.mean()), float(low), float(high))


if __name__ == "__main__":
    tune_worlds(Report(), *map(int, sys.argv[1:]))
