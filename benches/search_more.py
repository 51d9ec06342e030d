"""What the search says of more, and when it needs none: ``python -m benches.search_more [--seeds 301] [--count 60]``.

On the clusters of ``benches.search``, in virtual time:

    twice      a search with a budget foretells the interval after as much again; one with twice the budget has it
    the count  a search for users ends where the count is one number; the same search goes on to its end

Users are drawn so that the need lies anywhere from 0.3 to 20 of what was measured. Tables go to standard output, and
with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from benches.estimates.probe import Probe
from benches.estimates.scenarios import Scenario, draw
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from benches.search import BUDGET, COUNT, FIXED, SEEDS, Truth, objectives
from gpusize.analysis.level import LevelData
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.question import whole_gpus
from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.count import Count
from gpusize.estimate.search.crossing import Crossing
from gpusize.estimate.search.more import again
from gpusize.estimate.search.planner import Over, Planner
from gpusize.estimate.search.visits import Visit, visits_of
from gpusize.estimate.twin.foretold import foretold_interval

SEARCHES = 2
"""Of each scenario, each with draws of its own."""
NEED = (0.3, 20.0)
"""How many times what was measured is needed, log-uniform."""
FORETOLD = 0.25
"""The median half width foretold is at most so far from the one that came."""
WORSE = 0.02
"""Of the searches that end at the count so many more may be wrong than had they gone on."""


@dataclass(frozen=True)
class Twice:
    """Half widths, as shares: before, foretold, and of a search with twice the budget; of the capacity or the count."""

    kind: str
    what: str
    before: float
    foretold: float
    came: float


@dataclass(frozen=True)
class Counted:
    """A search for a count: the true one, and what was answered and spent with the rule and without."""

    kind: str
    truth: int
    reason: str
    early: int | None
    early_requests: int
    late: int | None
    late_requests: int


@dataclass(frozen=True)
class Searched:
    """The levels of a search, in their order, why it ended and what it showed."""

    planner: Planner
    levels: list[LevelData]
    visits: list[Visit]
    reason: str
    found: Crossing
    requests: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, print."""
    options = _options(arguments)
    start_s = time.monotonic()
    tasks = [(seed, number, options.budget) for seed in options.seeds for number in range(options.count)]
    twice: list[Twice] = []
    counted: list[Counted] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for more, counts in pool.map(_scenario, tasks):
            twice += more
            counted += counts
    report = Report()
    _tell_twice(report, twice, options.budget)
    _tell_counts(report, counted)
    print(f"{time.monotonic() - start_s:.0f} s", file=sys.stderr)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _scenario(task: tuple[int, int, int]) -> tuple[list[Twice], list[Counted]]:
    seed, number, budget = task
    [scenario] = draw(seed, 1, first=number)
    if scenario.expects != "answer" or scenario.visible.rate is not None or scenario.visible.think != "none":
        return [], []
    truth = Truth(scenario).capacity()
    if truth is None:
        return [], []
    twice: list[Twice] = []
    counted: list[Counted] = []
    for k in range(SEARCHES):
        rng = np.random.default_rng([seed, number, k, 77])
        users = max(1, round(truth * math.exp(rng.uniform(*np.log(NEED)))))
        question = Question(users, scenario.visible.slos, scenario.visible.gpus_per_replica)
        once, double = (searched(scenario, k, Adaptive(0.001, part * budget)) for part in (1, 2))
        twice += _twice(scenario, once, double, question)
        if not scenario.visible.goodput:
            counted.append(_counted(scenario, truth, searched(scenario, k, Adaptive()), question))
    return twice, counted


def searched(scenario: Scenario, seed: int, terms: Adaptive) -> Searched:
    """A search for the capacity, whole."""
    probe, planner = Probe(scenario, seed, BUDGET), Planner(objectives(scenario), terms)
    levels: list[LevelData] = []
    visits: list[Visit] = []
    while not isinstance(chosen := planner.next(visits), Over):
        level = probe.measure(chosen.look.users, requests=chosen.requests, closed=True)
        levels.append(replace(level, meta={**level.meta, "search": chosen.facts(), "due": chosen.requests}))
        visits += visits_of(levels[-1:], planner.objectives)
    return Searched(planner, levels, visits, chosen.reason, planner.crossing(visits), probe.spent)


def _twice(scenario: Scenario, once: Searched, double: Searched, question: Question) -> list[Twice]:
    found = []
    more = again(once.planner.objectives, once.visits, once.found)
    if more is not None and once.reason == double.reason == "budget" and math.isfinite(double.found.precision):
        found.append(Twice(scenario.kind, "capacity", once.found.precision, more.precision, double.found.precision))
        if not scenario.visible.goodput:
            before, came = (estimate(each.levels, question)[0] for each in (once, double))
            then = foretold_interval(before.details, before.gpus_raw, more.times) if before.gpus_raw else None
            halves = [_half(before), None if then is None else math.log(then[1] / then[0]) / 2, _half(came)]
            known = [each for each in halves if each is not None]
            if len(known) == len(halves) and before.details["model"] == came.details["model"]:
                found.append(Twice(scenario.kind, "count", *known))
    return found


