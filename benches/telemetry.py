"""Whether estimates from scrapes alone hold: ``python -m benches.telemetry [--seeds 913] [--count 200] [--jobs 2]``.

Worlds and questions are drawn as the suite of estimates draws them: those that serve token by token with continuous
batching (the project's own mechanism, and two of ``rust/bench-worlds``: one bound by memory and then by computing, with
prompts in chunks, and one whose cache fills until somebody has to leave), whose replicas do not slow each other down,
and that need at most 20 replicas. Each serves a day in short: requests come at a rate that rises and falls, to 1 to 6
replicas, and the peak is drawn from a quarter of what a replica carries at the SLOs' edge to beyond it. What is left of
it are scrapes of vLLM's pages every 15 s (``benches.lib.scrapes``: its counters, gauges and bucket edges, 1 % of the
scrapes missed), and the question is asked of these. The answer that counts is ``benches.estimates.truth``'s.

The rule for refusals, from the world's side: one is right

- for the knee, or for want of loads, when no replica had over any five minutes, on the mean, 80 % of the requests in
  flight that a replica has at the edge of the right number: the pages have not seen what decides;
- for buckets, when no edge of the SLO's histogram lies within a factor of 1.5 of its bound, or the bound has no edge
  above it or none below;
- otherwise never.

The first one was by rates on the seed that the method was made on. Replicas that serve users are at their edge where
their rate hardly rises any more, so that a day may have 90 % of the edge's rate with half of the requests in flight;
that was changed before the seeds that count were looked at.

An answer counts as any other: within one replica of a right number or not, however little was seen.

The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benches.estimates.foreign import run_foreign
from benches.estimates.question import Visible
from benches.estimates.scenarios import Scenario, draw
from benches.estimates.truth import NoTruth, truth
from benches.estimates.worlds import ForeignWorld, OwnWorld
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.scrapes import ITL, REQUEST, TTFT, Served, scrape_times, scraped
from benches.prove import clopper_pearson
from gpusize.engine.session import core
from gpusize.estimate.methods import Question
from gpusize.estimate.telemetry.method import estimate_telemetry
from gpusize.records.series import scan_series

__all__ = ["Production", "day", "main", "world"]

SEEDS = (913,)
"""911, and 23 worlds of 912, were looked at while the method was made."""
COUNT = 200
WITHIN, RIGHT = 0.85, 0.95
MOST_REPLICAS = 20
KINDS = ("own", "roofline", "preempting")
MINUTES = (40.0, 120.0)
MOST_REQUESTS = 120_000
FEWEST_REQUESTS, MOST_S = 1_500, 12 * 3600.0
PEAK = (0.25, 1.15)
"""The day's largest rate, as a share of what a replica carries at the SLOs' edge."""
ENOUGH, OVER_S = 0.8, 300.0
"""From this part of the edge's requests in flight on, over so long on one replica, a refusal for the knee is wrong."""
WALL_NS = 1_790_000_000_000_000_000
EDGES = {"ttft": TTFT, "itl_mean": ITL, "runtime": REQUEST}


@dataclass(frozen=True)
class Production:
    """A day of one world.

    Attributes:
        replicas: that serve it.
        peak: its largest rate over what a replica carries at the edge.
        busiest: the most requests in flight on a replica over five minutes, over what a replica has at the edge.
        served: its requests.
        length_s: how long it is.
    """

    replicas: int
    peak: float
    busiest: float
    served: Served
    length_s: float


