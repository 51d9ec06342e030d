"""The method scaling on a real Triton with 1, 2 and 4 instances, held against the server's own compute times."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

import gpusize
from benches.sections.scaling_triton import Answer, Round, forecast, mean_compute_s, two_count_faults
from benches.sections.triton import Counters
from gpusize.estimate.twin.server_figures import served, served_limit
from tests.peers.inferences import KserveServer
from tests.peers.sizing import Gpusize
from tests.servers.pytriton import PyTriton

INSTANCES = (1, 2, 4)
LEVELS = "1,4,8,12,16"
"""Of four instances three of these are full, so that throughput is seen to level off."""
SECONDS = {1: "5s", 2: "3s", 4: "2s"}
"""Of a level, by instances: its steady part has the 160 requests whose scatter tells the error of its throughput."""
FULL = 2
"""With so many in flight for each instance none is ever idle, so that compute times there are those of the capacity."""
MOST_ROUNDS = 2
"""Neighbours of the machine slow single sweeps; over rounds by turns that evens out."""

Levels = list[Mapping[str, Any]]


@dataclass(frozen=True)
class Measured:
    """What was found.

    Attributes:
        found: the answers.
        noise: two standard errors of the server's own mean compute time, relative, as its full levels differ: what
            neighbours of the machine did, and no fault of an estimate's.
        runs: where the runs are.
        sampled_s: mean compute times by count, as gpusize sampled them.
        told_s: as the server told this process.
    """

    found: Round
    noise: float
    runs: Path
    sampled_s: dict[int, float]
    told_s: dict[int, float]


def ask(runs: Path, counts: Sequence[int], rate: float, **more: Any) -> Answer:
    """The method's answer from these counts."""
    result = gpusize.open_run([runs / str(count) for count in counts]).asking(None, None, rate)
    [found] = result.estimates(method="scaling", allow=("targets", "models"), **more)
    return Answer(found.to_json())


def sweep(triton: PyTriton, count: int, out: Path) -> tuple[Levels, Counters]:
    """A run's levels, and what the server has counted meanwhile, asked for by this process."""
    model, server = f"sleep_{count}", KserveServer(triton.http_port, triton.grpc_port)
    load = ("--input", "random", "--concurrencies", LEVELS, "--duration", SECONDS[count], "--gpus", count)
    before = Counters.read(triton.url, model)
    done = Gpusize(out).run(*server.target("kserve", model), *load, "--out", out)
    assert done.code == 0, done.err
    after = Counters.read(triton.url, model)
    levels = [json.loads(path.read_text()) for path in Path(done.document["path"]).glob("levels/*/level.json")]
    deltas = (getattr(after, part) - getattr(before, part) for part in ("requests", "queue_ns", "compute_ns"))
    return levels, Counters(*deltas)


def relative_error(values: Sequence[float]) -> float:
    """Standard error of the mean of values, over the mean."""
    return stdev(values) / math.sqrt(len(values)) / mean(values)


@pytest.fixture(scope="module")
def measured(triton: PyTriton, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    runs = tmp_path_factory.mktemp("scaling")
    levels: dict[int, Levels] = {count: [] for count in INSTANCES}
    told: dict[int, list[Counters]] = {count: [] for count in INSTANCES}
    turn = 0
    while True:
        for count in INSTANCES[turn:] + INSTANCES[:turn]:
            out = runs / str(count)
            out.mkdir(exist_ok=True)
            found, counted = sweep(triton, count, out)
            levels[count] += found
            told[count].append(counted)
        full = {n: [each for each in levels[n] if each["setting"]["concurrency"] >= FULL * n] for n in INSTANCES}
        turn += 1
        every = ask(runs, INSTANCES, 100.0)
        if set(every.capacities) != set(INSTANCES) and turn < MOST_ROUNDS:
            continue
        assert set(every.capacities) == set(INSTANCES), every.told
        two = ask(runs, (1, 2), 1.5 * every.capacities[4])
        round_ = Round(every, two, {n: mean_compute_s(full[n]) for n in INSTANCES})
        if turn == MOST_ROUNDS or (round_.error < 0.05 and round_.forecast_error < 0.10):
            return Measured(
                round_,
                max(2 * relative_error([mean_compute_s([each]) for each in full[n]]) for n in INSTANCES),
                runs,
                {n: mean_compute_s(levels[n]) for n in INSTANCES},
                {n: sum(c.compute_ns for c in told[n]) / sum(c.requests for c in told[n]) / 1e9 for n in INSTANCES},
            )


def test_the_sampled_compute_times_are_the_servers(measured: Measured) -> None:
    for count in INSTANCES:
        assert measured.sampled_s[count] == pytest.approx(measured.told_s[count], rel=0.03 + measured.noise)


def test_capacities_are_instances_over_the_mean_compute_time(measured: Measured) -> None:
    assert measured.found.error < 0.05 + measured.noise, measured.found.rows("")
    # Not over the 20 ms that the model sleeps: what the server does around them is in it.
    assert measured.found.all.capacities[1] < 1 / 0.020


def test_four_instances_carry_what_one_and_two_say(measured: Measured) -> None:
    assert forecast(measured.found.two, measured.found.all) == pytest.approx(1, abs=0.10 + measured.noise)


def test_two_counts_give_a_lower_bound_and_what_to_measure(measured: Measured) -> None:
    told = measured.found.two.told
    assert two_count_faults(told) == []
    assert told["next_counts"] == [4, 8]
    assert told["gpus"] is None or told["gpus_low"] <= told["gpus"]


def test_hosts_of_four_instances_add_up(measured: Measured) -> None:
    wanted = 2.5 * measured.found.all.capacities[4]
    assert ask(measured.runs, INSTANCES, wanted, host_gpus=4).told["gpus"] == 12


def test_busy_instances_are_the_limit_that_the_server_shows(measured: Measured) -> None:
    for count in INSTANCES:
        levels = gpusize.open_run(measured.runs / str(count)).levels
        limit = served_limit([served(visit) for level in levels for visit in level.visits()])
        assert limit is not None
        assert limit[0] == pytest.approx(count, abs=0.5 + count * measured.noise)
