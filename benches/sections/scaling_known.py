"""The method scaling on data whose answer is known: seeded laws, a study, and another tool's sweeps."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.host import ROOT
from benches.lib.stats import Interval
from benches.sections.scaling_triton import Answer, forecast, two_count_faults
from gpusize.estimate.laws import USL, Count, Law, Point, count_for
from gpusize.estimate.methods import Question, estimate
from gpusize.studies.imports.perf_analyzer import read_perf_analyzer

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["known"]

FIXTURES = ROOT / "tests" / "fixtures"
NOISE = 0.02
SEEDED = (
    (Law(USL, 100.0, 0.05, 0.002), (1, 2, 4, 8, 16)),
    (Law(USL, 100.0, 0.02, 0.0005), (1, 2, 4, 8, 16, 32)),
    (Law(USL, 100.0, 0.10, 0.0), (1, 2, 4, 8)),
)
"""Laws, and the counts at which each is measured with 2 % noise."""
BEYOND = 1.2
"""Wanted: so many times what the largest measured count carries, where the law reaches it."""
TRACCC_RATE = 40.0
INSTANCES = (1, 2, 4)


def known(ctx: Context) -> None:
    """Seeded laws, traccc's table, and perf_analyzer's sweeps of 1, 2 and 4 instances."""
    _seeded(ctx)
    _traccc(ctx)
    _sweeps(ctx)


def _seeded(ctx: Context) -> None:
    rows: list[list[object]] = []
    parameters, counts = [], []
    seeds = ctx.size(400, 20)
    for law, at in SEEDED:
        wanted = min(BEYOND * law.at(at[-1]), 0.98 * law.limit)
        true = law.smallest(wanted)
        found = [count_for(_measured(law, at, seed), wanted) for seed in range(seeds)]
        fits = [each.fit for each in found]
        shares = [
            sum(low <= law.sigma <= high for low, high in (each.sigma for each in fits)) / seeds,
            sum(low <= law.kappa <= high for low, high in (each.kappa for each in fits)) / seeds,
        ]
        inside = sum(_covers(each, true) for each in found)
        parameters += shares
        counts.append(inside / seeds)
        middle = [f"{median(each.law.sigma for each in fits):.3f}", f"{median(each.law.kappa for each in fits):.4f}"]
        name = f"sigma {law.sigma:g}, kappa {law.kappa:g}; {', '.join(map(str, at))}"
        rows.append([name, *middle, *(f"{share:.1%}" for share in shares), true, f"{inside / seeds:.1%}"])
    header = ["law; counts", "median sigma", "median kappa", "sigma covered", "kappa covered", "count", "count covered"]
    note = (
        f"{seeds} seeds of {NOISE:.0%} normal noise each. Count: the smallest that carries {BEYOND} times what the "
        "largest measured one does."
    )
    ctx.report.table("Seeded laws", header, rows, note)
    ctx.report.bar(Bar("scaling_seeded_coverage_least", Interval.exact(min(parameters)), 0.9, at_least=True))
    ctx.report.bar(Bar("scaling_seeded_count_coverage_least", Interval.exact(min(counts)), 0.93, at_least=True))


def _covers(found: Count, true: int | None) -> bool:
    """Whether the interval of the count holds the true one; open above where it has no upper end."""
    return true is not None and found.low is not None and found.low <= true <= (found.high or true)


def _measured(law: Law, counts: Sequence[int], seed: int) -> list[Point]:
    draws = random.Random(seed)
    return [Point(n, law.at(n) * (1 + NOISE * draws.gauss(0, 1)), law.at(n) * NOISE) for n in counts]


def _traccc(ctx: Context) -> None:
    rows = json.loads((FIXTURES / "traccc" / "scaling.json").read_text(encoding="utf-8"))["rows"]
    levels: list[LevelData] = []
    with tempfile.TemporaryDirectory(dir=ctx.scratch) as folder:
        for gpus in (1, 4):
            path = Path(folder, f"{gpus}.csv")
            lines = [",".join(map(str, row[1:6])) for row in rows if row[0] == gpus]
            head = "Concurrency,Inferences/Second,Server Queue,Server Compute Infer,p50 latency"
            path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
            levels += read_perf_analyzer(path, gpus=gpus).levels
    inside, hosts = _asked(levels, TRACCC_RATE), _asked(levels, TRACCC_RATE, host_gpus=4)
    table = [
        [name, told["gpus"], told["gpus_low"], told["gpus_high"] or "open", ", ".join(map(str, told["next_counts"]))]
        for name, told in (("more GPUs in that host", inside.told), ("whole hosts of 4", hosts.told))
    ]
    header = ["way", "GPUs", "at least", "at most", "measure next"]
    ctx.report.table(f"traccc's study, {TRACCC_RATE:g} events/s from 1 and 4 GPUs", header, table)
    faults = len(two_count_faults(inside.told)) + (inside.told["gpus"] != 17) + (hosts.told["gpus"] != 8)
    ctx.report.bar(Bar("scaling_traccc_faults", Interval.exact(faults), 0))


def _sweeps(ctx: Context) -> None:
    """What perf_analyzer measured, and the server's compute times as it printed them."""
    parts = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
    levels, can_do = {}, {}
    for n in INSTANCES:
        levels[n] = read_perf_analyzer(FIXTURES / "perf_analyzer" / f"inst{n}_c1-8.csv", gpus=n).levels
        full = [each for each in levels[n] if (each.concurrency or 0) >= 2 * n]
        told_s = [1e-6 * sum(each.meta["perf_analyzer"][part] for part in parts) for each in full]
        can_do[n] = n * len(told_s) / sum(told_s)
    every = _asked([each for n in INSTANCES for each in levels[n]], 100.0)
    two = _asked([each for n in INSTANCES[:2] for each in levels[n]], 1.5 * every.capacities[4])
    rows = [
        [n, *(f"{rate:.2f}" for rate in (every.capacities[n], every.law.at(n), two.law.at(n), can_do[n]))]
        for n in INSTANCES
    ]
    header = ["instances", "capacity, inferences/s", "fitted to all", "fitted to 1 and 2", "can do"]
    ctx.report.table("perf_analyzer's sweeps, imported", header, rows, "Can do: as in the section triton.")
    errors = [max(abs(r / can_do[n] - 1) for r in (every.capacities[n], every.law.at(n))) for n in INSTANCES]
    ctx.report.bar(Bar("scaling_import_capacity_error", Interval.exact(max(errors)), 0.05))
    ahead = abs(forecast(two, every) - 1)
    ctx.report.bar(Bar("scaling_import_four_from_one_and_two_error", Interval.exact(ahead), 0.10))


def _asked(levels: Sequence[LevelData], rate: float, host_gpus: int | None = None) -> Answer:
    question = Question(0, (), rate=rate, host_gpus=host_gpus)
    [found] = estimate(list(levels), question, "scaling")
    return Answer(found.to_json())
