"""How far intervals are to be widened: ``python -m benches.estimates.intervals [--count 60]``.

On seeds that nothing is judged on: errors of the twin's answers over the halves of the intervals that it calculates,
by model. Of the (kappa, delta) under which 95 % hold the table shows those with the smallest median width, and beside
them what those in force (``gpusize.estimate.twin.conformal``) do on the same seeds: many pairs hold 95 % at nearly one
width, so the two are to be compared by what they hold and how wide they are, not by their numbers.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benches.estimates.foreign import worlds_program
from benches.estimates.probe import Probe
from benches.estimates.scenarios import draw
from benches.estimates.truth import NoTruth, truth
from benches.estimates.twin import twin
from gpusize.estimate.twin.conformal import SCALES

SEEDS = "3,4,11,12,13,14"
COUNT = 60
SHARE = 0.95
DELTAS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12)
"""Without any, an interval that was calculated as nothing would stay nothing, however large kappa is."""

Score = tuple[str, bool, float, float, float]
"""Model, even, error of the logarithm of the count, lower and upper half of its interval."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benches.estimates.intervals")
    parser.add_argument("--seeds", default=SEEDS)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    worlds_program()
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    tasks = [(int(seed), number) for seed in options.seeds.split(",") for number in range(options.count)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        scores = [each for each in pool.map(_score, tasks, chunksize=2) if each is not None]
    groups: dict[tuple[str, bool], list[Score]] = defaultdict(list)
    for each in scores:
        groups[each[0], each[1]].append(each)
    for (model, even), found in sorted(groups.items()):
        width, kappa, delta = _widened(found)
        held, in_force = _in_force(found, *SCALES.get((model, even), (1.0, 0.0)))
        print(
            f"{model:10} even={even!s:5} n={len(found):3}  kappa {kappa:.2f}  delta {delta:.2f}  width {width:.1%}"
            f"  in force: {held:.1%} hold, width {in_force:.1%}"
        )
    return 0


def _in_force(scores: Sequence[Score], kappa: float, delta: float) -> tuple[float, float]:
    """Which share holds under these, and the median width."""
    error, low, high = (np.array([each[k] for each in scores]) for k in (2, 3, 4))
    less, more = (kappa * np.hypot(half, delta) for half in (low, high))
    held = float(np.mean((-less <= error) & (error <= more)))
    return held, float(np.median(np.exp(more) - np.exp(-less)))


def _widened(scores: Sequence[Score]) -> tuple[float, float, float]:
    """The smallest median width with its kappa and delta."""
    error = np.array([each[2] for each in scores])
    low, high = (np.array([each[k] for each in scores]) for k in (3, 4))
    found = []
    for delta in DELTAS:
        half = np.hypot(np.where(error < 0, low, high), delta)
        # The quantile of n scores that the next one keeps with this chance: (n + 1) (1 - alpha) of n.
        rank = min(1.0, SHARE * (1 + 1 / error.size))
        kappa = float(np.quantile(np.abs(error) / half, rank, method="higher"))
        width = float(np.median(np.exp(kappa * np.hypot(high, delta)) - np.exp(-kappa * np.hypot(low, delta))))
        found.append((width, kappa, delta))
    return min(found)


def _score(task: tuple[int, int]) -> Score | None:
    """One scenario; None without a truth or an answer."""
    seed, number = task
    [scenario] = draw(seed, 1, first=number)
    try:
        known = truth(scenario)
    except NoTruth:
        return None
    probe = Probe(scenario, 10_000 * seed + number)
    answer = twin(probe, scenario.visible, scenario.budget)
    if known.gpus_raw is None or answer.gpus_raw is None or "halves" not in answer.details:
        return None
    visible = scenario.visible
    even = visible.users is not None and visible.think == "none" and visible.router == "least_loaded"
    less, more = (9.0 if each is None else each for each in answer.details["halves"])
    error = math.log(known.gpus_raw * visible.gpus_per_replica / answer.gpus_raw)
    return str(answer.details["model"]), even, error, less, more


if __name__ == "__main__":
    sys.exit(main())
