"""Due times in virtual time: whether gaps and counts are those of the process, whatever the number of workers."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.procs import BenchFailed, run_measured
from benches.lib.stats import Interval

__all__ = ["Process", "dispersion_of", "processes"]

LEVEL = 0.001
MOST_DISPERSION_ERROR = 0.02
WORKERS = (1, 2, 8)
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Process:
    """An arrival process under test.

    Attributes:
        name: of the engine's Arrivals.
        shape: of its gaps.
        window: length of the windows in which arrivals are counted, in mean gaps: long against the process's memory.
        changing: the rate ramps, bursts and pauses, and the test is in operational time.
    """

    name: str
    shape: float
    window: float
    changing: bool = False

    @property
    def title(self) -> str:
        """For tables."""
        shape = "" if self.shape == 1 else f", shape {self.shape:g}"
        return f"{self.name}{shape}{', rate changing' if self.changing else ''}"


PROCESSES = (
    Process("poisson", 1.0, 10.0),
    Process("gamma", 0.5, 20.0),
    Process("gamma", 4.0, 10.0),
    Process("poisson", 1.0, 10.0, changing=True),
    Process("gamma", 0.5, 20.0, changing=True),
)

# Per second: up, flat, a pause, a burst, down; again and again.
CHANGING = [(0.5, 0.0, 2000.0), (0.2, 2000.0, 2000.0), (0.3, 0.0, 0.0), (0.1, 5000.0, 5000.0), (0.4, 1500.0, 0.0)]

# In a process of its own, so that its arrays are no neighbours of the next measurement.
_SCHEDULE = """
import json, math, sys, time
import numpy as np, polars as pl
from gpusize import _core
asked = json.loads(sys.argv[1])

def due(worker=0, workers=1):
    found = pl.DataFrame(_core.schedule(json.dumps(asked['plan']), 7, worker=worker, workers=workers))
    return found.select('index', 'stream', 'seq', 'due_ns', 'row')

def operational(due_s):
    at, before, total = [0.0], [0.0], 0.0
    for length, low, high in asked['phases']:
        total += length * (low + high) / 2
        at.append(at[-1] + length)
        before.append(total)
    starts, lows = np.array(at[:-1]), np.array([low for _, low, _ in asked['phases']])
    slopes = np.array([(high - low) / length for length, low, high in asked['phases']])
    rounds, into = np.divmod(due_s, at[-1])
    piece = np.searchsorted(starts, into, 'right') - 1
    after = into - starts[piece]
    return rounds * total + np.array(before)[piece] + after * (lows[piece] + slopes[piece] * after / 2)

began = time.process_time()
walked = _core.schedule_count(json.dumps(asked['plan']), 7)
cpu_s = time.process_time() - began
whole = due()
times = operational(whole['due_ns'].to_numpy() / 1e9)
gaps = np.diff(times, prepend=0.0)[: asked['gaps']]
x = asked['shape'] * np.clip(gaps, 0, None)
if asked['shape'] == 0.5:
    wanted = np.vectorize(math.erf, otypes=[float])(np.sqrt(x))
else:
    terms = np.stack([x**k / math.factorial(k) for k in range(int(asked['shape']))])
    wanted = 1 - np.exp(-x) * terms.sum(axis=0)
wanted.sort()
rank = np.arange(len(wanted))
distance = max(np.max((rank + 1) / len(wanted) - wanted), np.max(wanted - rank / len(wanted)))
counts = np.bincount((times / asked['window']).astype(int))[: asked['windows']]
differences = 0
for workers in asked['workers']:
    merged = pl.concat([due(worker, workers) for worker in range(workers)]).sort('index')
    same = merged.height == whole.height
    differs = [(merged[name] != whole[name]).sum() for name in whole.columns] if same else [max(1, whole.height)]
    differences += max(differs)
print(json.dumps({'gaps': len(gaps), 'windows': len(counts), 'distance': float(distance),
                  'dispersion': float(counts.var(ddof=1) / counts.mean()), 'differences': int(differences),
                  'arrivals': walked, 'cpu_s': cpu_s}))
