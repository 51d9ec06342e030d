"""Stages that follow at once: where each begins, when its requests are due, and when the first of them are sent."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from benches.client import level_plan, target_spec
from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.loads import open_load
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import plain
from benches.lib.turns import whole_range
from benches.sections.truth import real_time

__all__ = ["boundaries"]

RATES = (1_000.0, 2_000.0)
STAGES, STAGES_QUICK = 40, 8
STAGE_NS = 250_000_000
FIRST = 5
"""So many requests of a stage tell when it began to send."""
ROUNDS = 4
BOUND_MS = 1.0

# In a process of its own: one session, every stage queued before the first ends, and all held against the schedule.
_STAGES = """
import json, sys
import numpy as np, polars as pl
from gpusize import _core
asked = json.loads(sys.argv[1])
session = _core.Session(json.dumps(asked['target']), '[]', [[]])
levels = [session.level(json.dumps(plan)) for plan in asked['plans']]
outcomes = []
for level in levels:
    while not level.wait(1.0):
        pass
    outcomes.append(json.loads(level.outcome()))
rows = [pl.DataFrame(level.rows()).sort('seq') for level in levels]
session.close()
wrong_starts = differences = requests = 0
first_ms = []
for number, (plan, outcome, found) in enumerate(zip(asked['plans'], outcomes, rows)):
    due = pl.DataFrame(_core.schedule(json.dumps(plan), 1))['due_ns'].to_numpy()
    requests += due.size
    if number:
        before = outcomes[number - 1]['start_ns'] + asked['plans'][number - 1]['stop']['duration_ns']
        wrong_starts += int(outcome['start_ns'] != before)
        late = (found['sent_ns'] - found['due_ns']).to_numpy()[: asked['first']]
        first_ms.append(float(late.max()) / 1e6)
    same = found.height == due.size and found['seq'].to_list() == list(range(due.size))
    exact = same and bool((found['due_ns'].to_numpy() - outcome['start_ns'] == due).all())
    answered = set(outcome['outcomes']) == {'ok'}
    differences += 0 if exact and answered else max(1, abs(found.height - due.size))
print(json.dumps({'build': _core.BUILD_PROFILE, 'requests': requests, 'wrong_starts': wrong_starts,
                  'differences': differences, 'first_ms': first_ms}))
"""


@dataclass(frozen=True)
class Round:
    """One run of stages: how late the first requests after each boundary were sent, and what differed from the plan."""

    requests: int
    wrong_starts: int
    differences: int
    first_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Over the boundaries."""
        ordered = sorted(self.first_ms)
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def boundaries(ctx: Context) -> None:
    """Rounds of stages of a quarter of a second; the bar is on the worst round's median, the worst boundary is told."""
    stages = ctx.size(STAGES, STAGES_QUICK)
    before = CpuTimes.now()
    with real_time() as alone, LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        rounds = [_round(ctx, server.port, stages) for _ in range(ctx.size(ROUNDS, 2))]
    steal = CpuTimes.now().steal_share(before)
    medians = [each.median_ms for each in rounds]
    worst = [max(each.first_ms) for each in rounds]
    wrong, differ = sum(each.wrong_starts for each in rounds), sum(each.differences for each in rounds)
    rows: list[list[object]] = [
        ["median boundary, ms", whole_range(medians)],
        ["worst boundary, ms", whole_range(worst)],
        ["stages that did not start at the ns", wrong],
        ["requests that differ from the schedule", differ],
    ]
    within = sum(ms <= BOUND_MS for each in rounds for ms in each.first_ms)
    note = (
        f"{len(rounds)} rounds of {stages} stages of {plain(STAGE_NS / 1e9)} s, {plain(RATES[0])}/s and "
        f"{plain(RATES[1])}/s in turn, {sum(each.requests for each in rounds)} requests. A boundary is as late as the "
        f"latest of the {FIRST} first requests after it was sent after it was due; {within} of "
        f"{len(rounds) * (stages - 1)} kept {plain(BOUND_MS)} ms. Value: the median round, interval: the whole range. "
        + ("Both sides have real-time priority. " if alone else "Both sides share the cores with whatever else runs. ")
        + f"Steal meanwhile: {100 * steal:.2f} %."
    )
    ctx.report.table("stages that follow at once", ["", "over rounds"], rows, note)
    ctx.report.bar(Bar("stage_boundary_ms", whole_range(medians), BOUND_MS, "ms"))
    ctx.report.bar(Bar("stage_start_differences", whole_range([float(wrong)]), 0.0))
    ctx.report.bar(Bar("stage_schedule_differences", whole_range([float(differ)]), 0.0))


def _round(ctx: Context, port: int, stages: int) -> Round:
    plans = [
        level_plan(open_load(RATES[k % 2]), {"duration_ns": STAGE_NS}, None, visit=k, seed=1 + k) for k in range(stages)
    ]
    asked = json.dumps({"target": target_spec(port), "plans": plans, "first": FIRST})
    finished = run_measured(pinned([sys.executable, "-c", _STAGES, asked], ctx.client_core), timeout_s=120)
    said = json.loads(finished.stdout)
    if said.pop("build") != "release":
        raise BenchFailed("the extension is no release build: make setup builds it for release")
    found = Round(**{**said, "first_ms": tuple(said["first_ms"])})
    say(f"boundaries: median {found.median_ms:.3f} ms, worst {max(found.first_ms):.3f} ms")
    return found
