"""Rates at random from closed loops: against closed forms of queues, and against clusters in virtual time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.slo import Slo
from gpusize.engine.session import core
from gpusize.estimate.arrivals_at_random import ArrivalsAtRandom
from gpusize.estimate.capacities import capacities
from gpusize.estimate.default import unlike
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.slo_limit import kept_by_load
from gpusize.studies.imports.perf_analyzer import read_perf_analyzer
from tests.estimate.virtual import CLUSTER, level

SERVICE_S = 0.05


def erlang_c(servers: int, busy: float) -> float:
    """The chance to wait in M/M/c (Erlang 1917), by the recursion of Erlang B."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = servers * busy * blocked / (k + servers * busy * blocked)
    return blocked / (1 - busy * (1 - blocked))


def servers_of(
    count: int, top: int, kept: dict[float, float], enough: float, *, mean: bool = False
) -> ArrivalsAtRandom:
    """So many servers of one queue, measured at each number of users up to ``top``."""
    users = tuple(float(n) for n in range(1, top + 1))
    rates = tuple(min(n, count) / SERVICE_S for n in users)
    return ArrivalsAtRandom(users, rates, tuple(kept), tuple(kept.values()), enough, mean, count / SERVICE_S)


@given(st.integers(1, 12), st.integers(0, 20), st.integers(1, 30), st.sampled_from([0.9, 0.95, 0.99]))
@settings(max_examples=60, deadline=None)
def test_of_servers_with_one_queue_it_is_erlangs_formula(count: int, more: int, times: int, share: float) -> None:
    """All keep the SLO up to so many in flight, and none beyond: an arrival must not find as many as that."""
    edge = count + more
    queue = servers_of(count, edge + 1, {1.0: 1.0, float(edge): 1.0, edge + 1e-9: 0.0}, share)
    most = queue.most(times)
    busy = most * SERVICE_S / (count * times)
    assert 0 < busy < 1
    # P(N >= n) = C(c, a) busy^(n - c) for n >= c.
    found = erlang_c(count * times, busy) * busy ** (edge * times - count * times)
    assert found == pytest.approx(1 - share, rel=1e-5)


@given(st.integers(1, 8), st.floats(1.1, 6.0), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_a_mean_is_that_of_the_queue(count: int, bound: float, times: int) -> None:
    """With n + 1 in flight the closed loop takes (n + 1) / c services, as who finds n in M/M/c does on average."""
    bound_s = bound * SERVICE_S
    kept = {float(n): 1 - SERVICE_S * max(1.0, n / count) / bound_s for n in range(1, 2 * count + 1)}
    busy = servers_of(count, 2 * count, kept, 0.0, mean=True).most(times) * SERVICE_S / (count * times)
    servers = count * times
    mean_s = SERVICE_S * (1 + erlang_c(servers, busy) / (servers * (1 - busy)))
    assert mean_s == pytest.approx(bound_s, rel=1e-4)


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.01, 300.0))
@settings(max_examples=40, deadline=None)
def test_the_target_that_carries_a_rate_carries_it_and_no_smaller_one_does(count: int, more: int, asked: float) -> None:
    queue = servers_of(count, count + more, {1.0: 1.0, float(count + more): 0.97, count + more + 1.0: 0.5}, 0.95)
    rate = asked / SERVICE_S
    times = queue.closed_rate(rate) / queue.capacity
    assert queue.most(times * (1 + 1e-6)) >= rate
    assert queue.most(times * 0.999) < rate
    # More in one place are busier.
    assert queue.most(2 * times) >= 2 * rate * (1 - 1e-9)


@given(st.integers(1, 40), st.floats(0.1, 3.0), st.floats(0.02, 0.97))
@settings(max_examples=40, deadline=None)
def test_behind_a_router_that_picks_at_random_each_is_a_queue_of_its_own(times: int, bound: float, part: float) -> None:
    """Of M/M/1 the runtime is exponential with the rate 1/s - r, whatever comes to its neighbours."""
    bound_s = (1 + bound) * SERVICE_S
    # The share that keeps the bound with n in flight: not more than n services that are exponential (Erlang).
    steps = [(bound_s / SERVICE_S) ** k / math.factorial(k) for k in range(80)]
    kept = {float(n): 1 - math.exp(-bound_s / SERVICE_S) * sum(steps[:n]) for n in range(1, 81)}
    enough = kept[1.0] * part
    queue = replace(servers_of(1, 80, kept, enough), apart=True)
    rate = 1 / SERVICE_S + math.log(1 - enough) / bound_s
    assert queue.most(times) == pytest.approx(times * rate, rel=1e-3)
    assert queue.closed_rate(times * rate) == pytest.approx(times / SERVICE_S, rel=1e-3)
    # In one queue for all the same load finds more room.
    assert replace(queue, apart=False).most(times) >= queue.most(times) * (1 - 1e-6)


def test_it_is_the_same_a_rounding_beside_the_size_that_was_measured() -> None:
    queue = servers_of(4, 6, {1.0: 1.0, 6.0: 1.0}, 0.95)
    assert queue.most(1 - 1e-12) == pytest.approx(queue.most(), rel=1e-6)
    assert queue.most(1 + 1e-12) == pytest.approx(queue.most(), rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(1, 200), st.floats(1.0, 500.0), st.floats(0.0, 1.0)), min_size=2, max_size=8),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.floats(0.05, 40.0),
)
@settings(max_examples=80, deadline=None)
def test_no_more_comes_at_random_than_in_the_closed_loop(
    drawn: list[tuple[int, float, float]], share: float, times: float
) -> None:
    users = sorted({float(n) for n, _, _ in drawn})
    # No target is faster for each of many than for each of few.
    slopes = sorted((slope for _, slope, _ in drawn), reverse=True)[: len(users)]
    gaps = np.diff([0.0, *users])
    rates = [float(rate) for rate in np.cumsum(slopes * gaps)]
    kept = sorted((part for _, _, part in drawn), reverse=True)[: len(users)]
    queue = ArrivalsAtRandom(tuple(users), tuple(rates), tuple(users), tuple(kept), share, False, rates[-1])
    most = queue.most(times)
    assert 0 <= most <= times * rates[-1]
    if most > 0:
        assert queue.closed_rate(most * 0.999) <= times * queue.capacity * (1 + 1e-6)


