"""A trace on replicas that come and go, against what can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusize.estimate.plan.over_time.capacity import capacities
from gpusize.estimate.plan.over_time.demand import Demand, drawn
from gpusize.estimate.plan.over_time.policies import Schedule
from gpusize.estimate.plan.over_time.simulate import serve, with_lengths
from gpusize.estimate.twin.batching_model import Service
from gpusize.estimate.twin.contention import Contention
from gpusize.estimate.twin.fewest_replicas import Counter
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import Batching, TimeBound

S = 10**9


def queue(bound_s: float, sizes=(1.0,)) -> Flow:
    """One request at a time, 1/s."""
    return Flow(np.array([1.0]), np.array(sizes), [], [TimeBound("runtime", bound_s)], 1)


def demand(due_s, duration_s, tokens=None) -> Demand:
    return Demand("made", (np.asarray(due_s) * S).round().astype(np.int64), duration_s, tokens)


def schedule(*given, delay=0.0):
    at, asked = zip(*given, strict=True)
    return Schedule((np.array(at) * S).astype(np.int64), np.array(asked), delay)


def test_a_step_of_the_load_on_one_server():
    # 0.5/s is served at once; from 100 s on 2/s come, and the k-th of them waits for k / 2 s.
    due = np.concatenate([np.arange(0, 100, 2.0), 100 + np.arange(0, 100) * 0.5])
    found = serve(queue(6.25), demand(due, 150.0), Schedule.constant(1), router="least_loaded")
    # 1 + k / 2 <= 6.25 for k up to 10.
    assert found.kept[0].sum() == 50 + 11
    assert found.requests.sum() == 150
    assert found.shares() == (61 / 150,)
    assert found.draining_s == 0


@pytest.mark.parametrize("asked_s", [90, 100.1, 110.1, 120.1])
def test_a_second_server_takes_requests_after_its_delay(asked_s):
    # As before; the second one, ready at t, takes what comes then: with two the load is carried.
    due = 100 + np.arange(0, 100) * 0.5
    course = schedule((0, 1), (asked_s, 2), delay=10.0)
    found = serve(queue(6.25), demand(due, 150.0), course, router="least_loaded")
    assert found.kept[0].sum() == by_hand(due, asked_s + 10, 6.25)
    assert (found.kept[0].sum() == 100) == (asked_s == 90)


def by_hand(due, ready_s, bound_s):
    """Two servers of 1/s, the second one from ``ready_s`` on; each request goes to the one with fewer."""
    ends: list[list[float]] = [[], []]
    kept = 0
    for at in due:
        load = [sum(end > at for end in each) for each in ends]
        which = 1 if at >= ready_s and load[1] < load[0] else 0
        end = max([at, *ends[which][-1:]]) + 1
        ends[which].append(end)
        kept += end - at <= bound_s
    return kept


def test_a_removed_server_finishes_what_it_has():
    # Ten at once on two, of 1 s each; the second is removed after half a second and has 4.5 s left.
    found = serve(queue(5.0), demand(np.zeros(10), 20.0), schedule((0, 2), (0.5, 1)), router="round_robin")
    assert found.kept[0].sum() == 10
    assert found.draining_s == pytest.approx(4.5, abs=1e-6)


def test_constant_replicas_are_static_ones():
    sizes = np.random.default_rng(3).exponential(1.0, 5000)
    load = demand(drawn([0, 2000], [3.5], 1) / S, 2000.0)
    fixed = serve(queue(4.0, sizes), load, Schedule.constant(5), router="least_loaded")
    stepped = schedule((0, 5), (500, 5), (900, 5), delay=60.0)
    assert serve(queue(4.0, sizes), load, stepped, router="least_loaded").kept.tolist() == fixed.kept.tolist()
    fewer = serve(queue(4.0, sizes), load, schedule((0, 5), (500, 4)), router="least_loaded")
    assert fewer.kept[0, :50].tolist() == fixed.kept[0, :50].tolist()
    assert fewer.kept.sum() < fixed.kept.sum()


def test_slower_replicas_are_as_a_load_that_is_as_much_faster():
    sizes = np.random.default_rng(3).exponential(1.0, 5000)
    due = drawn([0, 1000], [3.5], 1) / S
    course = [(0, 4), (300, 6), (600, 5)]
    plain = serve(queue(4.0, sizes), demand(due, 1000.0), schedule(*course, delay=20.0), router="least_loaded")
    slow = serve(
        queue(8.0, sizes),
        demand(2 * due, 2000.0),
        schedule(*((2 * at, n) for at, n in course), delay=40.0),
        router="least_loaded",
        slowness=2.0,
    )
    assert slow.shares() == plain.shares()
    assert slow.draining_s == pytest.approx(2 * plain.draining_s)


def test_what_is_read_row_by_row_is_what_the_core_counts():
    class ByRows(Flow):
        whole = False

    sizes = np.random.default_rng(3).exponential(1.0, 5000)
    load = demand(drawn([0, 900], [3.5], 1) / S, 900.0)
    course = schedule((0, 4), (300, 6), (600, 5), delay=20.0)
    counted = serve(queue(4.0, sizes), load, course, router="least_loaded")
    rows = ByRows(np.array([1.0]), sizes, [None], [TimeBound("runtime", 4.0)], 1)  # type: ignore[list-item]
    read = serve(rows, load, course, router="least_loaded")
    assert (read.requests.tolist(), read.kept.tolist()) == (counted.requests.tolist(), counted.kept.tolist())


SERVICE = Service(0.02, 0.001, 0.0005, 64, None)


def batching(bound_s: float) -> Batching:
    prompts, answers = np.full(100, 100, np.uint32), np.full(100, 50, np.uint32)
    rates = np.arange(1, 65) / (51 * 0.02 + np.arange(1, 65) * (50 * 0.001 + 0.05))
    return Batching(SERVICE, [TimeBound("runtime", bound_s)], False, prompts, answers, rates)


def test_requests_are_as_long_as_the_trace_says():
    # Alone, a request of P prompt tokens and L of the answer takes L (b + s) + P p.
    tokens = np.array([[100, 400] * 10, [50, 20] * 10], np.uint32)
    took = tokens[1] * 0.021 + tokens[0] * 0.0005
    load = demand(np.arange(20) * 10.0, 200.0, tokens)
    for bound_s in (0.5, 0.63, 1.0999, 1.1001):
        found = serve(batching(bound_s), load, Schedule.constant(2), router="least_loaded")
        assert found.kept.sum() == (took <= bound_s).sum()
    drawn_ = serve(batching(1.1001), replace(load, tokens=None), Schedule.constant(2), router="least_loaded")
    assert drawn_.kept.sum() == 20


def test_a_request_larger_than_any_that_was_measured_is_served():
    tokens = np.array([[100, 5000], [50, 50]], np.uint32)
    narrow = replace(batching(9.0), service=replace(SERVICE, kv_tokens=1000))
    found = serve(narrow, demand([0.0, 20.0], 40.0, tokens), Schedule.constant(1), router="least_loaded")
    assert found.kept.sum() == 2


def test_rates_follow_the_lengths():
    tokens = np.array([[200] * 50, [100] * 50], np.uint32)
    found = with_lengths(batching(3.0), tokens)
    # The closed form: (L + 1) b + c (L s + P p) for c > 1.
    for users in (2, 16, 64):
        assert users / found.rates[users - 1] == pytest.approx(101 * 0.02 + users * (0.1 + 0.1), rel=0.01)


def test_the_worst_stretch():
    due = np.concatenate([np.arange(0, 1200, 1.0)])
    # A pause of the only server is made by long requests: 40 s of work at 600 s.
    sizes = np.ones(1)
    load = demand(np.sort(np.concatenate([due * 1.25, np.full(40, 600.0)])), 1500.0)
    found = serve(queue(2.0, sizes), load, Schedule.constant(1), router="least_loaded")
    worst = found.worst(0)
    # 0.2/s are left over for it, so that it lasts for 200 s.
    assert 500 <= worst.at_s <= 600
    assert worst.requests == pytest.approx(240 + 40, abs=2)
    assert worst.share == pytest.approx((240 - 160) / 280, abs=0.03)
    at, share = found.rolling(0)
    assert share.min() == pytest.approx(worst.share)
    assert (at[0], at[-1]) == (300, 1500)


def test_a_queue_carries_what_the_formula_says():
    # M/M/1: the runtime is exponential with rate mu - lambda, so p95 <= B up to lambda = mu - ln(20) / B. Behind a
    # random router n of them are n queues with an n-th of the load each.
    sizes = np.random.default_rng(5).exponential(1.0, 200_000)
    replica = queue(15.0, sizes / sizes.mean())
    counter = Counter(replica, ClusterLoad(None, 1.0, router="random"), [0.95], Contention())
    found = capacities(counter, 3.9)
    each = 1 - np.log(20) / 15
    assert found.rates / found.counts == pytest.approx(np.full(found.counts.size, each), rel=0.03)
    assert found.needed(np.array([0.0, 0.9 * each, 1.1 * each, 3.5 * each])).tolist() == [1, 1, 2, 4]
    assert (np.diff(found.carried) >= 0).all()


def test_in_between_capacities_are_as_simulated_ones():
    sizes = np.random.default_rng(5).exponential(1.0, 100_000)
    counter = Counter(queue(6.0, sizes / sizes.mean()), ClusterLoad(None, 1.0), [0.95], Contention())
    found = capacities(counter, 30.0)
    skipped = [n for n in range(5, found.counts[-1]) if n not in found.counts][:3]
    for count in skipped:
        rate = float(found.carried[count - 1])
        assert counter.margin(0.98 * rate, count) >= 0
        assert counter.margin(1.02 * rate, count) < 0


def test_a_mean_is_kept_in_a_window_where_its_own_mean_is():
    """One request alone takes 1 s; three that come together wait for each other: 1, 2 and 3 s."""
    server = Flow(np.array([1.0]), np.ones(1), [], [TimeBound("runtime", 2.0, mean=True)], 1)
    served = serve(server, demand([0.0, 100.0, 100.0, 100.0], 200.0), Schedule.constant(1), router="least_loaded")
    assert served.shares() == pytest.approx((2 - (1 + 1 + 2 + 3) / 4 / 2,))
    _, share = served.rolling(0, 50.0)
    assert np.nanmax(share) == 1.0
    assert served.worst(0, 50.0).share == pytest.approx(2 - 2 / 2)