@dataclass(frozen=True)
class Outcome:
    """One world.

    Attributes:
        world: its name.
        kind: its mechanism.
        closed: whether the question is of users.
        slos: the question's.
        peak: of its day.
        busiest: of its day.
        right: right numbers of replicas.
        answer: replicas; None where it was refused.
        refusal: why; empty for an answer.
        justified: of a refusal, whether the rule calls it right.
        covered: of an answer, whether the interval holds a right number.
        width: of an answer, the interval's upper end over the lower; infinite where it is open.
        reason: the refusal's text.
        seconds: that the estimate took.
    """

    world: str
    kind: str
    closed: bool
    slos: str
    peak: float
    busiest: float
    right: tuple[int, ...]
    answer: int | None
    refusal: str
    justified: bool
    covered: bool
    width: float
    reason: str
    seconds: float

    @property
    def off(self) -> int:
        """Replicas by which the answer is off the nearest right number; negative for too few."""
        assert self.answer is not None
        return min((self.answer - each for each in self.right), key=abs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, serve, scrape, ask, compare, print."""
    options = _options(arguments)
    start_s = time.monotonic()
    tasks = [(seed, k) for seed in options.seeds for k in range(options.first, options.first + options.count)]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(_one, tasks):
            outcomes.append(found)
            if options.verbose:
                print(_line(found), file=sys.stderr, flush=True)
    report = Report()
    _tell(report, outcomes)
    print(f"{time.monotonic() - start_s:.0f} s", file=sys.stderr)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def world(seed: int, number: int) -> Scenario:
    """The world of a number: the first of a stretch of its own that serves as the bar asks for and has an answer."""
    for k in range(200):
        [found] = draw(seed, 1, first=200 * number + k)
        fits = found.kind in KINDS and found.expects == "answer" and found.hint <= MOST_REPLICAS
        if fits and "contention" not in found.traits:
            try:
                if truth(found).n is not None:
                    return found
            except NoTruth:
                continue
    raise AssertionError(f"no world: seed {seed}, number {number}")


def day(scenario: Scenario, rng: np.random.Generator) -> Production:
    """A day of production: a sine with slow noise on it, as long as its requests allow."""
    edge_per_s, at_once = _edge(scenario)
    peak, replicas = float(rng.uniform(*PEAK)), int(rng.integers(1, 7))
    length_s = 60 * float(rng.uniform(*MINUTES))
    # Of very fast servers fewer replicas are looked at, and for a shorter time.
    mean = 0.65 * peak * edge_per_s
    replicas = max(1, min(replicas, int(MOST_REQUESTS / (mean * length_s))))
    length_s = max(1200.0, min(length_s, MOST_REQUESTS / (mean * replicas)))
    # And where requests take minutes a day is a day.
    length_s = max(length_s, min(MOST_S, FEWEST_REQUESTS / (mean * replicas)))
    minutes = np.arange(np.ceil(length_s / 60) + 1)
    wave = 0.5 - 0.5 * np.cos(2 * np.pi * (minutes / minutes.size + rng.uniform(0, 1)))
    noise = np.exp(np.convolve(rng.normal(0, 0.25, minutes.size + 4), np.ones(5) / 5, "valid"))
    shape = (rng.uniform(0.15, 0.5) * (1 - wave) + wave) * noise
    rate = peak * edge_per_s * replicas * shape / shape.max()
    grid = np.arange(0, length_s, 1.0)
    counts = rng.poisson(np.interp(grid / 60, minutes, rate))
    due_s = np.sort(np.repeat(grid, counts) + rng.random(counts.sum()))
    served = _serve(scenario, due_s, replicas, int(rng.integers(1, 2**31)))
    return Production(replicas, peak, _busiest(served) / at_once, served, length_s)


def _busiest(served: Served) -> float:
    """The most requests in flight that one replica had on the mean over ``OVER_S``, every minute a new window."""
    most = 0.0
    for number in np.unique(served.replica):
        mine = served.of(int(number))
        for begin_s in np.arange(0.0, float(mine.end_s.max()), 60.0):
            there = np.minimum(mine.end_s, begin_s + OVER_S) - np.maximum(mine.due_s, begin_s)
            most = max(most, float(np.maximum(there, 0.0).sum()) / OVER_S)
    return most


def _edge(scenario: Scenario) -> tuple[float, float]:
    """Requests per second, and in flight, of a replica at the drawn edge."""
    visible, n = scenario.visible, scenario.hint
    load = max(1.0, round(scenario.edge * n)) if visible.users is not None else scenario.edge * n
    rows = scenario.world.run(
        visible.world_load(load, 4000 + round(8 * scenario.rounds(load)), round(4 * scenario.rounds(load))),
        gpus=n,
        seed=71,
    )
    ended = np.sort(rows.end_ns[~rows.warmup])
    inner = ended[ended.size // 20 : -max(1, ended.size // 20)]
    per_s = float((inner.size - 1) / (inner[-1] - inner[0]) * 1e9) / n
    took_s = float((rows.end_ns - rows.due_ns)[~rows.warmup].mean()) / 1e9
    return (per_s if visible.users is not None else scenario.edge), per_s * took_s


def _serve(scenario: Scenario, due_s: NDArray[np.float64], replicas: int, seed: int) -> Served:
    world = scenario.world
    if isinstance(world, OwnWorld):
        return _own(world, due_s, replicas, scenario.visible.router, seed)
    assert isinstance(world, ForeignWorld)
    return _foreign(world, due_s, replicas, scenario.visible.router, seed)


def _own(own: OwnWorld, due_s: NDArray[np.float64], replicas: int, router: str, seed: int) -> Served:
    config = {**own.config, "gpus": replicas, "router": router, "seed": seed}
    asked: dict[str, object] = {"arrivals": "plan"}
    table: dict[str, object] = {}
    if own.mix is None:
        asked["prompt_tokens"] = dict(own.prompt_tokens)
    else:
        pairs = np.array(own.mix, dtype="<u4")
        table = {"prompt_tokens": pairs[:, 0].tobytes(), "output_tokens": pairs[:, 1].tobytes(), "resample": True}
    planned = np.round(due_s * 1e9).astype("<i8")
    stream, _ = core().simulate(json.dumps(config), json.dumps(asked), due=planned.tobytes(), **table)
    rows = pl.DataFrame(stream).filter(pl.col("end_ns").is_not_null())
    due, start, first, end = (
        rows[name].to_numpy() / 1e9 for name in ("due_ns", "start_ns", "first_token_ns", "end_ns")
    )
    prompt, output = (rows[name].to_numpy().astype(np.int64) for name in ("prompt_tokens", "tokens_out"))
    held = np.ceil((prompt + output) / 16) / float(own.config["kv_blocks"])
    return Served(rows["gpu"].to_numpy().astype(np.int64), due, start, first, end, prompt, output, held)


def _foreign(world: ForeignWorld, due_s: NDArray[np.float64], replicas: int, router: str, seed: int) -> Served:
    load = {"due_s": due_s.tolist(), "requests": due_s.size, "warmup_requests": 0, "router": router}
    found = run_foreign({"world": dict(world.spec), "load": load, "gpus": replicas, "seed": seed})
    due, start, first, end = (found[name] / 1e9 for name in ("due_ns", "start_ns", "first_token_ns", "end_ns"))
    prompt, output = (found[name].astype(np.int64) for name in ("prompt_tokens", "tokens_out"))
    config = world.spec["mechanics"]["batching"]
    # A cache that fills token by token holds half of the answer on the mean.
    tokens = prompt + (output / 2 if config.get("grow") else output)
    return Served(found["gpu"].astype(np.int64), due, start, first, end, prompt, output, tokens / config["kv_tokens"])


def _one(task: tuple[int, int]) -> Outcome:
    seed, number = task
    scenario = world(seed, number)
    rng = np.random.default_rng([seed, number, 77])
    found = day(scenario, rng)
    times = [scrape_times(rng, 0.0, found.length_s) for _ in range(found.replicas)]
    with tempfile.TemporaryDirectory() as place:
        # As a pull leaves it, and read as any pull.
        parts = Path(place) / "series.parquet"
        parts.mkdir()
        scraped(found.served, times, wall_ns=WALL_NS).write_parquet(parts / "part-000001.parquet")
        start_s = time.monotonic()
        answer = estimate_telemetry(scan_series(Path(place)), _question(scenario.visible))
        seconds = time.monotonic() - start_s
    right = truth(scenario).right
    per = scenario.visible.gpus_per_replica
    refusal = str(answer.details.get("refusal") or "") if answer.gpus is None else ""
    low, high = answer.gpus_low or 0, answer.gpus_high
    return Outcome(
        scenario.name, scenario.kind, scenario.visible.users is not None, " ".join(map(str, scenario.visible.slos)),
        found.peak, found.busiest, right, None if answer.gpus is None else answer.gpus // per, refusal,
        _justified(refusal, found.busiest, scenario.visible),
        any(low <= per * each <= (high or 10**9) for each in right),
        (high or np.inf) / max(1, low), answer.reason or "", seconds,
    )  # fmt: skip


def _question(visible: Visible) -> Question:
    return Question(
        users=float(visible.users or 0),
        slos=visible.slos,
        gpus_per_replica=visible.gpus_per_replica,
        rate=visible.rate,
        think_s=visible.think_s,
        think=visible.think,
        router=visible.router,
        process=visible.process,
        together=visible.goodput,
    )


def _justified(refusal: str, busiest: float, visible: Visible) -> bool:
    """By the rule at the head of this file."""
    if refusal in ("knee", "loads"):
        return busiest < ENOUGH
    if refusal == "buckets":
        return any(_coarse(slo.metric, slo.bound) for slo in visible.slos)
    return False


def _coarse(metric: str, bound: float) -> bool:
    edges = np.array(EDGES[metric])
    if bound < edges[0] or bound > edges[-1]:
        return True
    return not bool((np.abs(np.log(edges / bound)) <= np.log(1.5)).any())


def _tell(report: Report, outcomes: Sequence[Outcome]) -> None:
    groups = {
        "all": list(outcomes),
        "users": [each for each in outcomes if each.closed],
        "a rate": [each for each in outcomes if not each.closed],
        **{kind: [each for each in outcomes if each.kind == kind] for kind in sorted({o.kind for o in outcomes})},
        "in flight below 40 % of the edge": [each for each in outcomes if each.busiest < 0.4],
        "40 to 80 %": [each for each in outcomes if 0.4 <= each.busiest < ENOUGH],
        "80 % and more": [each for each in outcomes if each.busiest >= ENOUGH],
    }
    header = [
        "worlds",
        "n",
        "answered",
        "exact",
        "within one",
        "too few by more",
        "interval holds",
        "refused",
        "rightly",
    ]
    report.table("estimates from scrapes every 15 s", header, [[name, *_row(o)] for name, o in groups.items() if o],
                 f"{len(outcomes)} worlds of at most {MOST_REPLICAS} replicas; the rule for refusals is in the head of "
                 f"benches/telemetry.py; peaks from {PEAK[0]:.0%} to {PEAK[1]:.0%} of the edge.")  # fmt: skip
    answered, refused = _split(outcomes)
    report.bar(Bar("telemetry_within_one", clopper_pearson(sum(abs(e.off) <= 1 for e in answered), len(answered)),
                   WITHIN, at_least=True))  # fmt: skip
    report.bar(Bar("telemetry_refused_rightly", clopper_pearson(sum(e.justified for e in refused), len(refused)),
                   RIGHT, at_least=True))  # fmt: skip
    why = Counter(each.refusal for each in refused)
    report.text("refused for: " + (", ".join(f"{name} {n}" for name, n in why.most_common()) or "nothing"))
    report.text(f"seconds of an estimate: median {np.median([e.seconds for e in outcomes]):.1f}, "
                f"most {max(e.seconds for e in outcomes):.1f}")  # fmt: skip
    for each in outcomes:
        if (each.answer is not None and abs(each.off) > 1) or (each.answer is None and not each.justified):
            print(f"wrong: {_line(each)}", file=sys.stderr)


def _split(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    return [e for e in outcomes if e.answer is not None], [e for e in outcomes if e.answer is None]


def _row(found: Sequence[Outcome]) -> list[object]:
    answered, refused = _split(found)
    return [
        len(found), len(answered), sum(e.off == 0 for e in answered), sum(abs(e.off) <= 1 for e in answered),
        sum(e.off < -1 for e in answered), sum(e.covered for e in answered), len(refused),
        sum(e.justified for e in refused),
    ]  # fmt: skip


def _line(each: Outcome) -> str:
    told = f"refused ({each.refusal}, {'right' if each.justified else 'WRONG'}): {each.reason[:150]}"
    if each.answer is not None:
        told = f"{each.answer} off {each.off:+d} covered {each.covered} width {each.width:.2f}"
    where = f"{each.world} {each.kind} peak {each.peak:.2f} busiest {each.busiest:.2f} [{each.slos}] right {each.right}"
    return f"{where}: {told} ({each.seconds:.1f} s)"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.telemetry")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="by comma")
    parser.add_argument("--count", type=int, default=COUNT, help="worlds per seed")
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--verbose", action="store_true", help="a line for each world")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.command = " ".join(["python -m benches.telemetry", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
