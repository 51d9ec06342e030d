"""Counts for a rate: against closed forms of queues, and never more than the replicas can serve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.estimate.twin.batching_model import Service
from gpusize.estimate.twin.fewest_replicas import MOST_TOGETHER, Counter
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Batching, TimeBound

SHARE = 0.95
SIZES = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000)
"""Exponential, without the chance of a sample."""


def fifo(bound_s: float, metric: str = "runtime") -> Flow:
    """One request at a time, first come first served, 1 s each on average."""
    return Flow(np.ones(1), SIZES / SIZES.mean(), [], [TimeBound(metric, bound_s)], max_active=1)


def batching(max_batch: int | None, tokens: int, bound_s: float) -> Batching:
    """Iterations of 10 ms, whatever is in them."""
    prompts, outputs = np.ones(200, np.uint32), np.full(200, tokens, np.uint32)
    rates = np.arange(1.0, 41.0) / (0.01 * tokens)
    service = Service(0.01, 0.0, 0.0, max_batch, None)
    return Batching(service, [TimeBound("runtime", bound_s)], False, prompts, outputs, rates)


def fewest(replica: Flow | Batching, load: ClusterLoad) -> tuple[int, Counter]:
    counter = Counter(replica, load, [SHARE])
    found = counter.fewest(load.load)
    assert found is not None
    return found, counter


@pytest.mark.parametrize("bound_s", [6.0, 15.0, 40.0])
@pytest.mark.parametrize("rate", [6.0, 400.0])
def test_of_single_servers_it_is_what_the_queue_says(bound_s: float, rate: float) -> None:
    """Poisson arrivals divided at random: M/M/1 each, whose time in the system is exponential with mu - lambda.

    A bound of 40 s lets a queue be built for longer than most requests take.
    """
    found, counter = fewest(fifo(bound_s), ClusterLoad(rate=rate, router="random"))
    each = 1 - math.log(1 / (1 - SHARE)) / bound_s
    assert counter.raw(found) == pytest.approx(rate / each, rel=0.03)
    # So much more, and less, for bounds that are off by 10 %.
    ends = [1 - math.log(1 / (1 - SHARE)) / (bound_s * factor) for factor in (1.1, 1 / 1.1)]
    wanted = math.sqrt(sum(math.log(end / each) ** 2 for end in ends) / 2)
    assert counter.sides(found, math.log(1.1))[0] == pytest.approx(wanted, rel=0.25, abs=0.003)


@given(st.floats(1, 3_000), st.floats(5, 200), st.sampled_from(["least_loaded", "random", "round_robin"]))
@settings(max_examples=12, deadline=None)
def test_no_more_comes_than_is_served(rate: float, bound_s: float, router: str) -> None:
    """In the time that 24 requests take, a queue that grows by a twentieth of what comes is not seen."""
    assert fewest(fifo(bound_s), ClusterLoad(rate=rate, router=router))[0] >= rate


def test_what_a_replica_serves_at_most_is_simulated() -> None:
    """Eight at a time, 50 tokens of 10 ms each; rates that were measured know nothing of it."""
    assert batching(8, 50, 1.0).most_per_s == pytest.approx(8 / 0.5, rel=0.01)
    found, _ = fewest(batching(8, 50, 20.0), ClusterLoad(rate=1_000.0))
    assert 1_000 / 16 <= found <= 1.03 * 1_000 / 16


@pytest.mark.parametrize("router", ["least_loaded", "random"])
def test_a_part_of_many_replicas_fares_as_all_do(router: str) -> None:
    """As many more users on as many more replicas, more than are simulated: the same share is kept."""
    replica = batching(6, 20, 0.24)
    shares = []
    for replicas in (MOST_TOGETHER // 22, 8 * MOST_TOGETHER // 22):
        users = 22 * replicas
        load = ClusterLoad(users=users, think_s=0.5, think="exponential", router=router)
        counter = Counter(replica, load, [SHARE])
        seen = counter.run(users, replicas)
        shares.append(seen.shares(1.0)[0])
        # By Little's law, pauses included.
        assert users / (seen.runtime_s + 0.5) * seen.runtime_s == pytest.approx(seen.in_flight, rel=0.02)
    assert 0.2 < shares[0] < 0.98
    assert shares[1] == pytest.approx(shares[0], abs=0.02)


def test_one_set_of_runs_serves_the_count_and_both_sides() -> None:
    counter = Counter(batching(6, 20, 0.3), ClusterLoad(users=900, think_s=0.5, think="exponential"), [SHARE])
    found = counter.fewest(100)
    assert found is not None
    before = counter.runs
    counter.raw(found)
    counter.sides(found, 0.03)
    assert counter.runs - before <= 9