def test_a_single_request_that_hardly_keeps_it_leaves_no_room() -> None:
    queue = servers_of(1, 2, {1.0: 0.94, 2.0: 0.5}, 0.95)
    assert queue.most() == 0
    assert math.isinf(queue.closed_rate(1.0))


def test_very_large_targets_take_no_longer() -> None:
    queue = servers_of(8, 64, {1.0: 1.0, 60.0: 0.95, 64.0: 0.9}, 0.95)
    few, many = (queue.most(times) / (times * queue.capacity) for times in (300.0, 1e5))
    assert few == pytest.approx(many, rel=0.01)


SERVERS: dict[str, dict[str, Any]] = {
    "in a batch": {
        "output_tokens": {"lognormal": {"median_tokens": 60, "sigma": 0.8, "max_tokens": 900}},
        "iteration_per_sequence_s": 0.004,
    },
    "in slots": {
        "output_tokens": {"lognormal": {"median_tokens": 60, "sigma": 0.4, "max_tokens": 900}},
        "max_batch": 4,
    },
    "of unlike lengths": {
        "output_tokens": {"lognormal": {"median_tokens": 60, "sigma": 0.8, "max_tokens": 900}},
        "max_batch": 6,
    },
}
PROMPTS = {"uniform": {"min_tokens": 50, "max_tokens": 400}}


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("gpus, router", [(1, "least_loaded"), (4, "least_loaded"), (4, "random")])
def test_clusters_carry_about_as_much(server: dict[str, Any], gpus: int, router: str) -> None:
    """The rate up to which a cluster keeps the SLO in virtual time lies within an eighth of what is said."""
    levels = [level(users, requests=1500, **server) for users in (1, 2, 3, 4, 5, 6, 8, 10, 14, 20)]
    alone_s = float(pl.Series(levels[0].values("runtime")).quantile(0.95) or 0.0)
    bound_s = float(f"{1.6 * alone_s:.3g}")
    slo, apart = Slo.parse(f"p95 runtime <= {bound_s:g}s"), router == "random"
    [one] = capacities(levels, slo, rate=True, at_random=True, apart=apart).capacities
    assert one.at_random is not None
    said = one.at_random.most(gpus)
    assert said < gpus * one.load
    kept = {factor: _kept({**server, "router": router}, gpus, factor * said, bound_s) for factor in (0.88, 1.14)}
    assert kept[0.88] >= 0.95 > kept[1.14], (said, one, kept)


def test_the_router_of_the_question_decides() -> None:
    """At random each replica has what comes to it alone; one queue for all needs fewer."""
    levels = [level(users, requests=600, **SERVERS["in slots"]) for users in (1, 2, 3, 4, 5, 6, 8, 10, 14)]
    alone_s = float(pl.Series(levels[0].values("runtime")).quantile(0.95) or 0.0)
    slo = Slo.parse(f"p95 runtime <= {1.6 * alone_s:.3g}s")
    [one] = capacities(levels, slo, rate=True, at_random=True, apart=True).capacities
    assert one.at_random is not None
    rate = 12.5 * one.at_random.most()
    questions = [Question(0, (slo,), rate=rate, router=router) for router in ("random", "least_loaded", "round_robin")]
    answers = [estimate(levels, question, "scaling")[0] for question in questions]
    assert answers[0].gpus == 13
    assert answers[1].gpus is not None
    assert answers[1].gpus < 13
    assert answers[2].gpus == answers[1].gpus
    said = [
        any("picks replicas" in text for text in unlike(levels, *each)) for each in zip(questions, answers, strict=True)
    ]
    assert said == [False, False, True]


def _kept(server: dict[str, Any], gpus: int, rate: float, bound_s: float) -> float:
    """The share within the bound at a rate, in virtual time."""
    config = json.dumps({**CLUSTER, **server, "gpus": gpus, "seed": 11})
    load = {
        "arrivals": {"open": {"rate_per_s": rate, "process": "poisson"}},
        "requests": 40_000,
        "prompt_tokens": PROMPTS,
    }
    rows = pl.DataFrame(core().simulate(config, json.dumps({**load, "warmup_requests": 2_000}))[0])
    took_s = rows.filter(~pl.col("warmup")).select((pl.col("end_ns") - pl.col("due_ns")) / 1e9).to_series().to_numpy()
    return float((took_s <= bound_s).mean())


def test_shares_of_imports_lie_between_their_percentiles(tmp_path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n"
        "1,10,100000,110000,120000,150000\n2,19,110000,190000,210000,300000\n4,30,210000,260000,300000,500000\n"
    )
    kept = dict(kept_by_load(read_perf_analyzer(file, gpus=1).levels, Slo.parse("p95 runtime <= 200ms")))
    # 200 ms lies in the middle between p90 and p95 of two users; of four at 20 / 21 of their median.
    assert kept == pytest.approx({1: 1.0, 2: 0.925, 4: 0.5 * 200 / 210})