"""


def dispersion_of(shape: float, window: float) -> float:
    """Variance over mean of the counts of gamma gaps of mean 1 in windows long against the process's memory.

    D. R. Cox, Renewal Theory (1962), section 4.5: the variance of an equilibrium process of gaps of mean 1, variance v
    and third central moment m is ``v t + 1/6 + v**2 / 2 - m / 3`` up to terms that vanish exponentially; for gamma gaps
    v is 1 / shape and m is 2 / shape**2. Poisson is shape 1, where it is 1 at any length.
    """
    return 1 / shape + (1 - 1 / shape**2) / (6 * window)


def p_value(distance: float, samples: int) -> float:
    """Of the two-sided Kolmogorov-Smirnov test, by the limiting distribution (Kolmogorov 1933)."""
    scaled = distance * math.sqrt(samples)
    # The series alternates, and converges badly where the value is 1 in any case.
    if scaled < 0.2:
        return 1.0
    return min(1.0, 2 * math.fsum((1 if k % 2 else -1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101)))


def processes(ctx: Context) -> None:
    """10^6 gaps and 10^5 windows of each process at three fixed seeds; one seed with workers 1, 2 and 8."""
    gaps, windows = ctx.size(1_000_000, 50_000), ctx.size(100_000, 2_000)
    seeds = SEEDS[: ctx.size(len(SEEDS), 1)]
    rows: list[list[object]] = []
    values: list[float] = []
    errors: list[float] = []
    differences = 0
    for process in PROCESSES:
        found = [_found(process, seed, gaps, windows, WORKERS if seed == seeds[0] else ()) for seed in seeds]
        wanted = dispersion_of(process.shape, process.window)
        mine = [p_value(each["distance"], each["gaps"]) for each in found]
        off = [abs(each["dispersion"] / wanted - 1) for each in found]
        values += mine
        errors += off
        differences += sum(each["differences"] for each in found)
        cpu_ns = min(each["cpu_s"] / each["arrivals"] for each in found) * 1e9
        rows.append(
            [process.title, f"{min(mine):.3f}", f"{wanted:.4f}", _range(found), f"{max(off):.4f}", f"{cpu_ns:.0f}"]
        )
        say(f"processes: {process.title}: least p {min(mine):.3f}, dispersion off by {max(off):.4f} at most")
    ctx.report.table(
        f"arrival processes in virtual time, {gaps} gaps and {windows} windows, seeds {', '.join(map(str, seeds))}",
        [
            "process",
            "least p value",
            "index of dispersion, by formula",
            "found",
            "largest error",
            "CPU of the walk, ns per arrival",
        ],
        rows,
        "Kolmogorov-Smirnov of gaps in operational time. Dispersion by Cox's formula for renewal processes. "
        f"Schedules of {', '.join(map(str, WORKERS))} workers, merged, differ "
        f"from the single one in {differences} arrivals.",
    )
    ctx.report.bar(Bar("processes_rejected_at_0.001", Interval.exact(sum(p < LEVEL for p in values)), 0.0))
    # A quick run counts in too few windows for the bound of the full one: five standard errors instead.
    bound = MOST_DISPERSION_ERROR if not ctx.quick else 5 * math.sqrt(2 / windows)
    ctx.report.bar(Bar("processes_dispersion_error", Interval.exact(max(errors)), bound))
    ctx.report.bar(Bar("processes_merge_differences", Interval.exact(differences), 0.0))


def _range(found: list[dict[str, Any]]) -> str:
    values = [each["dispersion"] for each in found]
    return f"{min(values):.4f} to {max(values):.4f}"


def _found(process: Process, seed: int, gaps: int, windows: int, workers: tuple[int, ...]) -> dict[str, Any]:
    phases = CHANGING if process.changing else [(3600.0, 1000.0, 1000.0)]
    rate = {
        "phases": [{"duration_ns": round(length * 1e9), "from": low, "to": high} for length, low, high in phases],
        "repeat": True,
        "process": process.name,
        "shape": process.shape,
    }
    plan = {
        "visit": 0,
        "seed": seed,
        "load": {"open": {"streams": [{"arrivals": {"rate": rate}}]}},
        "stop": {"count": max(gaps, round(1.05 * windows * process.window))},
        "order": "shuffled",
    }
    asked = {
        "plan": plan,
        "phases": phases,
        "shape": process.shape,
        "window": process.window,
        "gaps": gaps,
        "windows": windows,
        "workers": workers,
    }
    said: dict[str, Any] = json.loads(run_measured([sys.executable, "-c", _SCHEDULE, json.dumps(asked)]).stdout)
    if said["gaps"] != gaps or said["windows"] != windows:
        raise BenchFailed(f"{gaps} gaps and {windows} windows were asked for, found {said}")
    return said
