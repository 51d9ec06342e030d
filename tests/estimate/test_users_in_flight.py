"""Users who pause are not all in flight: held against simulated clusters, whose users pause by themselves."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.analysis.throughput import rates_of
from gpusize.engine.session import core
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.question import IN_FLIGHT
from gpusize.estimate.users_in_flight import LESS, NO_PAUSE, PAUSING, UsersInFlight
from gpusize.studies.imports.perf_analyzer import read_perf_analyzer
from tests.estimate.virtual import CLUSTER, calls_by_the_server, level

FIXTURES = Path(__file__).parents[1] / "fixtures"
BOUND_S = 7.0
SLO = Slo.parse(f"p95 runtime <= {BOUND_S} s")
THINK_S = 8.0
LOADS = (1, 8, 10, 12, 14, 20)


@pytest.fixture(scope="module")
def levels():
    return [level(users, requests=400 + 200 * users) for users in LOADS]


def question(users, **more):
    return Question(users, [SLO], **{"think": "exponential", "think_s": THINK_S, **more})


def simulated(users, gpus, seed=1):
    """In flight in the mean, and the share within the bound."""
    load = {
        "arrivals": {"closed": {"users": users, "think": "exponential", "think_s": THINK_S}},
        "requests": 12_000,
        "warmup_requests": 4 * users,
        "prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}},
    }
    judge = {"bounds": [{"metric": "runtime", "bound_s": BOUND_S}]}
    config = {**CLUSTER, "gpus": gpus, "seed": seed}
    _, told = core().simulate(json.dumps(config), json.dumps(load), judge=json.dumps(judge), rows=False)
    summary = json.loads(told)
    within, over = (summary["judged"]["bounds"][0][name] for name in ("within", "over"))
    return summary["in_flight"], within / (within + over)


@pytest.mark.parametrize("users,gpus", [(40, 1), (150, 4), (600, 20), (900, 20)])
def test_so_many_are_in_flight_as_the_simulated_users_are(levels, users, gpus):
    in_flight, _ = simulated(users, gpus)
    of = UsersInFlight.of(levels, question(users))
    # Who stands where with so many in flight on each: the law is one of means, and rates are read between levels.
    assert of.mean(in_flight / gpus) == pytest.approx(in_flight, rel=0.04)


@pytest.mark.parametrize("users", [60, 250, 900])
def test_crossing_counts_users_who_pause_as_clusters_do(levels, users):
    [found] = estimate(levels, question(users), "crossing")
    right = next(n for n in range(1, 200) if simulated(users, n)[1] >= SLO.share)
    [all_in_flight] = estimate(levels, Question(users, [SLO]), "crossing")
    assert right <= found.gpus <= max(right + 1, 1.1 * right)
    assert found.gpus_low <= right <= found.gpus_high
    assert all_in_flight.gpus > 2 * right
    assert found.gpus_high == all_in_flight.gpus_high
    assert PAUSING in found.assumptions
    assert IN_FLIGHT not in found.assumptions


def test_bounds_beyond_what_was_measured_are_sure(levels):
    """At most as many as all users in flight take; at least as many as the closed form says where all of it misses."""
    asked = question(900)
    [above] = estimate(levels, replace(asked, slos=[Slo.parse("p95 runtime <= 1h")]), "crossing")
    assert (above.gpus, above.gpus_high) == (None, -(-900 // LOADS[-1]))
    [below] = estimate(levels[1:], replace(asked, slos=[Slo.parse("p95 runtime <= 3s")]), "crossing")
    rate = rates_of(levels[1]).achieved
    assert below.gpus is None
    assert below.gpus_low == math.ceil(900 / (LOADS[1] + rate * THINK_S))


def test_the_default_says_which_pauses_its_stand_in_knows(levels):
    both = [calls_by_the_server(each) for each in levels]
    asked = replace(question(900), slos=[Slo.parse(f"p95 llm_latency <= {BOUND_S} s")])
    [known] = estimate(both, asked)
    [unknown] = estimate(both, replace(asked, think="fixed"))
    assert known.method == unknown.method == "crossing"
    assert (PAUSING in known.assumptions, NO_PAUSE in known.assumptions) == (True, False)
    assert (PAUSING in unknown.assumptions, NO_PAUSE in unknown.assumptions) == (False, True)
    assert known.gpus < unknown.gpus / 2


def test_all_count_where_pauses_may_fall_into_step_or_were_measured(levels):
    everybody = UsersInFlight(900)
    assert UsersInFlight.of(levels, question(900, think="fixed")) == everybody
    assert UsersInFlight.of(levels, Question(900, [SLO])) == everybody
    mixed = [levels[0], *(replace(each, setting={**each.setting, "think": "2s"}) for each in levels[1:])]
    assert UsersInFlight.of(mixed, question(900)) == everybody
    assert UsersInFlight.of([replace(each, state="failed") for each in levels], question(900)) == everybody
    assert (everybody.mean(10.0), everybody.most(10.0)) == (900, 900)


def test_never_more_than_all():
    few = UsersInFlight(3, 1.0, ((1.0, 1.0), (10.0, 2.0)))
    assert few.mean(1.0) == pytest.approx(1.5)
    assert few.most(1.0) == pytest.approx(1.5 + (3 * 0.25) ** 0.5)
    assert UsersInFlight(1, 0.001, ((1.0, 1.0),)).most(1.0) == 1


@pytest.mark.parametrize("users", [60, 250, 900])
def test_scaling_counts_users_who_pause_as_clusters_do(levels, users):
    [found] = estimate(levels, question(users), "scaling")
    right = next(n for n in range(1, 200) if simulated(users, n)[1] >= SLO.share)
    assert right <= found.gpus <= max(right + 1, 1.1 * right)
    assert found.gpus_low <= right <= (found.gpus_high or math.inf)
    assert PAUSING in found.assumptions
    assert IN_FLIGHT not in found.assumptions


def test_figures_of_another_tool_know_pauses_too():
    """A thousand users who ask once a minute are 17 requests/s, where the figures have 40 on one GPU."""
    levels = read_perf_analyzer(FIXTURES / "perf_analyzer" / "inst1_c1-8.csv", gpus=1).levels
    asked = Question(1000, [Slo.parse("p95 service <= 100ms")], think="exponential", think_s=60.0)
    [found] = estimate(levels, asked, "auto")
    assert (found.method, found.gpus, found.gpus_low) == ("scaling", 1, 1)
    assert NO_PAUSE not in found.assumptions
    # Ten times the users are 167/s: more than four GPUs answer, and not many more than that.
    [more] = estimate(levels, replace(asked, users=10_000), "auto")
    assert 5 <= more.gpus <= 7


@pytest.mark.parametrize("pause_s, users", [(0.0, 200), (10.0, 900), (4.0, 400)])
def test_users_of_levels_who_paused_are_turned_into_those_who_are_asked_for(pause_s: float, users: int) -> None:
    """By first tokens, which the twin does not tell of users who pause; the truth by the cluster itself."""
    levels = [level(each, pause_s=4.0, requests=900) for each in (20, 30, 40, 50, 60, 70, 80)]
    slo = Slo.parse("p90 ttft <= 105ms")
    think = "exponential" if pause_s else "none"
    question = Question(users=users, slos=(slo,), think_s=pause_s, think=think)
    [found] = estimate(levels, question, "crossing")
    of = UsersInFlight.of(levels, question)
    assert of.assumed == {0.0: LESS, 10.0: PAUSING, 4.0: None}[pause_s]
    assert (found.assumptions[2] == of.assumed) is (pause_s != 4.0)
    assert found.gpus is not None

    def kept(gpus: int) -> float:
        closed = {"users": users, "think_s": pause_s, "think": "exponential", "stagger_s": 10.0 + pause_s}
        asked = {
            "arrivals": {"closed": closed if pause_s else {"users": users, "stagger_s": 10.0}},
            "requests": 12_000,
            "warmup_requests": 2 * users,
            "prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}},
        }
        stream, _ = core().simulate(json.dumps({**CLUSTER, "gpus": gpus, "seed": 9}), json.dumps(asked))
        rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
        return float(((rows["first_token_ns"] - rows["due_ns"]) <= 105_000_000).to_numpy().mean())

    truth = next(gpus for gpus in range(1, 60) if kept(gpus) >= 0.9)
    # A stand-in: who asks again at the end of an iteration waits longer for a first token than who pauses.
    assert 0.8 * truth <= found.gpus <= 1.35 * truth + 1
    # Of those who pause for four seconds most are not in flight.
    assert found.capacity_concurrency is not None
    assert found.capacity_concurrency < 60