def _half(answer: Estimate) -> float | None:
    low, high = answer.details.get("raw_interval") or (None, None)
    return math.log(high / low) / 2 if answer.answered and low and high else None


def _counted(scenario: Scenario, truth: float, whole: Searched, question: Question) -> Counted:
    """The same levels again, one after the other, with the count in mind: the rule may only end the search sooner."""
    gpus = scenario.visible.replicas[0] * scenario.visible.gpus_per_replica
    right = whole_gpus(question.users / truth * gpus, question.gpus_per_replica)
    levels: list[LevelData] = []
    planner = Planner(whole.planner.objectives, whole.planner.terms, Count(question, levels))
    while not isinstance(chosen := planner.next(whole.visits[: len(levels)]), Over):
        levels.append(whole.levels[len(levels)])
    late = estimate(whole.levels, question)[0].gpus
    early = late if len(levels) == len(whole.levels) else estimate(levels, question)[0].gpus
    sent = sum(int(each.meta["due"]) for each in levels)
    return Counted(scenario.kind, right, chosen.reason, early, sent, late, whole.requests)


def _tell_twice(report: Report, outcomes: Sequence[Twice], budget: int) -> None:
    header = ["half width of", "n", "before, %", "foretold, %", "with twice the budget, %", "foretold / came: median",
              "p10", "p90", "came / before: median"]  # fmt: skip
    rows = []
    for what in ("capacity", "count"):
        for name, kinds in (("all", None), ("fixed batches", [FIXED])):
            chosen = [each for each in outcomes if each.what == what and (kinds is None or each.kind in kinds)]
            if chosen:
                rows.append([f"{what}, {name}", len(chosen), *_ratios(chosen)])
    note = (
        f"Searches with a budget of {budget:,} requests that never reach a precision, and the same with twice as many. "
        "The count's is half the interval of its logarithm, where the same model answered both times."
    )
    report.table("as much again, foretold and come", header, rows, note)
    for what in ("capacity", "count"):
        off = [each.foretold / each.came for each in outcomes if each.what == what]
        if off:
            middle = abs(math.log(float(np.median(off))))
            report.bar(
                Bar(f"foretold_{what}", Interval(middle, middle, middle), math.log(1 + FORETOLD), at_least=False)
            )


def _ratios(chosen: Sequence[Twice]) -> list[object]:
    before, foretold, came = (
        np.array([getattr(each, name) for each in chosen]) for name in ("before", "foretold", "came")
    )
    ratio = foretold / came
    return [
        *(plain(100 * float(np.median(each))) for each in (before, foretold, came)),
        *(plain(float(each)) for each in np.quantile(ratio, [0.5, 0.1, 0.9])),
        plain(float(np.median(came / before))),
    ]


def _tell_counts(report: Report, outcomes: Sequence[Counted]) -> None:
    header = ["searches for users", "n", "count right, ended early", "too few, ended early", "count right, gone on",
              "too few, gone on", "the same count", "requests, early", "requests, gone on"]  # fmt: skip
    groups = {
        "all": list(outcomes),
        "ended at the count": [each for each in outcomes if each.reason == "count"],
        "ended at the count, batches not fixed": [e for e in outcomes if e.reason == "count" and e.kind != FIXED],
        "ended otherwise": [each for each in outcomes if each.reason != "count"],
    }
    rows = [[name, *_counts(found)] for name, found in groups.items() if found]
    note = (
        "Precision 3 % and the default budget. The count is held against that by the capacity which long runs show. "
        "Both answers come from one search, cut where it would have ended; requests are means. Per cent, where not "
        "counts."
    )
    report.table("ending where the count is known", header, rows, note)
    ended = groups["ended at the count"]
    if ended:
        lost = float(np.mean([e.late == e.truth for e in ended]) - np.mean([e.early == e.truth for e in ended]))
        report.bar(Bar("count_ended_early_lost", Interval(lost, lost, lost), WORSE, at_least=False))


def _counts(found: Sequence[Counted]) -> list[object]:
    def share(kept: Sequence[bool]) -> str:
        return plain(100 * float(np.mean(kept)))

    return [
        len(found),
        share([each.early == each.truth for each in found]),
        share([each.early is not None and each.early < each.truth for each in found]),
        share([each.late == each.truth for each in found]),
        share([each.late is not None and each.late < each.truth for each in found]),
        share([each.early == each.late for each in found]),
        round(float(np.mean([each.early_requests for each in found]))),
        round(float(np.mean([each.late_requests for each in found]))),
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.search_more")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="by comma")
    parser.add_argument("--count", type=int, default=COUNT, help="scenarios per seed, of which about a third fit")
    parser.add_argument("--budget", type=int, default=4000, help="requests, of the search that foretells")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.command = " ".join(["python -m benches.search_more", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
