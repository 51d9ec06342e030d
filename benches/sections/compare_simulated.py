"""Comparisons of simulated clusters of several mechanics in virtual time, with themselves and with slower copies.

A copy that takes x % longer is the same cluster with every time x % longer: in a closed loop without pauses that is
exactly a slower server. Every run has a speed of its own as well, as runs on real machines have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import polars as pl

from benches.estimates.probe import Probe
from benches.estimates.scenarios import Scenario, draw
from benches.lib.bars import Bar
from benches.lib.context import say
from benches.lib.results import Report
from benches.lib.stats import Interval
from benches.lib.verdicts import HEADER, Outcome, judged, row, share
from gpusize.analysis.compare.comparison import compare_sides
from gpusize.analysis.compare.matching import Run, Side
from gpusize.analysis.level import LevelData
from gpusize.api.duet import in_order

__all__ = ["simulated"]

SCENARIOS = 404
"""Seed of the clusters; no suite that judges estimates has it."""
CLUSTERS = 120
LOADS, REQUESTS = (4, 16), 1000
SPREAD = 0.01
"""Standard deviation of the speed from run to run."""
DRIFT = 0.02
"""Change of the speed from run to run where the machine drifts, one way."""
NEIGHBOUR = 0.02
"""Standard deviation of the steps by which the speed wanders from run to run beside a neighbour that changes."""
BUDGET = 10**9


@dataclass(frozen=True)
class Case:
    """Two systems: by how much b is slower, runs of each, and how they are made.

    Attributes:
        name: what the table calls it.
        slower: by how much b takes longer.
        runs: of each side.
        in_turns: as a duet makes them, else all of a before all of b.
        drift: change of the speed from run to run, one way.
        neighbour: standard deviation of the steps by which it wanders.
        same_rows: whether every run has the same requests with the same lengths, as ``gpusize duet`` sends them to
            servers that answer the same text; else each run draws its own, as a server that samples does.
        requests: of each run at each load.
        margin: differences within it do not matter.
        all_repeats: whether all repeats are made: wrong verdicts are seldom, it takes many to see that they are.
    """

    name: str
    slower: float
    runs: int
    in_turns: bool = False
    drift: float = 0.0
    neighbour: float = 0.0
    same_rows: bool = False
    requests: int = REQUESTS
    margin: float = 0.02
    all_repeats: bool = False


def _duet(name: str, slower: float, **more: Any) -> Case:
    """Ten rounds with half of the requests of the case in sequence, beside a neighbour."""
    return Case(name, slower, 10, in_turns=True, neighbour=NEIGHBOUR, requests=REQUESTS // 2, **more)


CASES = (
    Case("equal, 5 runs each in sequence", 0.0, 5, all_repeats=True),
    Case("equal, 2 runs each in sequence", 0.0, 2, all_repeats=True),
    Case("equal, 6 runs each in turns, drift", 0.0, 6, in_turns=True, drift=DRIFT, all_repeats=True),
    Case("equal, 6 runs each in sequence, drift", 0.0, 6, drift=DRIFT),
    Case("5 % slower, 10 runs each in sequence", 0.05, 10),
    Case("5 % slower, 5 runs each in sequence", 0.05, 5),
    Case("5 % slower, 6 runs each in turns, drift", 0.05, 6, in_turns=True, drift=DRIFT),
    Case("2 % slower, 10 runs each, margin 1 %", 0.02, 10, margin=0.01),
    _duet("equal, duet of 10 rounds, neighbour", 0.0, all_repeats=True),
    Case("equal, 10 runs each in sequence, neighbour", 0.0, 10, neighbour=NEIGHBOUR),
    _duet("5 % slower, duet of 10 rounds, neighbour", 0.05, all_repeats=True),
    Case("5 % slower, 10 runs each in sequence, neighbour", 0.05, 10, neighbour=NEIGHBOUR),
    _duet("2 % slower, duet of 10 rounds, margin 1 %", 0.02, margin=0.01),
    _duet("equal, duet of 10 rounds, neighbour, same rows", 0.0, same_rows=True, all_repeats=True),
    _duet("5 % slower, duet of 10 rounds, neighbour, same rows", 0.05, same_rows=True, all_repeats=True),
)
EQUAL, TWO_RUNS, TURNS, _, FOUND, _, _, EQUIVALENT, DUET, _, DUET_FOUND, _, DUET_EQUIVALENT, SAME, SAME_FOUND = (
    case.name for case in CASES
)


def simulated(report: Report, *, repeats: int, seed: int, jobs: int, cases: str = "") -> None:
    """Make each comparison again and again, with other clusters and draws, and count what was said.

    Only the cases whose name has ``cases`` in it.
    """
    found: dict[str, list[Outcome]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for case in (case for case in CASES if cases in case.name):
            times = repeats if case.all_repeats else max(1, repeats // 4)
            seeds = [f"{seed} {case.name} {k}" for k in range(times)]
            found[case.name] = list(pool.map(partial(_compared, case), seeds, chunksize=4))
            say(f"{case.name}: {times} repeats")
    _tell(report, found)


def _compared(case: Case, seed: str) -> Outcome:
    rnd = random.Random(seed)
    scenario = _cluster(rnd)
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    wandered = 0.0
    shared = random.Random(f"{seed} rows").randrange(10**9)
    for k, whose in enumerate(_order(case)):
        wandered += case.drift + rnd.gauss(0, case.neighbour)
        slowness = math.exp(rnd.gauss(0, SPREAD) + wandered) * (1 + case.slower if whose == "b" else 1)
        own = rnd.randrange(10**9)
        probe = Probe(scenario, shared if case.same_rows else own, BUDGET)
        levels = [_slowed(probe.measure(users, requests=case.requests, closed=True), slowness) for users in LOADS]
        runs[whose].append(Run(f"{whose}{k}", f"{k:06d}", levels))
    comparison = compare_sides([Side(name, each) for name, each in runs.items()], margin=case.margin)
    return judged(comparison, case.slower, runs["a"], runs["b"])


def _order(case: Case) -> list[str]:
    if not case.in_turns:
        return ["a"] * case.runs + ["b"] * case.runs
    return [name for k in range(case.runs) for name in in_order(["a", "b"], k)]


def _cluster(rnd: random.Random) -> Scenario:
    """One that answers in closed loops without pauses."""
    while True:
        scenario = _drawn(rnd.randrange(CLUSTERS))
        if scenario.expects == "answer" and scenario.visible.rate is None and scenario.visible.think == "none":
            return scenario


@cache
def _drawn(number: int) -> Scenario:
    [scenario] = draw(SCENARIOS, 1, first=number)
    return scenario


def _slowed(level: LevelData, slowness: float) -> LevelData:
    schema = level.records.collect_schema()
    times = [name for name, kind in schema.items() if name.endswith("_ns") and kind == pl.Int64]
    longer = [(pl.col(name) * slowness).round().cast(pl.Int64) for name in times]
    intervals = [
        {**each, "start_ns": round(each["start_ns"] * slowness), "end_ns": round(each["end_ns"] * slowness)}
        for each in level.intervals
    ]
    meta = {name: round(value * slowness) if name.endswith("_ns") else value for name, value in level.meta.items()}
    # Made once: every figure would make it again.
    records = level.records.with_columns(longer).collect().lazy()
    return replace(level, records=records, intervals=intervals, meta=meta)


def _tell(report: Report, found: Mapping[str, Sequence[Outcome]]) -> None:
    note = (
        f"Per cent of repeats, but for the figures called equivalent in one. Loads of {LOADS[0]} and {LOADS[1]} users, "
        f"{REQUESTS} requests each, in duets {REQUESTS // 2}; the speed varies by {SPREAD:.0%} from run to run, drifts "
        f"by {DRIFT:.0%} a run where it says so, and wanders by steps of {NEIGHBOUR:.0%} from run to run beside a "
        "neighbour. Turns are a b b a. In sequence a drift or a neighbour is a difference: those rows have no bar, "
        "they are why runs are made in turns. With the same rows every run has the same requests with answers of the "
        "same lengths, as a duet sends them; elsewhere each run draws its own. AISimulate's gate sees the first five "
        "pairs of the same runs."
    )
    report.table("comparisons of simulated clusters", HEADER, [row(*each) for each in found.items()], note)
    wrong = (("in_sequence", EQUAL), ("of_two_runs", TWO_RUNS), ("in_turns_drift", TURNS))
    for name, case in (*((f"equal_called_different_{how}", case) for how, case in wrong),
                       ("duet_equal_called_different", DUET),
                       ("duet_same_rows_equal_called_different", SAME)):  # fmt: skip
        if case not in found:
            continue
        report.bar(Bar(name, share([one.different for one in found[case]]), 0.05))
    for name, case in (("slower_by_5_found_in_10_runs", FOUND), ("duet_slower_by_5_found", DUET_FOUND),
                       ("duet_same_rows_slower_by_5_found", SAME_FOUND)):  # fmt: skip
        if case not in found:
            continue
        report.bar(Bar(name, share([one.worse for one in found[case]]), 0.9, at_least=True))
    for name, case in (("slower_by_2_called_equivalent_at_1", EQUIVALENT),
                       ("duet_slower_by_2_called_equivalent_at_1", DUET_EQUIVALENT)):  # fmt: skip
        if case not in found:
            continue
        equivalent = sum(one.equivalent > 0 for one in found[case])
        report.bar(Bar(name, Interval.exact(equivalent), 0))
