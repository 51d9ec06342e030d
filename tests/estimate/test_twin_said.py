"""What servers say of each request's queue, in the twin's fit: against the simulated cluster's own rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.twin.batch_limit import limits, said_at_once
from gpusize.estimate.twin.sharing import limit_of, served_s
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.test_twin_sharing import BENT, shared
from tests.estimate.virtual import level

RUNTIME = Objective.of(Slo.parse("p95 runtime <= 10s"))


def said(users: int, limit: int, requests: int = 400) -> tuple[Observed, NDArray[np.float64]]:
    visit, start_s = shared(users, BENT[:limit], limit=limit, requests=requests)
    return replace(visit, queue_s=start_s - visit.sent_s), start_s


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_one_load_shows_the_limit_that_times_alone_do_not(limit: int) -> None:
    visit, start_s = said(4 * limit, limit)
    assert limit_of([replace(visit, queue_s=None)]) is None
    assert said_at_once([visit]) == limits([visit])[0] == limit
    # Independently: of the time in the window, what part so many were at work.
    low, high = visit.window
    middle = np.linspace(low, high, 500)
    at_work = [(np.count_nonzero((start_s <= t) & (visit.last_s > t))) for t in middle]
    assert np.median(at_work) == limit


@pytest.mark.parametrize("limit", [2, 5])
def test_service_is_without_the_wait_whatever_the_order(limit: int) -> None:
    visit, start_s = said(3 * limit, limit)
    order = np.argsort(visit.sent_s, kind="stable")
    steady = (visit.ok & visit.steady)[order]
    assert served_s(visit, limit) == pytest.approx((visit.last_s - start_s)[order][steady])
    # A server that takes the waiting ones in another order: times alone would give the wait of one to another.
    lot = np.random.default_rng(3).uniform(0, 1, visit.sent_s.size)
    other = replace(visit, queue_s=lot * (visit.last_s - visit.sent_s))
    assert served_s(other, limit) == pytest.approx(((1 - lot) * (visit.last_s - visit.sent_s))[order][steady])


def test_below_the_limit_a_wait_for_the_step_is_service() -> None:
    visit, _ = said(2, 8)
    waited = replace(visit, queue_s=np.full(visit.sent_s.size, 1e-3))
    assert served_s(waited, 8) == pytest.approx(served_s(replace(visit, queue_s=None), 8))
    assert said_at_once([waited]) is None


@pytest.mark.parametrize("most", [4, 16])
def test_the_simulated_cluster_in_one_piece(most: int) -> None:
    found = [observe(level(users, said=True, whole=True, max_batch=most), [RUNTIME])[0] for users in (2, 3 * most)]
    assert all(np.isnan(each.first_s).all() for each in found)
    assert said_at_once(found) == most
    assert limits([replace(each, queue_s=None, server_s=None) for each in found]) == (None, None)


def test_a_cache_that_fills_shows_the_middle_of_what_ran() -> None:
    lengths = {"uniform": {"min_tokens": 20, "max_tokens": 300}}
    data = level(40, said=True, whole=True, kv_blocks=150, kv_block_tokens=16, output_tokens=lengths, requests=1500)
    [visit] = observe(data, [RUNTIME])
    rows = data.records.collect()
    begun = (rows["sent_ns"] + rows["server_queue_ns"]).to_numpy()
    low, high = (visit.window[side] * 1e9 + rows["due_ns"].to_numpy().min() for side in (0, 1))
    ran = [np.count_nonzero((begun <= t) & (rows["end_ns"].to_numpy() > t)) for t in np.linspace(low, high, 2000)]
    at_once = said_at_once([visit])
    assert at_once is not None
    assert at_once == pytest.approx(np.mean(ran), abs=1.5)
    assert at_once < 40


def test_what_cannot_be_true_or_is_seldom_said_is_not_used() -> None:
    data = level(12, said=True, max_batch=4)
    [usual] = observe(data, [RUNTIME])
    assert usual.queue_s is not None
    queue, n = pl.col("server_queue_ns"), pl.int_range(pl.len())
    for other in (queue + 60_000_000_000, pl.when(n % 10 > 0).then(queue)):
        records = data.records.with_columns(other.alias("server_queue_ns"))
        [visit] = observe(replace(data, records=records), [RUNTIME])
        assert visit.queue_s is None


def test_the_answer_with_few_requests_is_no_further_off() -> None:
    """Answers in one piece and few of them: the limit of the batch is what has to be guessed without the queues."""
    slo = Slo.parse("p95 runtime <= 12s")
    off: dict[bool, list[float]] = {True: [], False: []}
    for most in (6, 12, 24):
        asked = Question(users=200, slos=[slo])
        many = [level(users, requests=3000, max_batch=most) for users in (most, 3 * most, 6 * most)]
        right = estimate(many, asked, "twin")[0].gpus_raw
        assert right is not None
        for tells, errors in off.items():
            loads = (2, most, 3 * most, 6 * most)
            few = [level(users, requests=150, max_batch=most, whole=True, said=tells) for users in loads]
            found = estimate(few, asked, "twin")[0]
            assert found.gpus_raw is not None, found.reason
            errors.append(abs(math.log(found.gpus_raw / right)))
    assert np.mean(off[True]) <= np.mean(off[False]) + 0.01
    assert max(off[True]) < 0.25
