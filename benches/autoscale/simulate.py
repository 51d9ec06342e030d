"""How long a day under a policy takes to simulate: ``python -m benches.autoscale.simulate [--requests 1000000]``.

A day with a night without requests, on replicas with continuous batching that KEDA and its HPA add and remove, down to
none. Policies are an ordinary one, one by three triggers and a formula over queue, tokens and first tokens, and an HPA
alone; each is simulated and judged as `gpusize autoscale simulate` does for its courses. Tables go to standard output,
and with ``--record`` to benches/RESULTS.md. The exit code is 1 when the bar is short.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benches.lib.bars import Bar, exit_code
from benches.lib.context import say
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
from gpusize.estimate.plan.autoscale.signals import signal
from gpusize.estimate.plan.over_time.demand import Demand
from gpusize.estimate.plan.over_time.simulate import serve_scaled
from gpusize.estimate.twin.batching_model import Service
from gpusize.estimate.twin.simulate import Batching, TimeBound

MOST_S = 10.0
DAY_S = 86_400.0
MOST_REPLICAS = 40
FIRST_TOKEN = "histogram_quantile(0.9, sum by (le) (rate(ttft_seconds_bucket[1m])))"


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print."""
    options = _options(arguments)
    report = Report()
    simulate_day(report, requests=options.requests, repeats=options.repeats)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def simulate_day(report: Report, *, requests: int = 1_000_000, repeats: int = 3) -> None:
    """Simulate a day of so many requests under each policy, and add the table and the bar of the slowest policy."""
    rnd = np.random.default_rng(1)
    replica, demand = _replica(rnd), _day(rnd, requests)
    rows: list[list[object]] = []
    slowest = Interval(0.0, 0.0, 0.0)
    for policy in _policies():
        made = [_simulated(replica, demand, policy) for _ in range(repeats)]
        walls = [each[0] for each in made]
        served, schedule, decided = made[0][2]
        say(f"{policy.name}: {min(walls):.2f} s")
        hours = (schedule.replica_s(DAY_S) + served.draining_s) / 3600
        shares = ", ".join(f"{share:.4f}" for share in served.shares())
        held = [sum(decided.decisions.values()) + sum(decided.polls.values()), decided.held, f"{hours:.1f}", shares]
        work = max(each[1] for each in made)
        rows.append([policy.name, plain(min(walls)), plain(max(walls)), plain(work), schedule.peak, *held])
        each = Interval(float(np.median(walls)), min(walls), max(walls))
        slowest = max(slowest, each, key=lambda interval: interval.hi)
    header = ["policy", "least, s", "most, s", "CPU, s", "peak", "decisions", "held", "replica-hours", "within"]
    note = f"{demand.due_ns.size:,} requests of a day, {repeats} times each; GPUs with batches of up to 64."
    report.table("a day simulated under a policy", header, rows, note)
    report.bar(Bar("simulate_day", slowest, MOST_S, "s"))


def _simulated(replica: Batching, demand: Demand, policy: Autoscaler) -> tuple[float, float, Any]:
    """Seconds, those of CPU, and what came of it."""
    began, worked = time.perf_counter(), time.process_time()
    found = serve_scaled(replica, demand, policy, 0, start_delay_s=90.0, router="least_loaded")
    return time.perf_counter() - began, time.process_time() - worked, found


def _replica(rnd: np.random.Generator) -> Batching:
    """One that serves some 5 requests a second."""
    prompts = rnd.lognormal(6.0, 0.6, 20_000).clip(16, 8000).astype(np.uint32)
    answers = rnd.lognormal(4.8, 0.5, 20_000).clip(4, 1500).astype(np.uint32)
    service = Service(0.012, 0.0002, 0.00002, 64, 200_000)
    rates = np.minimum(5.0, 0.4 * np.arange(1, 65))
    return Batching(
        service, (TimeBound("ttft", 2.0), TimeBound("runtime", 20.0)), False, prompts, answers, rates, (1.0, 1.0)
    )


def _day(rnd: np.random.Generator, requests: int) -> Demand:
    """From six in the morning to midnight, most at noon."""
    hours = np.arange(24 * 60) / 60
    weights = np.clip(np.sin(np.pi * (hours - 6) / 18), 0, None)
    counts = rnd.poisson(requests * weights / weights.sum())
    due = np.repeat(np.arange(24 * 60) * 60.0, counts)
    due = np.sort(due + rnd.uniform(0, 60, due.size))
    return Demand("a day", (due * 1e9).astype(np.int64), DAY_S)


def _policies() -> list[Autoscaler]:
    def external(target: int) -> dict[str, Any]:
        return {"source": "external", "target": {"average_value": target}}

    def trigger(name: str, target: int) -> dict[str, Any]:
        told = {"activation": 0.0, "use_cached": False, "ignore_null": True}
        return {"name": name, "target": {"average_value": target}, **told}

    def keda(triggers: list[dict[str, Any]], formula: str | None = None) -> dict[str, Any]:
        modifiers = {"formula": formula, "target": "1", "activation": 0.0, "is_value": False}
        fallback = {"failure_threshold": 3, "replicas": 8, "behavior": "static"}
        bounds = {"min_replicas": 0, "idle_replicas": None, "cooldown_s": 300, "initial_cooldown_s": 0}
        rest = {"fallback": fallback, "modifiers": modifiers if formula else None, "polling_s": 30.0}
        return {"triggers": triggers, **bounds, **rest}

    def made(name: str, metrics: list[Any], queries: list[str], scaled: dict[str, Any] | None) -> Autoscaler:
        least = 0 if scaled is None else 1
        policy = {"min_replicas": least, "max_replicas": MOST_REPLICAS, "metrics": metrics, "behavior": None}
        return Autoscaler(name, policy, tuple(signal(each, name) for each in queries), keda=scaled)

    queue = "sum(in_flight) + held or held"
    formula = "queue > 0 ? max(queue / 20, tokens / 4000, (ttft ?? 0) > 1.5 ? queue / 10 : 0) : 0"
    triggers = [trigger("queue", 1000), trigger("tokens", 1000), trigger("ttft", 1000)]
    tokens = "sum(rate(prompt_tokens[1m])) + sum(rate(output_tokens[1m]))"
    return [
        made("KEDA", [external(20_000)], [queue], keda([trigger("queue", 20_000)])),
        made("KEDA, formula", [external(1000)], ["unanswered", tokens, FIRST_TOKEN], keda(triggers, formula)),
        made("HPA alone", [external(20_000)], ["unanswered"], None),
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.autoscale.simulate")
    parser.add_argument("--requests", type=int, default=1_000_000, help="of the day")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.autoscale.simulate", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
