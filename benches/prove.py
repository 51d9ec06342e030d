"""Whether proofs keep their word: ``python -m benches.prove [--seeds 902] [--count 200] [--jobs 2]``.

Worlds are drawn as the suite of estimates draws them. Each is loaded with its question in virtual time, with the number
of replicas that was drawn as its answer and with one less, and the test of ``gpusize prove`` looks again and again, as
it does after the levels of a run. Long runs with other seeds say what is true. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from benches.estimates.question import attainments, judged, targets
from benches.estimates.scenarios import Scenario, draw
from benches.estimates.worlds import Rows
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.analysis.proof.judge import Part, Terms, judge

__all__ = ["clopper_pearson", "main"]

SEEDS = (902,)
"""901 was looked at while the test was made."""
COUNT = 200
BUDGET_REQUESTS, BUDGET_ROUNDS = 20_000, 60
"""What a side may cost, the larger of both: requests, and requests for each in flight."""
LOOKS = 40
"""Levels that the budget is cut into; the test looks after each."""
LONG_REQUESTS, LONG_ROUNDS, LONG_WARMUP, LONG_RUNS = 60_000, 100, 30, 4
"""Of the runs that tell the truth: the larger of both, warm-up in rounds, and how many there are."""
ERRORS = 3.0
"""Standard errors from the target within which the truth is not known."""
FIRST_SEED, TRUTH_SEED = 1, 50_000


@dataclass(frozen=True)
class Outcome:
    """One side of one world.

    Attributes:
        world: its name.
        kind: its mechanism.
        closed: whether users send.
        replicas: how many there were.
        asked: whether these were the drawn answer; one less otherwise.
        truth: the least of the shares less their targets, by long runs.
        known: whether the truth is known, by three standard errors.
        verdict: of the proof.
        requests: that it took, warm-up included.
        covered: whether the interval of every SLO held its true share at every look from the least requests on.
    """

    world: str
    kind: str
    closed: bool
    replicas: int
    asked: bool
    truth: float
    known: bool
    verdict: str
    requests: int
    covered: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove, compare, print."""
    options = _options(arguments)
    terms = Terms(alpha=options.alpha, beta=options.alpha)
    start_s = time.monotonic()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(_world, [(seed, k, terms) for seed in options.seeds for k in range(options.count)]):
            outcomes += found
    report = Report()
    _tell(report, outcomes, terms)
    print(f"{time.monotonic() - start_s:.0f} s", file=sys.stderr)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _world(task: tuple[int, int, Terms]) -> list[Outcome]:
    """Both sides of one world that has an answer; of those drawn without one, of the next that has."""
    seed, number, terms = task
    # Every world has a stretch of numbers of its own, so that no two take the same.
    scenario = next(
        each for k in range(50) for each in draw(seed, 1, first=50 * number + k) if each.expects == "answer"
    )
    sides = [(scenario.hint, True), *([(scenario.hint - 1, False)] if scenario.hint > 1 else [])]
    return [_side(scenario, replicas, terms, asked=asked) for replicas, asked in sides]


def _side(scenario: Scenario, replicas: int, terms: Terms, *, asked: bool) -> Outcome:
    visible, load = scenario.visible, scenario.visible.load
    wanted = np.array(targets(visible))
    mean, error = _truth(scenario, replicas)
    least = int(np.argmin(mean - wanted))
    sure = bool((mean - ERRORS * error >= wanted).all() or (mean + ERRORS * error < wanted).any())
    rounds = scenario.rounds(load)
    budget = math.ceil(max(BUDGET_REQUESTS, BUDGET_ROUNDS * rounds))
    rows = scenario.world.run(visible.world_load(load, budget, 0), gpus=replicas, seed=FIRST_SEED)
    part = _part(rows, scenario)
    slos = [(str(slo), share) for slo, share in zip(visible.slos, wanted.tolist(), strict=False)]
    blocks: dict[int, int] = {}
    covered, n, verdict = True, 0, "undecided"
    for look in range(1, LOOKS + 1):
        n = math.ceil(budget * look / LOOKS)
        so_far = Part(part.within[:, :n], part.runtime_s[:n])
        in_flight = rounds if visible.users is not None else _in_flight(so_far, rows, n)
        found = judge([so_far], slos, terms, in_flight=in_flight, blocks=blocks)
        blocks = {k: each.block for k, each in enumerate(found.slos)}
        covered &= not found.enough or all(
            each.low <= share + ERRORS * off and each.high >= share - ERRORS * off
            for each, share, off in zip(found.slos, mean, error, strict=True)
        )
        verdict = found.verdict
        if verdict != "undecided" or found.settled:
            break
    return Outcome(
        scenario.name, scenario.kind, visible.users is not None, replicas, asked, float((mean - wanted)[least]), sure,
        verdict, n, covered,
    )  # fmt: skip


