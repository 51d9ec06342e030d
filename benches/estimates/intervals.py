"""How far intervals are to be widened: ``python -m benches.estimates.intervals [--count 60]``.

On seeds of both families that nothing is judged on: how far the half of an interval would have to reach so that the
whole numbers in it hold a right count, by model and situation. Of the (kappa, delta), kappa at least 1, under which
92 or 95 % of a group hold, the table shows those with the smallest median width, and beside them what those in force
(``gpusize.estimate.twin.conformal``) do on the same seeds: many pairs hold as many at nearly one width, so the two are
to be compared by what they hold and how wide they are, not by their numbers.
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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benches.estimates.families import FAMILIES
from benches.estimates.foreign import worlds_program
from benches.estimates.probe import Probe
from benches.estimates.truth import NoTruth, truth
from benches.estimates.twin import question_of, twin
from gpusize.estimate.twin.conformal import SCALES
from gpusize.estimate.twin.load import ClusterLoad, Situation

SEEDS = "3,4,11,12,13,14"
ENGINES_SEEDS = "21,22,23,24"
COUNT = 60
SHARES = (0.92, 0.95)
"""Of a group that are to hold."""
LEAST = 1.0
"""Kappa: an interval is never narrower than chance alone makes it."""
DELTAS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
"""Without any, an interval that was calculated as nothing would stay nothing, however large kappa is."""


class Score(NamedTuple):
    """One answer: logarithms.

    Attributes:
        model: that answered.
        situation: of the load.
        below: how far below the unrounded count the interval must reach to hold a right count; 0 or less where it does
            whatever its width.
        above: likewise above.
        less: half the interval below, as it was calculated.
        more: half the interval above.
    """

    model: str
    situation: Situation
    below: float
    above: float
    less: float
    more: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benches.estimates.intervals")
    parser.add_argument("--seeds", default=SEEDS, help="of the first family")
    parser.add_argument("--engines-seeds", default=ENGINES_SEEDS, help="of the second")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    worlds_program()
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    families = (("mechanisms", options.seeds), ("engines", options.engines_seeds))
    tasks = [(f, int(s), n) for f, seeds in families for s in seeds.split(",") if s for n in range(options.count)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        scores = [each for each in pool.map(_score, tasks, chunksize=2) if each is not None]
    groups: dict[tuple[str, Situation], list[Score]] = defaultdict(list)
    for each in scores:
        groups[each.model, each.situation].append(each)
    for (model, situation), found in sorted(groups.items()):
        held, in_force = held_and_width(found, *SCALES.get((model, situation), (1.0, 0.0)))
        print(f"{model:10} {situation:8} n={len(found):3}  in force: {held:.1%} hold, width {in_force:.1%}")
        for share in SHARES:
            width, kappa, delta = widened(found, share)
            print(f"{'':19} {share:.0%} hold: kappa {kappa:.2f}  delta {delta:.3f}  width {width:.1%}")
    return 0


def held_and_width(scores: Sequence[Score], kappa: float, delta: float) -> tuple[float, float]:
    """Which share holds a right count under these, and the median width."""
    need, half = _needs(scores)
    less, more = (kappa * np.hypot([getattr(each, side) for each in scores], delta) for side in ("less", "more"))
    held = float(np.mean(need <= kappa * np.hypot(half, delta)))
    return held, float(np.median(np.exp(more) - np.exp(-less)))


def widened(scores: Sequence[Score], share: float) -> tuple[float, float, float]:
    """The smallest median width with its kappa and delta under which such a share holds."""
    need, half = _needs(scores)
    found = []
    for delta in DELTAS:
        # The quantile of n scores that the next one keeps with this chance: (n + 1) (1 - alpha) of n.
        rank = min(1.0, share * (1 + 1 / need.size))
        kappa = max(LEAST, float(np.quantile(need / np.hypot(half, delta), rank, method="higher")))
        found.append((held_and_width(scores, kappa, delta)[1], kappa, delta))
    return min(found)


def _needs(scores: Sequence[Score]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far each interval must reach, 0 where it holds anyhow, and its half on that side; shapes (n,)."""
    need = np.array([max(each.below, each.above, 0.0) for each in scores])
    return need, np.array([each.more if each.above >= each.below else each.less for each in scores])


def _score(task: tuple[str, int, int]) -> Score | None:
    """One scenario; None without a truth or an answer."""
    family, seed, number = task
    [scenario] = FAMILIES[family].draw(seed, 1, first=number)
    try:
        known = truth(scenario)
    except NoTruth:
        return None
    probe = Probe(scenario, 10_000 * seed + number)
    answer = twin(probe, scenario.visible, scenario.budget)
    if not known.right or answer.gpus_raw is None or "halves" not in answer.details:
        return None
    visible = scenario.visible
    load = ClusterLoad.asked_by(question_of(visible))
    less, more = (9.0 if each is None else each for each in answer.details["halves"])
    raw = answer.gpus_raw / visible.gpus_per_replica
    return Score(str(answer.details["model"]), load.situation, *reaches(raw, known.right), less, more)


def reaches(raw: float, right: Sequence[int]) -> tuple[float, float]:
    """How far below and above an unrounded count its interval must reach, so that its whole numbers hold a right one.

    An interval from a to b holds the whole numbers from a rounded up to b rounded up.
    """
    least, most = min(right), max(right)
    return math.log(raw / most), math.log((least - 1) / raw) if least > 1 else -math.inf


if __name__ == "__main__":
    sys.exit(main())
