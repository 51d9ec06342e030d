"""Whether agents and users who pause get the right number: ``python -m benches.estimates.agents [--count 120]``.

A request of an agent calls its model several times, with time between for its tools; a router sees each call. Half the
worlds are such workflows, half users who pause, measured with one pause and asked about another, or none; a third as
many again are workflows whose calls have to keep a bound, each by itself. Replicas have places for calls, share their
time, or work in iterations; what so many of them do is simulated by ``agent_servers``, which has nothing of gpusize in
it. Beside the answer stands what a calculator says in proportion: users, or requests
per second, over the most that one replica was measured to carry.
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
from dataclasses import dataclass, replace
from functools import cached_property, partial
from multiprocessing import get_context
from typing import Literal

import numpy as np

from benches.estimates.agent_levels import level_of
from benches.estimates.agent_servers import Drawn, Iterating, Loop, Places, Replica, Sharing, Task, run
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.verdicts import share
from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate

__all__ = ["Verdict", "World", "draw", "judge", "main"]

SEED = 61
COUNT = 120
CALLS = 3
"""Of so many worlds with a bound on requests there is one more with a bound on calls."""
MEASURED = 500
"""Requests of a level, of which the first tenth is left out."""
TRUE = 8000
STEP = 1.3
MISSED = 0.6
"""Levels are added until so few requests keep the bound at two of them."""
TIE = 0.01
"""Counts are ties where one of them keeps so nearly what is asked for: both are right."""
MOST = 40
WITHIN_ONE, TOO_FEW = 0.95, 0.08


@dataclass(frozen=True)
class World:
    """A server, what is asked of it, and by whom.

    Attributes:
        name: number in its draw.
        kind: ``workflow`` or ``pauses``.
        server: what a replica does.
        make: one of them.
        task: draws a request.
        pause_s: mean pause in the levels, exponential; 0 for workflows.
        asked: users or a rate, and their pause.
        times: the bound, over the 95th percentile of a request (or call) that is alone.
        metric: what it is on: ``runtime``, or ``llm_latency`` of each call.
    """

    name: int
    kind: str
    server: str
    make: Callable[[], Replica]
    task: Callable[[random.Random], Task]
    pause_s: float
    asked: Loop
    asked_pause_s: float
    times: float
    metric: str = "runtime"

    def took_s(self, found: Sequence[Drawn]) -> list[float]:
        """Times of requests, or of the calls inside them."""
        if self.metric == "runtime":
            return [each.end_s - each.due_s for each in found]
        return [end_s - begin_s for each in found for begin_s, end_s in each.calls]

    @cached_property
    def bound_s(self) -> float:
        """p95 of these must be within it."""
        alone = run(self.make, 1, self.task, Loop(users=1), 2000, 7)
        return float(np.quantile(self.took_s(alone), 0.95, method="higher")) * self.times

    def kept(self, replicas: int, loop: Loop, tasks: int, seed: int) -> float:
        """The share of them within the bound, the first quarter of the requests left out."""
        found = [each for each in run(self.make, replicas, self.task, loop, tasks, seed) if each.end_s == each.end_s]
        return float(np.mean([took_s <= self.bound_s for took_s in self.took_s(found[len(found) // 4 :])]))

    @property
    def question(self) -> Question:
        slo = Slo("percentile", self.metric, 0.95, "<=", self.bound_s)
        think: Literal["none", "exponential"] = "exponential" if self.asked_pause_s else "none"
        rate = self.asked.rate or None
        return Question(users=self.asked.users, slos=(slo,), rate=rate, think_s=self.asked_pause_s, think=think)


@dataclass(frozen=True)
class Verdict:
    """What was said of a world, and what is true."""

    world: int
    kind: str
    server: str
    asked: str
    true: int
    tie: int | None
    said: int | None
    low: int | None
    high: int | None
    model: str
    rule: int | None = None
    """Users, or requests per second, over the most that the one replica was measured to carry."""

    @property
    def right(self) -> bool:
        return self.said in (self.true, self.tie)

    @property
    def by_rule(self) -> Verdict:
        """What the rule says, as if it were the answer; it has no interval."""
        return replace(self, said=self.rule, low=self.rule, high=self.rule)

    def off(self) -> int:
        """By how many the count is off, the nearer of ties; negative where it is too few."""
        counts = [each for each in (self.true, self.tie) if each is not None]
        return min(((self.said or 0) - each for each in counts), key=abs) if self.said else 0


def _server(rng: random.Random) -> tuple[str, Callable[[], Replica], float]:
    """A kind of replica, and the work of a call of mean 1 in its unit, s or tokens."""
    kind = rng.choice(["places", "sharing", "iterations"])
    if kind == "places":
        return kind, partial(Places, rng.choice([1, 2, 4, 8])), rng.uniform(0.02, 0.3)
    if kind == "sharing":
        return kind, partial(Sharing, rng.uniform(0.05, 0.6)), rng.uniform(0.02, 0.3)
    most = rng.choice([4, 16, 64])
    return kind, partial(Iterating, rng.uniform(0.005, 0.02), rng.uniform(0.0005, 0.003), most), rng.uniform(8, 40)


def _law(rng: random.Random) -> Callable[[random.Random], float]:
    kind = rng.choice(["constant", "uniform", "exponential", "lognormal"])
    sigma = rng.uniform(0.3, 0.9)
    return {
        "constant": lambda _: 1.0,
        "uniform": lambda one: one.uniform(0.3, 1.7),
        "exponential": lambda one: one.expovariate(1.0),
        "lognormal": lambda one: one.lognormvariate(-0.5 * sigma * sigma, sigma),
    }[kind]


def _workflow(rng: random.Random, work: float, call_s: float) -> Callable[[random.Random], Task]:
    law, tools, tool = _law(rng), _law(rng), call_s * math.exp(rng.uniform(math.log(0.3), math.log(12)))
    kind, few, many = rng.choice(["fixed", "two", "any"]), rng.randint(2, 4), rng.randint(6, 12)

    def drawn(one: random.Random) -> Task:
        calls = {"fixed": few + 1, "two": many if one.random() < 0.25 else few}.get(kind, 0)
        calls = calls or min(many, 1 + int(one.expovariate(1.0 / few)))
        return Task([work * law(one) for _ in range(calls)], [tool * tools(one) for _ in range(calls)], 0.2 * tool)

    return drawn


def draw(seed: int, number: int, metric: str = "runtime") -> World:
    """One of the worlds of a seed; all that have a bound on calls are workflows."""
    of_calls = metric != "runtime"
    rng = random.Random(f"{seed}/{metric}/{number}" if of_calls else f"{seed}/{number}")
    server, make, work = _server(rng)
    law = _law(rng)
    alone = run(make, 1, lambda _: Task([work], [0.0]), Loop(users=1), 200, 1)
    call_s = sum(each.end_s - each.due_s for each in alone) / 200
    agent = of_calls or bool(number % 2)
    kind, pause_s = ("workflow", 0.0) if agent else ("pauses", call_s * rng.uniform(1, 8))
    task = _workflow(rng, work, call_s) if agent else lambda one: Task([work * law(one)], [0.0])
    times = rng.uniform(1.25, 3.0)
    return _asked(World(number, kind, server, make, task, pause_s, Loop(), 0.0, times, metric), rng, call_s)


def _asked(world: World, rng: random.Random, call_s: float) -> World:
    """The world with a question about some replicas' worth of load."""
    edge = _edge(world, Loop(users=0, think=_pausing(world.pause_s)))
    wanted = edge * math.exp(rng.uniform(math.log(1.5), math.log(12)))
    ways = {"pauses": ("same", "none", "longer", "rate"), "workflow": ("none", "none", "pauses", "rate")}
    way = rng.choice(ways[world.kind])
    if way == "rate":
        found = run(world.make, 1, world.task, Loop(users=edge, think=_pausing(world.pause_s)), 1500, 5)
        span_s = found[-1].due_s - found[300].due_s
        return replace(world, asked=Loop(rate=float(f"{(len(found) - 300) / span_s * wanted / edge:.3g}")))
    pause_s = {"same": world.pause_s, "none": 0.0, "longer": 4 * world.pause_s, "pauses": 10 * call_s}[way]
    pause_s = float(f"{pause_s:.4g}")
    plain = edge if way == "same" else _edge(world, Loop(users=0, think=_pausing(pause_s)))
    users = max(2, round(wanted * plain / edge))
    return replace(world, asked=Loop(users=users, think=_pausing(pause_s)), asked_pause_s=pause_s)


