"""Whether first users' systems get the right number: ``python -m benches.estimates.first_users [--count 200]``.

Servers without a model, as people try gpusize on first: constant times, times linear in the load, one thread, limiters,
one that fails above a load and recovers, one that dies. Each has its capacity in a closed form, from which the count
follows by hand. Half are searched, half swept (of these a part by passes), in virtual time, through the same planner,
the same second looks and the same estimate as a real run's. The exit code is 1 when fewer than 95 % are right.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from benches.estimates.first_drive import LADDER, search, sweep
from benches.estimates.first_servers import ENDS, Constant, Dying, Limited, Linear, RateLimited, Server, Single
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.search.terms import Adaptive

__all__ = ["Case", "Verdict", "draw", "judge", "main"]

SEED = 16
COUNT = 200
SHARE = 0.95
PRECISION = 0.03
"""What a search is asked for: counts that a capacity so far off the true one gives are right, too."""
SHOWN = 20


@dataclass(frozen=True)
class Case:
    """A server and a question.

    Attributes:
        name: number in its draw.
        kind: what the server does.
        make: a new server of this kind; it keeps the state of its requests.
        bound_s: p95 of the runtime must be within it.
        users: how many are to be sized for.
        way: ``search``, ``sweep`` or ``passes``.
        capacity: users on one GPU by the closed form; infinite where none is missed.
        dies: whether it dies before any load missed the bound.
    """

    name: int
    kind: str
    make: Callable[[], Server]
    bound_s: float
    users: int
    way: str
    capacity: float
    dies: bool = False

    @property
    def slo(self) -> Slo:
        return Slo("percentile", "runtime", 0.95, "<=", self.bound_s)


@dataclass(frozen=True)
class Verdict:
    """What was said of a case, and whether it is right; ``wanted`` says what would be.

    ``exact`` is whether a number is the very count of the closed form; None where there is none, or none was given.
    """

    case: int
    kind: str
    way: str
    right: bool
    said: str
    wanted: str
    low: int | None
    high: int | None
    exact: bool | None = None


def draw(number: int, seed: int = SEED) -> Case:
    """A case; a pure function of its number."""
    chance = random.Random(1_000_003 * seed + number)
    kind = KINDS[number % len(KINDS)]
    way = ("search", "sweep", "search", "passes")[number // len(KINDS) % 4]
    return _KINDS[kind](number, way, chance)


def _case(number: int, kind: str, way: str, make: Callable[[], Server], bound_s: float, chance: random.Random) -> Case:
    """With users such that the count is not at the edge between two whole numbers."""
    capacity = make().capacity(bound_s)
    gpus = chance.randint(2, 12)
    users = 100 if math.isinf(capacity) or capacity < 1 else round(capacity * (gpus - chance.uniform(0.3, 0.7)))
    return Case(number, kind, make, bound_s, max(2, users), way, capacity)


def _bound(base_s: float, step_s: float, most: int) -> float:
    """A bound in the middle between what ``most`` and one more take."""
    return base_s + step_s * (most + 0.5)


def _constant(number: int, way: str, chance: random.Random) -> Case:
    time_s = chance.uniform(0.05, 1.0)
    factor = chance.choice((0.7, 1.5, 4.0))
    return _case(number, "constant times", way, partial(Constant, time_s), factor * time_s, chance)


def _linear(number: int, way: str, chance: random.Random) -> Case:
    base_s, step_s, most = chance.uniform(0.05, 0.6), chance.uniform(0.01, 0.06), chance.randint(3, 28)
    make = partial(Linear, base_s, step_s)
    return _case(number, "linear in load", way, make, _bound(base_s, step_s, most), chance)


def _single(number: int, way: str, chance: random.Random) -> Case:
    time_s, most = chance.uniform(0.02, 0.3), chance.randint(2, 20)
    return _case(number, "one thread", way, partial(Single, time_s), _bound(0.0, time_s, most), chance)


def _limited(number: int, way: str, chance: random.Random) -> Case:
    time_s, most = chance.uniform(0.05, 0.5), chance.randint(3, 28)
    make: Callable[[], Server] = partial(Limited, time_s, most)
    # Where all users begin at once a bucket of two carries two: that is another question.
    if way != "passes" and chance.random() < 0.5:
        make = partial(RateLimited, time_s, (most + 0.5) / time_s)
    return _case(number, "limiter with 429", way, make, 5 * time_s, chance)


def _breaks(number: int, way: str, chance: random.Random) -> Case:
    time_s, most = chance.uniform(0.05, 0.5), chance.randint(3, 28)
    make = partial(Limited, time_s, most, 500)
    return _case(number, "fails above a load, recovers", way, make, 5 * time_s, chance)


def _dies(number: int, way: str, chance: random.Random) -> Case:
    time_s = chance.uniform(0.05, 0.5)
    # Before it dies it has carried two loads and missed at none; a sweep goes to 32 with some 40 requests each.
    requests = chance.randint(3, 40 if way == "passes" else 90)
    make = partial(Dying, Constant(time_s), requests, chance.choice(tuple(ENDS)))
    return Case(number, "dies", make, 4 * time_s, 100, way, math.inf, dies=True)


_KINDS: dict[str, Callable[[int, str, random.Random], Case]] = {
    "constant": _constant,
    "linear": _linear,
    "single": _single,
    "limited": _limited,
    "breaks": _breaks,
    "dies": _dies,
}
KINDS = tuple(_KINDS)


def judge(case: Case, seed: int = SEED) -> Verdict:
    """Measure a case, ask the default, and hold the answer against the closed form."""
    server = case.make()
    if case.way == "search":
        levels = search(server, seed + case.name, case.slo, Adaptive(precision=PRECISION, budget=6000, most_users=400))
    else:
        levels = sweep(server, seed + case.name, passes=case.way == "passes")
    found = estimate(levels, Question(case.users, [case.slo]))[0]
    held = [level.concurrency or 0 for level in levels if level.state == "done"]
    right, wanted = _right(case, found, max(held, default=0))
    said = f"{found.gpus} GPUs" if found.answered else f"none: {found.reason}"
    numbered = found.answered and case.capacity >= 1 and math.isfinite(case.capacity) and not case.dies
    exact = found.gpus == math.ceil(case.users / case.capacity) if numbered else None
    return Verdict(case.name, case.kind, case.way, right, said, wanted, found.gpus_low, found.gpus_high, exact)


def _right(case: Case, found: Estimate, top: int) -> tuple[bool, str]:
    refusal = found.details.get("refusal")
    if case.dies:
        return not found.answered and refusal == "failed", "no number, as it failed"
    if case.capacity < 1:
        return not found.answered and refusal == "single", "no number, as a single user misses"
    if math.isinf(case.capacity):
        if top >= case.users:
            return found.gpus == 1, "1 GPU"
        most = math.ceil(case.users / top)
        return not found.answered and refusal == "flat" and found.gpus_high == most, f"no number, at most {most}"
    fewest, most = _counts(case)
    return found.gpus is not None and fewest <= found.gpus <= most, f"{fewest} to {most} GPUs"


def _counts(case: Case) -> tuple[int, int]:
    """The counts that are right: of a search within its precision, of a sweep within the loads around the capacity."""
    if case.way == "search":
        near = (case.capacity * (1 + PRECISION), case.capacity / (1 + PRECISION))
    else:
        missed = min((users for users in LADDER if users > case.capacity), default=LADDER[-1])
        near = (float(missed), float(max((users for users in LADDER if users <= case.capacity), default=1)))
    return math.ceil(case.users / near[0]), math.ceil(case.users / near[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, print, and say whether the bar is kept."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.estimates.first_users")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    start_s = time.monotonic()
    verdicts = _all(partial(_judged, options.seed), options.count, options.jobs)
    report = Report()
    _tell(report, verdicts)
    share = sum(each.right for each in verdicts) / len(verdicts)
    # Of these very cases, which are no sample of anything: the share has no interval.
    report.bar(Bar("estimate_first_users_right", Interval(share, share, share), SHARE, at_least=True))
    if options.record:
        host = {**facts(), "seconds": f"{time.monotonic() - start_s:.0f}"}
        words = " ".join(["python -m benches.estimates.first_users", *given])
        report.append_to(ROOT / "benches" / "RESULTS.md", host, words)
    return exit_code(report.bars)


def _all(judged: Callable[[int], Verdict], count: int, jobs: int) -> list[Verdict]:
    if jobs <= 1:
        return [judged(number) for number in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(judged, range(count), chunksize=4))


def _judged(seed: int, number: int) -> Verdict:
    return judge(draw(number, seed), seed)


def _tell(report: Report, verdicts: Sequence[Verdict]) -> None:
    rows: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for each in verdicts:
        for way in (each.way, "all"):
            rows[each.kind, way].append(each)
            rows["all", way].append(each)
    ways = ("search", "sweep", "passes", "all")
    kinds = [*dict.fromkeys(each.kind for each in verdicts), "all"]
    cells = [[kind, *(_share([v.right for v in rows.get((kind, way), [])]) for way in ways)] for kind in kinds]
    exact = {kind: [v.exact for v in rows[kind, "all"] if v.exact is not None] for kind in kinds}
    cells = [[*row, _share(exact[row[0]])] for row in cells]
    wrong = [each for each in verdicts if not each.right]
    note = "".join(
        f"- {each.case}, {each.kind}, {each.way}: {each.said}; right: {each.wanted}\n" for each in wrong[:SHOWN]
    )
    report.table(
        "First users' systems: right numbers and right refusals", ["server", *ways, "the very count"], cells, note
    )


def _share(hits: Sequence[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else "-"


if __name__ == "__main__":
    sys.exit(main())
