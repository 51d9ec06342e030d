"""The method scaling beside a real Triton: capacities, a forecast and two counts against the server's own times."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.host import ROOT
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.lib.stats import Interval, plain
from benches.lib.turns import whole_range
from benches.sections.triton import Counters
from benches.sections.truth import real_time
from gpusize.estimate.laws import Law
from tests.servers.child import ChildFailed
from tests.servers.pytriton import PyTriton

__all__ = ["Answer", "Round", "forecast", "mean_compute_s", "triton", "two_count_faults"]

INSTANCES = (1, 2, 4)
IN_FLIGHT = (1, 4, 8, 16, 24)
"""Of four instances three of these are full, so that throughput is seen to level off."""
FULL = 2
"""With so many in flight for each instance, none is ever idle."""
ROUNDS = 3
LEVEL_S = 6
"""So that the steady part of a level has the 160 requests whose scatter tells the error of its throughput."""
AGREE = 0.02
MORE = 1.5
CAPACITY_BOUND = 0.05
FORECAST_BOUND = 0.10
HEADER = (
    "round",
    "instances",
    "capacity, requests/s",
    "fitted",
    "can do",
    "capacity / can do",
    "fitted / can do",
    "compute ms",
)
TWO_HEADER = ("round", "sigma", "4 by it, requests/s", "measured", "ratio", "asked", "answer", "measure next")


@dataclass(frozen=True)
class Answer:
    """What ``gpusize estimate --method scaling --json`` says."""

    told: Mapping[str, Any]

    @property
    def capacities(self) -> dict[int, float]:
        """Requests per second by count, as measured."""
        return {int(each["gpus"]): float(each["capacity"]) for each in self.told["details"]["counts"]}

    @property
    def law(self) -> Law:
        """The curve through them."""
        law = self.told["details"]["law"]
        return Law(law["name"], law["one"], law["sigma"], law["kappa"])


@dataclass(frozen=True)
class Round:
    """A sweep of each count: the answer from all, that from the first two, and mean compute times by count."""

    all: Answer
    two: Answer
    compute_s: Mapping[int, float]

    def can_do(self, count: int) -> float:
        """Inferences per second of instances that are never idle, by the server's own times."""
        return count / self.compute_s[count]

    @property
    def error(self) -> float:
        """How far measured and fitted capacities are from it at most, relative."""
        found = self.all.capacities
        each = [(found[count], count) for count in found] + [(self.all.law.at(count), count) for count in found]
        return max(abs(rate / self.can_do(count) - 1) for rate, count in each)

    @property
    def forecast_error(self) -> float:
        """How far the capacity of the largest count is from what the two smaller ones say of it, relative."""
        return abs(forecast(self.two, self.all) - 1)

    def rows(self, name: object) -> list[list[object]]:
        """Rows of the table of capacities."""
        measured, law = self.all.capacities, self.all.law
        return [
            [
                name,
                count,
                *(f"{rate:.2f}" for rate in (measured[count], law.at(count), self.can_do(count))),
                *(f"{rate / self.can_do(count):.4f}" for rate in (measured[count], law.at(count))),
                f"{1e3 * self.compute_s[count]:.2f}",
            ]
            for count in measured
        ]

    def two_cells(self) -> list[object]:
        """Cells of the table on two counts."""
        told, ratio = self.two.told, forecast(self.two, self.all)
        measured = self.all.capacities[max(self.all.capacities)]
        answer = "no number" if told["gpus"] is None else f"{told['gpus']}, at least {told['gpus_low']}"
        rates = [plain(ratio * measured), plain(measured), f"{ratio:.4f}", plain(told["rate"])]
        return [f"{self.two.law.sigma:.3f}", *rates, answer, ", ".join(map(str, told["next_counts"]))]


def triton(ctx: Context) -> None:
    """Sweeps with 1, 2 and 4 instances of a model that sleeps for 20 ms, by turns; the bars are on the worst round."""
    python, models = Path(peer_program("triton")), {count: f"sleep_{count}" for count in INSTANCES}
    folder = ctx.fresh_dir("triton")
    try:
        with (
            real_time() as alone,
            PyTriton(python, folder, instances=INSTANCES, only=tuple(models.values())) as server,
        ):
            rounds = [_round(ctx, server, models, number) for number in range(ctx.size(ROUNDS, 1))]
    except ChildFailed as error:
        raise BenchFailed(f"Triton did not start: {error}") from error
    note = (
        f"Closed loops with {', '.join(map(str, IN_FLIGHT))} in flight, {LEVEL_S} s each; another count begins in each "
        f"round. Can do: the instances over the server's mean compute time (input, infer and "
        f"output) while at least {FULL} were in flight for each. Fitted: the law through all three counts. "
        "The server has both cores. "
        + ("Both sides have real-time priority." if alone else "Both sides share the cores with whatever else runs.")
    )
    rows = [row for number, each in enumerate(rounds) for row in each.rows(number + 1)]
    ctx.report.table("Triton (PyTriton, CPU), 1, 2 and 4 instances", HEADER, rows, note)
    said = [[number + 1, *each.two_cells()] for number, each in enumerate(rounds)]
    asked = f"Asked: {MORE:g} times what 4 carried."
    ctx.report.table("From 1 and 2 instances alone", TWO_HEADER, said, asked)
    ctx.report.bar(Bar("scaling_capacity_error", whole_range([each.error for each in rounds]), CAPACITY_BOUND))
    forecasts = whole_range([each.forecast_error for each in rounds])
    ctx.report.bar(Bar("scaling_four_from_one_and_two_error", forecasts, FORECAST_BOUND))
    faults = [fault for each in rounds for fault in two_count_faults(each.two.told)]
    if faults:
        say(f"triton: of two counts it is not said: {'; '.join(sorted(set(faults)))}")
    ctx.report.bar(Bar("scaling_two_count_faults", Interval.exact(len(faults)), 0))


