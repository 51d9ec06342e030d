"""Whether the search keeps its word: ``python -m benches.search [--seeds 301] [--count 60] [--precision 3%]``.

The whole adaptive procedure, growth, looks and stop rule, on simulated clusters in virtual time, again and again with
other draws; its interval is held against the capacity that long runs of the same cluster show. Tables go to standard
output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benches.estimates.probe import Probe
from benches.estimates.question import attainments, targets
from benches.estimates.scenarios import Scenario, draw
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.analysis.level import LevelData
from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.planner import Over, Planner
from gpusize.estimate.search.result import contradictions
from gpusize.estimate.search.visits import visits_of
from gpusize.estimate.twin.visit_data import Objective

SEEDS = (301,)
"""Of scenarios; the suite that judges estimates has others."""
COUNT = 60
SEARCHES = 4
"""Of each scenario, each with draws of its own."""
LONG_ROUNDS, LONG_REQUESTS, LONG_RUNS = 100, 20_000, 8
"""Of the runs that tell the truth: each lasts the longer of both, and there are so many at each load."""
COVERAGE = 0.92
FIXED = "fixed batches"
BUDGET = 10**9


@dataclass(frozen=True)
class Outcome:
    """One search: the truth, the answer, its interval, why it ended and what it cost."""

    scenario: str
    kind: str
    truth: float
    edge: float | None
    low: float
    high: float | None
    reason: str
    requests: int
    levels: int
    contradicts: bool

    @property
    def covers(self) -> bool:
        """Whether the interval holds the truth, to a thousandth: as well as that is known."""
        return self.low <= self.truth * 1.001 and (self.high is None or self.high >= self.truth / 1.001)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, print."""
    options = _options(arguments)
    terms = Adaptive(options.precision, options.budget)
    start_s = time.monotonic()
    tasks = [(seed, number, terms) for seed in options.seeds for number in range(options.count)]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(_scenario, tasks):
            outcomes += found
    report = Report()
    _tell(report, outcomes, terms)
    print(f"{time.monotonic() - start_s:.0f} s", file=sys.stderr)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _scenario(task: tuple[int, int, Adaptive]) -> list[Outcome]:
    seed, number, terms = task
    [scenario] = draw(seed, 1, first=number)
    if scenario.expects != "answer" or scenario.visible.rate is not None or scenario.visible.think != "none":
        return []
    truth = Truth(scenario).capacity()
    return [] if truth is None else [_searched(scenario, truth, k, terms) for k in range(SEARCHES)]


def objectives(scenario: Scenario) -> list[Objective]:
    """What the scenario's cluster is to keep."""
    slos = scenario.visible.slos
    return [Objective.joint(slos, slos[0].share)] if scenario.visible.goodput else [Objective.of(slo) for slo in slos]


def _searched(scenario: Scenario, truth: float, seed: int, terms: Adaptive) -> Outcome:
    probe, planner = Probe(scenario, seed, BUDGET), Planner(objectives(scenario), terms)
    levels: list[LevelData] = []
    while not isinstance(chosen := planner.next(visits := visits_of(levels, planner.objectives)), Over):
        levels.append(probe.measure(chosen.look.users, requests=chosen.requests, closed=True))
    found = planner.crossing(visits)
    doubt = bool(contradictions(planner, visits, found))
    ends = (found.capacity, found.low, found.high, chosen.reason)
    return Outcome(scenario.name, scenario.kind, truth, *ends, probe.spent, len(levels), doubt)


