"""Whether comparisons keep their word: ``python -m benches.compare [--repeats 400] [--seed 1]``.

Simulated clusters of several mechanics in virtual time are held against themselves and against slower copies, by the
very code behind ``gpusize compare``. A copy that takes x % longer is the same cluster with every time x % longer: in a
closed loop without pauses that is exactly a slower server. Every run has a speed of its own as well, as runs on real
machines have. Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar
is short.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from benches.estimates.probe import Probe
from benches.estimates.scenarios import Scenario, draw
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.matching import Run, Side
from gpusize.analysis.level import LevelData
from gpusize.estimate.isotonic import wilson

SCENARIOS = 404
"""Seed of the clusters; no suite that judges estimates has it."""
LOADS, REQUESTS = (4, 16), 1000
SPREAD = 0.01
"""Standard deviation of the speed from run to run."""
DRIFT = 0.02
"""Change of the speed from run to run where the machine drifts, one way."""
BUDGET = 10**9
PEER_SHARE, PEER_S, PEER_OF, PEER_PAIRS = 0.10, 0.1, 4, 5
"""AISimulate's gate: over 10 % and at least 100 ms in 4 of 5 pairs (reference: its EXPERIMENT_RESULTS.md)."""


@dataclass(frozen=True)
class Case:
    """Two systems: by how much b is slower, runs of each, in turns or one after the other, and the margin."""

    name: str
    slower: float
    runs: int
    in_turns: bool
    drifting: bool
    margin: float = 0.02


CASES = (
    Case("equal, 5 runs each in sequence", 0.0, 5, in_turns=False, drifting=False),
    Case("equal, 2 runs each in sequence", 0.0, 2, in_turns=False, drifting=False),
    Case("equal, 6 runs each in turns, drift", 0.0, 6, in_turns=True, drifting=True),
    Case("equal, 6 runs each in sequence, drift", 0.0, 6, in_turns=False, drifting=True),
    Case("5 % slower, 10 runs each in sequence", 0.05, 10, in_turns=False, drifting=False),
    Case("5 % slower, 5 runs each in sequence", 0.05, 5, in_turns=False, drifting=False),
    Case("5 % slower, 6 runs each in turns, drift", 0.05, 6, in_turns=True, drifting=True),
    Case("2 % slower, 10 runs each, margin 1 %", 0.02, 10, in_turns=False, drifting=False, margin=0.01),
)
EQUAL, TWO_RUNS, TURNS, _, FOUND, _, _, EQUIVALENT = (case.name for case in CASES)