def forecast(two: Answer, measured: Answer) -> float:
    """What the smaller counts say that the largest carries, over what it carried."""
    largest = max(measured.capacities)
    return two.law.at(largest) / measured.capacities[largest]


def two_count_faults(told: Mapping[str, Any]) -> list[str]:
    """What an answer from two counts must say and does not: Amdahl's, a lower bound, open above, what to measure."""
    wanted = {
        "Amdahl's law": told["details"]["law"]["name"] == "amdahl",
        "a lower bound": any("lower bound" in text for text in told["assumptions"]),
        "no upper end": told["gpus_high"] is None,
        "a lower end": told["gpus_low"] is not None or told["gpus"] is None,
        "counts to measure next": bool(told["next_counts"]),
    }
    return [name for name, kept in wanted.items() if not kept]


def mean_compute_s(levels: Sequence[Mapping[str, Any]]) -> float:
    """Mean time of a request in input, infer and output, over levels of ``level.json``, by their requests.

    Raises BenchFailed where the server's statistics are missing.
    """
    total, requests = 0.0, 0
    for level in levels:
        for model in level.get("models") or ():
            each_s = sum(float(model[f"compute_{part}_s"] or 0) for part in ("input", "infer", "output"))
            total, requests = total + model["requests"] * each_s, requests + model["requests"]
    if not requests:
        raise BenchFailed("gpusize has none of the server's statistics")
    return total / requests


def _round(ctx: Context, server: PyTriton, models: Mapping[int, str], number: int) -> Round:
    runs, counts = ctx.fresh_dir(f"runs{number}"), sorted(models)
    turn = number % len(counts)
    compute_s = {}
    for count in counts[turn:] + counts[:turn]:
        levels = _sweep(ctx, server, models[count], count, runs / str(count))
        compute_s[count] = mean_compute_s([each for each in levels if each["setting"]["concurrency"] >= FULL * count])
    found = _estimate(runs, counts, rate=1.0)
    if set(found.capacities) != set(counts):
        raise BenchFailed(f"not every count has a capacity: {'; '.join(found.told['warnings'])}")
    two = _estimate(runs, counts[:2], rate=MORE * found.capacities[counts[-1]])
    say(f"triton: round {number + 1}: {', '.join(f'{n}: {rate:.1f}/s' for n, rate in found.capacities.items())}")
    return Round(found, two, compute_s)


def _sweep(ctx: Context, server: PyTriton, model: str, count: int, out: Path) -> list[Mapping[str, Any]]:
    """A run of gpusize's: its levels, with the server's statistics, whose sum is what the server says by itself."""
    words = ["--url", server.url, "--api", "kserve", "--model", model, "--input", "random", "--metrics-url", "none"]
    words += ["--concurrencies", ",".join(map(str, IN_FLIGHT)), "--duration", f"{LEVEL_S}s"]
    words += ["--gpus", str(count), "--out", str(out), "--json", "--no-plots"]
    before = Counters.read(server.url, model)
    finished = run_measured(pinned([sys.executable, "-m", "gpusize", "run", *words], ctx.client_core))
    after = Counters.read(server.url, model)
    document = json.loads(finished.stdout)
    if any(row["errors"] for row in document["summary"]):
        raise BenchFailed(f"{model}: requests failed")
    folders = sorted(Path(document["path"]).glob("levels/*/level.json"))
    levels = [json.loads(path.read_text(encoding="utf-8")) for path in folders]
    own_s = (after.compute_ns - before.compute_ns) / (after.requests - before.requests) / 1e9
    if abs(mean_compute_s(levels) / own_s - 1) > AGREE:
        raise BenchFailed(f"{model}: gpusize sampled {mean_compute_s(levels)} s of compute, the server says {own_s}")
    return levels


def _estimate(runs: Path, counts: Sequence[int], rate: float) -> Answer:
    folders = [str(runs / str(count)) for count in counts]
    words = ["--rate", f"{rate:.6g}/s", "--method", "scaling", "--allow", "targets", "--allow", "models", "--json"]
    command = [sys.executable, "-m", "gpusize", "estimate", *folders, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # 1 is an answer as well: that no number is enough.
    if done.returncode not in (0, 1) or not done.stdout:
        raise BenchFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Answer(json.loads(done.stdout)["estimates"][0])