class Truth:
    """The capacity of the smallest measurable cluster, by long runs."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.replicas = scenario.visible.replicas[0]
        self.targets = np.array(targets(scenario.visible))
        self._seen: dict[int, NDArray[np.float64]] = {}

    def shares(self, users: int) -> NDArray[np.float64]:
        """Attainments, one per SLO, means over the runs."""
        if users not in self._seen:
            requests = max(LONG_REQUESTS, LONG_ROUNDS * users)
            load = self.scenario.visible.world_load(users, requests, 10 * users)
            rows = (self.scenario.world.run(load, gpus=self.replicas, seed=40_000 + k) for k in range(LONG_RUNS))
            self._seen[users] = np.mean([attainments(each, self.scenario.visible) for each in rows], axis=0)
        return self._seen[users]

    def keeps(self, users: int) -> bool:
        return bool((self.shares(users) >= self.targets).all())

    def capacity(self) -> float | None:
        """Between two whole numbers as `estimate.twin.routed_mixture` has it; None where a single user misses."""
        low = high = max(1, round(self.scenario.edge * self.replicas))
        step = max(1, low // 16)
        while self.keeps(high):
            low, high, step = high, high + step, 2 * step
        step = max(1, low // 16)
        while low >= 1 and not self.keeps(low):
            low, high, step = low - step, low, 2 * step
        if low < 1:
            if high == 1 or not self.keeps(1):
                return None
            low = 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.keeps(middle) else (low, middle)
        inside, outside = self.shares(low) - self.targets, self.shares(high) - self.targets
        parts = [a / (a - b) for a, b in zip(inside, outside, strict=True) if b < 0]
        return float(low * (low + 1) / (low + 1 - min(parts)))


def _tell(report: Report, outcomes: Sequence[Outcome], terms: Adaptive) -> None:
    header = ["searches", "n", "interval holds the truth", "ended at the precision", "half width", "error, median",
              "error, p90", "requests, median", "levels, median", "said to contradict"]  # fmt: skip
    groups = {
        "all": list(outcomes),
        "own mechanism": [each for each in outcomes if each.kind == "own"],
        "foreign, batches not fixed": [each for each in outcomes if each.kind not in ("own", FIXED)],
        "foreign, fixed batches": [each for each in outcomes if each.kind == FIXED],
        "ended at the precision": [each for each in outcomes if each.reason == "precision"],
        "ended by the budget": [each for each in outcomes if each.reason == "budget"],
    }
    rows = [[name, *_row(found)] for name, found in groups.items() if found]
    note = (
        f"{len({each.scenario for each in outcomes})} clusters, closed loops without pauses, {SEARCHES} searches each; "
        f"precision {terms.share:.1%}, budget {terms.budget or 'as it is by default'}. None of the clusters changes "
        "while it is searched, but fixed batches stay for long in one of several rhythms. Per cent, where not counts."
    )
    report.table("the search for the edge", header, rows, note)
    report.bar(Bar("search_coverage", _share([each.covers for each in outcomes]), COVERAGE, at_least=True))
    steady = [each.covers for each in outcomes if each.kind != FIXED]
    report.bar(Bar("search_coverage_batches_not_fixed", _share(steady), COVERAGE, at_least=True))


def _share(kept: Sequence[bool]) -> Interval:
    share = float(np.mean(kept))
    return Interval(share, share, share)


def _row(found: Sequence[Outcome]) -> list[object]:
    answered = [each for each in found if each.edge]
    errors = [abs((each.edge or 0) / each.truth - 1) for each in answered]
    widths = [(each.high - each.low) / 2 / each.edge for each in answered if each.high is not None and each.edge]
    return [
        len(found),
        plain(100 * float(np.mean([each.covers for each in found]))),
        plain(100 * float(np.mean([each.reason == "precision" for each in found]))),
        plain(100 * float(np.median(widths))) if widths else "",
        plain(100 * float(np.median(errors))) if errors else "",
        plain(100 * float(np.quantile(errors, 0.9))) if errors else "",
        round(float(np.median([each.requests for each in found]))),
        round(float(np.median([each.levels for each in found]))),
        plain(100 * float(np.mean([each.contradicts for each in found]))),
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.search")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="by comma")
    parser.add_argument("--count", type=int, default=COUNT, help="scenarios per seed, of which about a third fit")
    parser.add_argument("--precision", default="3%", help="as gpusize run has it")
    parser.add_argument("--budget", help="as gpusize run has it")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.command = " ".join(["python -m benches.search", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