@dataclass(frozen=True)
class Outcome:
    """What one comparison said, and what the peer's gate would have."""

    worse: bool
    better: bool
    equivalent: int
    held: int
    figures: int
    peer: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, count, print."""
    options = _options(arguments)
    report = Report()
    found: dict[str, list[Outcome]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for case in CASES:
            # Wrong verdicts are seldom: it takes many repeats to see that they are.
            repeats = options.repeats if case.name in (EQUAL, TWO_RUNS, TURNS) else max(1, options.repeats // 4)
            seeds = [f"{options.seed} {case.name} {k}" for k in range(repeats)]
            found[case.name] = list(pool.map(partial(_compared, case), seeds, chunksize=4))
            print(f"{case.name}: {repeats} repeats", file=sys.stderr, flush=True)
    _tell(report, found)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _compared(case: Case, seed: str) -> Outcome:
    rnd = random.Random(seed)
    scenario = _cluster(rnd)
    order = list("abba") * (case.runs // 2) if case.in_turns else ["a"] * case.runs + ["b"] * case.runs
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    for k, whose in enumerate(order):
        speed = math.exp(rnd.gauss(0, SPREAD) + (DRIFT * k if case.drifting else 0))
        slowness = speed * (1 + case.slower if whose == "b" else 1)
        probe = Probe(scenario, rnd.randrange(10**9), BUDGET)
        levels = [_slowed(probe.measure(users, requests=REQUESTS, closed=True), slowness) for users in LOADS]
        runs[whose].append(Run(f"{whose}{k}", f"{k:06d}", levels))
    comparison = compare_sides([Side(name, each) for name, each in runs.items()], margin=case.margin)
    return _outcome(case, comparison, _peer(runs["a"], runs["b"]))


def _cluster(rnd: random.Random) -> Scenario:
    """One that answers in closed loops without pauses."""
    while True:
        [scenario] = draw(SCENARIOS, 1, first=rnd.randrange(10_000))
        if scenario.expects == "answer" and scenario.visible.rate is None and scenario.visible.think == "none":
            return scenario


def _slowed(level: LevelData, slowness: float) -> LevelData:
    times = [name for name in level.records.collect_schema().names() if name.endswith("_ns")]
    longer = [(pl.col(name) * slowness).round().cast(pl.Int64) for name in times]
    intervals = [
        {**each, "start_ns": round(each["start_ns"] * slowness), "end_ns": round(each["end_ns"] * slowness)}
        for each in level.intervals
    ]
    meta = {name: round(value * slowness) if name.endswith("_ns") else value for name, value in level.meta.items()}
    return replace(level, records=level.records.with_columns(longer), intervals=intervals, meta=meta)


def _outcome(case: Case, comparison: Comparison, peer: bool) -> Outcome:
    judged = comparison.differences
    verdicts = [each.verdict for each in judged]
    truths = {"s": case.slower, "requests/s": 1 / (1 + case.slower) - 1, "tokens/s": 1 / (1 + case.slower) - 1}
    known = [each for each in judged if each.unit in truths and each.low == each.low]
    held = sum(each.low <= truths[each.unit] <= each.high for each in known)
    moved = [each for each in known if each.verdict == "equivalent"]
    return Outcome("worse" in verdicts, "better" in verdicts, len(moved), held, len(known), peer)


def _peer(a: Sequence[Run], b: Sequence[Run]) -> bool:
    """Whether AISimulate's gate calls b slower at any load, by the p95 of the first pairs."""
    for place in range(len(LOADS)):
        slower = 0
        for before, after in list(zip(a, b, strict=True))[:PEER_PAIRS]:
            first, second = (run.levels[place].quantile("runtime", 0.95) or math.nan for run in (before, after))
            slower += second > (1 + PEER_SHARE) * first and second - first >= PEER_S
        if slower >= PEER_OF:
            return True
    return False


def _tell(report: Report, found: dict[str, list[Outcome]]) -> None:
    header = ["b is", "repeats", "any worse", "any better", "intervals that hold the truth", "equivalent figures",
              "AISimulate's gate: slower"]  # fmt: skip
    rows = [
        [
            name,
            len(each),
            plain(100 * sum(one.worse for one in each) / len(each)),
            plain(100 * sum(one.better for one in each) / len(each)),
            plain(100 * sum(one.held for one in each) / sum(one.figures for one in each)),
            plain(sum(one.equivalent for one in each) / len(each)),
            plain(100 * sum(one.peer for one in each) / len(each)),
        ]
        for name, each in found.items()
    ]
    note = (
        f"Per cent of repeats, but for the figures called equivalent in one. Loads of {LOADS[0]} and {LOADS[1]} users, "
        f"{REQUESTS} requests each; the speed varies by {SPREAD:.0%} from run to run and drifts by {DRIFT:.0%} a run "
        "where it says so. Turns are a b b a. In sequence a drift is a difference: that row has no bar, it is why runs "
        "are made in turns. AISimulate's gate sees the first five pairs of the same runs."
    )
    report.table("comparisons of simulated clusters", header, rows, note)
    for name, case in (("in_sequence", EQUAL), ("of_two_runs", TWO_RUNS), ("in_turns_drift", TURNS)):
        wrong = [one.worse or one.better for one in found[case]]
        report.bar(Bar(f"equal_called_different_{name}", _share(wrong), 0.05))
    report.bar(Bar("slower_by_5_found_in_10_runs", _share([one.worse for one in found[FOUND]]), 0.9, at_least=True))
    equivalent = sum(one.equivalent > 0 for one in found[EQUIVALENT])
    report.bar(Bar("slower_by_2_called_equivalent_at_1", Interval.exact(equivalent), 0))


def _share(kept: Sequence[bool]) -> Interval:
    low, high = wilson(sum(kept) / len(kept), len(kept))
    return Interval(sum(kept) / len(kept), low, high)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.compare")
    parser.add_argument("--repeats", type=int, default=400, help="of equal systems; a quarter of them of others")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.compare", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