def _pausing(mean_s: float) -> Callable[[random.Random], float] | None:
    return (lambda one: one.expovariate(1.0 / mean_s)) if mean_s else None


def _edge(world: World, loop: Loop) -> int:
    """Users that one replica just carries, about."""
    users = 1
    while users < 2000 and world.kept(1, Loop(users=users, think=loop.think), 800, 3) >= 0.95:
        users = max(users + 1, round(users * STEP))
    return max(1, round(users / STEP))


def truth(world: World) -> tuple[int, int | None]:
    """The fewest replicas that keep the bound, and a neighbour that is as right."""
    shares: dict[int, float] = {}

    def kept(replicas: int) -> float:
        if replicas not in shares:
            shares[replicas] = world.kept(replicas, world.asked, TRUE, 11)
        return shares[replicas]

    low, high = 0, 1
    while kept(high) < 0.95 and high < MOST:
        low, high = high, min(MOST, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) >= 0.95 else (middle, high)
    if kept(high) < 0.95:
        return 0, None
    if high > 1 and kept(high - 1) >= 0.95 - TIE:
        return high, high - 1
    return high, high + 1 if kept(high) < 0.95 + TIE else None


def judge(world: World, *, method: str = "auto") -> Verdict | None:
    """Measure one replica, ask, and hold the answer against the truth; None where no number of replicas keeps it."""
    true, tie = truth(world)
    if not true:
        return None
    levels: list[LevelData] = []
    users, missed, most = 1, 0, (1, 0.0)
    while missed < 2 and users < 3000:
        loop = Loop(users=users, think=_pausing(world.pause_s))
        found = run(world.make, 1, world.task, loop, max(MEASURED, 8 * users), 1000 + users, drain=True)
        levels.append(level_of(len(levels), users, found, pause_s=world.pause_s, calls=world.kind == "workflow"))
        judged = found[len(found) // 10 :]
        kept = [took_s <= world.bound_s for took_s in world.took_s(judged)]
        missed += sum(kept) < MISSED * len(kept)
        if sum(kept) >= 0.95 * len(kept):
            most = users, len(judged) / (judged[-1].end_s - judged[0].due_s)
        users = max(users + 1, round(users * STEP))
    [answer] = estimate(levels, world.question, method)
    asked = f"{world.asked.rate:g}/s" if world.asked.rate else f"{world.asked.users} pausing {world.asked_pause_s:g} s"
    model = str(answer.details.get("model") or answer.fallback or answer.reason or "")
    rule = math.ceil(world.asked.users / most[0] or world.asked.rate / most[1]) if most[1] else None
    said = answer.gpus, answer.gpus_low, answer.gpus_high
    kind = world.kind if world.metric == "runtime" else "calls"
    return Verdict(world.name, kind, world.server, asked, true, tie, *said, model, rule)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge all worlds, and print."""
    options = _options(arguments)
    began = time.monotonic()
    worlds = options.count
    of_calls = [("llm_latency", number) for number in range(worlds // CALLS)]
    drawn = [("runtime", number) for number in range(worlds)] + of_calls
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        every = list(pool.map(partial(_judged, options.seed, options.method), drawn))
    found = [each for each in every if each is not None]
    report = Report()
    _tables(report, found)
    report.text(f"{len(found)} worlds of seed {options.seed}, {time.monotonic() - began:.0f} s")
    if options.verbose:
        for each in found:
            print(each)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _judged(seed: int, method: str, which: tuple[str, int]) -> Verdict | None:
    metric, number = which
    return judge(draw(seed, number, metric), method=method)


def _tables(report: Report, found: Sequence[Verdict]) -> None:
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for each in found:
        for name in ("all", each.kind, f"{each.kind}, {each.server}", "at a rate" if "/s" in each.asked else "users"):
            groups[name].append(each)
    for each in found:
        groups[f"in proportion: {each.kind}"].append(each.by_rule)
    rows = []
    for name, group in sorted(groups.items()):
        said = [each for each in group if each.said]
        rows.append(
            (
                name,
                len(group),
                len(said),
                share([each.right for each in said]),
                share([abs(each.off()) <= 1 for each in said]),
                share([each.off() < 0 for each in said]),
                share([(each.low or 1) <= each.true <= (each.high or math.inf) for each in said]),
            )
        )
    header = ("worlds", "n", "answered", "exact", "within one", "too few", "interval holds")
    report.table("Agents and users who pause", header, rows)
    said = [each for each in found if each.said]
    report.bar(Bar("agents_within_one", share([abs(each.off()) <= 1 for each in said]), WITHIN_ONE, at_least=True))
    report.bar(Bar("agents_too_few", share([each.off() < 0 for each in said]), TOO_FEW, at_least=False))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    name = "python -m benches.estimates.agents"
    parser = argparse.ArgumentParser(prog=name, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments)
    options.command = " ".join([name, *(sys.argv[1:] if arguments is None else arguments)])
    return options


if __name__ == "__main__":
    sys.exit(main())