def _truth(scenario: Scenario, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares of each SLO by long runs, and their standard errors; shape (SLOs,) each."""
    visible, load = scenario.visible, scenario.visible.load
    rounds = scenario.rounds(load)
    counted = math.ceil(max(LONG_REQUESTS, LONG_ROUNDS * rounds))
    asked = visible.world_load(load, counted, math.ceil(LONG_WARMUP * rounds))
    runs = (scenario.world.run(asked, gpus=replicas, seed=TRUTH_SEED + k) for k in range(LONG_RUNS))
    shares = np.array([attainments(each, visible) for each in runs])
    return shares.mean(axis=0), shares.std(axis=0, ddof=1) / math.sqrt(LONG_RUNS) + 1e-5


def _part(rows: Rows, scenario: Scenario) -> Part:
    found = [judged(rows, slo) for slo in scenario.visible.slos]
    if scenario.visible.goodput:
        joint = np.logical_and.reduce([good | ~known for good, known in found])
        within = joint[None, :].astype(float)
    else:
        within = np.array([np.where(known, good.astype(float), np.nan) for good, known in found])
    runtime_s = (rows.end_ns - rows.due_ns) / 1e9
    ended = rows.end_ns >= 0
    longest = float(runtime_s[ended].max()) if ended.any() else 0.0
    return Part(within, np.where(ended, runtime_s, longest))


def _in_flight(part: Part, rows: Rows, n: int) -> float:
    span_s = float(rows.due_ns[n - 1] - rows.due_ns[0]) / 1e9
    return float(part.runtime_s.sum()) / span_s if span_s > 0 else 0.0


def clopper_pearson(bad: int, n: int, confidence: float = 0.95) -> Interval:
    """A share with its exact interval (Clopper and Pearson 1934), by bisection of the binomial distribution."""
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    tail = (1 - confidence) / 2
    low = 0.0 if bad == 0 else _solve(lambda p: 1 - _binomial(bad - 1, n, p), tail)
    high = 1.0 if bad == n else _solve(lambda p: -_binomial(bad, n, p), -tail)
    return Interval(bad / n, low, high)


def _binomial(k: int, n: int, p: float) -> float:
    """P(X <= k)."""
    if not 0 < p < 1:
        return 1.0 if p <= 0 or k >= n else 0.0
    logs = [
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    ]
    return min(1.0, sum(map(math.exp, logs)))


def _solve(rising: object, wanted: float) -> float:
    assert callable(rising)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return low


def _tell(report: Report, outcomes: Sequence[Outcome], terms: Terms) -> None:
    groups = {
        "the drawn number": [each for each in outcomes if each.asked],
        "one less": [each for each in outcomes if not each.asked],
        "users": [each for each in outcomes if each.closed],
        "a rate": [each for each in outcomes if not each.closed],
        "own mechanism": [each for each in outcomes if each.kind == "own"],
        "foreign": [each for each in outcomes if each.kind != "own"],
        "more than 2 % from the target": [each for each in outcomes if abs(each.truth) > 0.02],
        "within the margin": [each for each in outcomes if abs(each.truth) <= terms.margin],
    }
    header = ["sides", "n", "truth not known", "kept", "of these wrongly", "not kept", "of these wrongly", "undecided",
              "requests, median", "requests, p90"]  # fmt: skip
    table = [[name, *_row(found)] for name, found in groups.items() if found]
    report.table("proofs on simulated worlds", header, table,
                 f"{len({each.world for each in outcomes})} worlds, both sides with one seed each; alpha and beta "
                 f"{terms.alpha:g}, margin {terms.margin:g}; a budget of {BUDGET_REQUESTS:,} requests or "
                 f"{BUDGET_ROUNDS} for each in flight, looked at {LOOKS} times. Of sides whose true share is within "
                 f"{ERRORS:g} standard errors of the target no error is counted.")  # fmt: skip
    known = [each for each in outcomes if each.known]
    missing, keeping = ([e for e in known if (e.truth >= 0) is keeps] for keeps in (False, True))
    false_kept = sum(each.verdict == "kept" for each in missing)
    false_not = sum(each.verdict == "not kept" for each in keeping)
    report.bar(Bar("prove_kept_wrongly", clopper_pearson(false_kept, len(missing)), terms.alpha))
    report.bar(Bar("prove_not_kept_wrongly", clopper_pearson(false_not, len(keeping)), terms.beta))
    for name, found in (("keeping", keeping), ("missing", missing)):
        far = [each for each in found if abs(each.truth) > 2 * terms.margin]
        right = "kept" if name == "keeping" else "not kept"
        report.text(f"{name} by more than {2 * terms.margin:.1%}: {sum(e.verdict == right for e in far)} of {len(far)} "
                    f"decided rightly, {sum(e.verdict == 'undecided' for e in far)} undecided")  # fmt: skip
    held = clopper_pearson(sum(not each.covered for each in outcomes), len(outcomes))
    stated = f"{terms.alpha + terms.beta:.0%} are stated for requests that are steady"
    report.text(
        f"an interval missed the true share at any of its looks in {held.value:.1%} of the sides "
        f"[{held.lo:.1%}, {held.hi:.1%}]; {stated}"
    )
    wrong = [each for each in known if each.verdict == ("kept" if each.truth < 0 else "not kept")]
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)


def _row(found: Sequence[Outcome]) -> list[object]:
    counts = Counter(each.verdict for each in found)
    known = [each for each in found if each.known]
    requests = [each.requests for each in found]
    return [
        len(found),
        len(found) - len(known),
        counts["kept"],
        sum(each.verdict == "kept" and each.truth < 0 for each in known),
        counts["not kept"],
        sum(each.verdict == "not kept" and each.truth >= 0 for each in known),
        f"{plain(100 * counts['undecided'] / len(found))} %",
        round(float(np.median(requests))),
        round(float(np.quantile(requests, 0.9))),
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.prove")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="by comma")
    parser.add_argument("--count", type=int, default=COUNT, help="worlds per seed")
    parser.add_argument("--alpha", type=float, default=0.05, help="alpha, and beta")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.command = " ".join(["python -m benches.prove", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
