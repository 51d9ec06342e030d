"""Whether tuned settings hold: ``python -m benches.autoscale --only tune [--worlds 1-40]``.

For each of 40 simulated worlds a policy is tuned from one day's arrivals and a measured replica. Then twenty days that
nothing was chosen by come to the world itself: they are kept or not, and cost so much. Beside it stand settings by lot,
500 of them, each tried on the world itself: the cheapest that keeps 19 of the same twenty days is the best of them, an
oracle that has seen what it is judged by. And the settings that are published for such servers.

Worlds 1 to 40 are for judging. Who changes the search does so on others, such as 1001 to 1024.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
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
from gpusize.estimate.plan.autoscale.setting import Setting
from gpusize.estimate.plan.over_time.policies import ScalingRules

__all__ = ["tune_worlds"]

DAYS = 20
WORST_KEPT, MOST_OVER = 0.95, 1.05
PRESETS = ("queue 1 + running 16", "running 16", "waiting 1")


@dataclass(frozen=True)
class Fared:
    """What a policy came to on unseen days: mean replica-hours, how many were kept, the mean share within."""

    hours: float
    kept: int
    share: float


@dataclass(frozen=True)
class Told:
    """What was found in one world, of each way; and what was said of the tuned one: replica-hours, share of days."""

    seed: int
    requests: int
    policy: str
    tuned: Fared | None
    best: Fared | None
    presets: tuple[Fared, ...]
    said: tuple[float, float] | None = None
    in_doubt: bool = False
    why: str = ""


def _days(world_: World, policy: Autoscaler) -> Fared:
    fates: list[Fate] = [world_.fate(policy, 1 + day) for day in range(DAYS)]
    return Fared(
        float(np.mean([fate.hours for fate in fates])),
        sum(fate.kept for fate in fates),
        float(np.mean([fate.share for fate in fates])),
    )


def _best(world_: World, policy: Autoscaler, settings: int) -> Fared | None:
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
        fared = _days(world_, other)
        if fared.kept >= DAYS - 1:
            return fared
    return None


def _world(seed: int, requests: int, settings: int) -> Told:
    made = world(seed, requests)
    policies = [preset(name, made.most) for name in PRESETS]
    known = tuple(_days(made, each) for each in policies)
    # By turns each of them is the policy that is tuned.
    policy = policies[seed % len(policies)]
    with tempfile.TemporaryDirectory() as place:
        run = made.folder(Path(place) / "runs")
        day = made.recorded(Path(place) / "day.csv")
        rules = ScalingRules(start_delay_s=made.start_delay_s)
        tuned = tune_autoscaler(run, day, policy, rules=rules, seed=seed)
    told = Told(seed, int(made.due(0).size), policy.name, None, _best(made, policy, settings), known)
    told = replace(told, in_doubt=tuned.unseen is not None)
    if tuned.policy is None or tuned.after is None:
        return replace(told, why=tuned.found.reason or "no setting keeps the SLOs")
    said = tuned.after.gpu_hours, tuned.after.kept / tuned.after.days
    return replace(told, tuned=_days(made, tuned.policy), said=said)


def tune_worlds(
    report: Report, worlds: Sequence[int] = range(1, 41), requests: int = 6000, settings: int = 500
) -> None:
    """Tune in so many worlds, print the table and the bars.

    Args:
        report: where tables and bars go.
        worlds: their seeds.
        requests: in a day, about.
        settings: by lot, in each world.
    """
    found: list[Told] = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_world, seed, requests, settings) for seed in worlds]
        for each in waiting:
            told = each.result()
            found.append(told)
            say(
                f"world {told.seed}, {told.requests:,} requests, {told.policy}: "
                f"tuned {told.tuned}, said {told.said}, best {told.best} {told.why}"
            )
    answered = [each for each in found if each.tuned is not None]
    mine = [each.tuned for each in answered if each.tuned is not None]
    kept = np.array([each.kept for each in mine], float) / DAYS
    ratios = _ratios(mine, [each.best for each in answered])
    rows: list[list[object]] = [_row("tuned", mine, [each.best for each in answered])]
    for place, name in enumerate(PRESETS):
        rows.append(
            _row(f"as published: {name}", [each.presets[place] for each in found], [each.best for each in found])
        )
    note = (
        f"{len(found)} worlds, {DAYS} days of some {requests:,} requests in each that nothing was chosen by; "
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
    _said_and_seen(report, answered)
    _failed(report, found)
    report.bar(Bar("tune_days_kept", _mean(kept), WORST_KEPT, "of the days", at_least=True))
    report.bar(Bar("tune_replica_hours", bootstrap_median(ratios), MOST_OVER, "times the best"))


def _said_and_seen(report: Report, answered: Sequence[Told]) -> None:
    """What was said of tuned settings against what unseen days in the world itself came to."""
    rows: list[list[object]] = []
    groups = {
        "all": answered,
        "the batch's limit was measured": [each for each in answered if not each.in_doubt],
        "it was not": [each for each in answered if each.in_doubt],
    }
    for name, some in groups.items():
        pairs = [(each.said, each.tuned) for each in some if each.said is not None and each.tuned is not None]
        if not pairs:
            continue
        said = float(np.mean([share for (_, share), _ in pairs]))
        seen = _mean(np.array([fared.kept / DAYS for _, fared in pairs]))
        over = float(np.median([hours / fared.hours for (hours, _), fared in pairs]))
        interval = f"{seen.lo:.1%} to {seen.hi:.1%}"
        rows.append([name, len(pairs), f"{said:.1%}", f"{seen.value:.1%}", interval, plain(over)])
    header = ["worlds", "number", "days kept, said", "seen", "95% interval", "replica-hours said over seen, median"]
    note = "Said: on simulated days of the fitted replica, by which nothing was chosen. Seen: on the world itself."
    report.table("what is said of tuned settings, and what was seen", header, rows, note)


def _failed(report: Report, found: Sequence[Told]) -> None:
    """The worlds without a setting, or whose settings did not keep 19 of 20 days."""
    rows: list[list[object]] = []
    for each in found:
        limit = "not measured" if each.in_doubt else "measured"
        if each.tuned is None:
            rows.append([each.seed, each.policy, limit, "", "", "", each.why])
        elif each.tuned.kept < DAYS - 1:
            said = "" if each.said is None else f"{each.said[1]:.0%}"
            kept = f"{each.tuned.kept} of {DAYS}"
            rows.append([each.seed, each.policy, limit, said, kept, f"{each.tuned.share:.2%}", ""])
    if rows:
        header = ["world", "policy", "the batch's limit", "days kept, said", "seen", "share within, mean", "no setting"]
        report.table("worlds in which tuned settings did not hold", header, rows)


def _ratios(mine: Sequence[Fared], best: Sequence[Fared | None]) -> list[float]:
    return [each.hours / other.hours for each, other in zip(mine, best, strict=True) if other is not None]


def _row(name: str, mine: Sequence[Fared], best: Sequence[Fared | None]) -> list[object]:
    low, middle, high = np.quantile(_ratios(mine, best), [0.25, 0.5, 0.75])
    kept = np.array([each.kept for each in mine])
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
