"""A shared server's limit, sizes and rates: told by times alone, where the simulated one knows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from gpusize.analysis.slo import Slo
from gpusize.engine.session import core
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.calibration import calibrated
from gpusize.estimate.twin.candidates import flow
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.rates import rates_of
from gpusize.estimate.twin.routed_mixture import curve_capacity
from gpusize.estimate.twin.server_figures import Served
from gpusize.estimate.twin.sharing import limit_of, served_s, sizes_of
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import level

K = np.arange(1.0, 201.0)
BENT = 10.0 * K / (K + 6.0)
"""Ever less is gained by one more."""
CORNER = np.minimum(K, 4.0)
SIZES = np.random.default_rng(7).lognormal(-0.32, 0.8, 4000)
RUNTIME = Objective.of(Slo.parse("p95 runtime <= 3s"))


def shared(
    users: int, rates: NDArray[np.float64], *, limit: int | None = None, requests: int = 700, settled: bool = True
) -> tuple[Observed, NDArray[np.float64]]:
    """A visit of such a server, and when each request begins."""
    config = {"rates": rates.tolist(), "max_active": limit, "gpus": 1, "seed": users}
    asked = {"arrivals": {"closed": {"users": users}}, "requests": requests, "warmup_requests": 0}
    stream, _ = core().simulate_flow(json.dumps(config), json.dumps(asked), (SIZES / SIZES.mean()).tobytes())
    rows = pl.DataFrame(stream)
    due_s, start_s, end_s = (rows[name].to_numpy() / 1e9 for name in ("due_ns", "start_ns", "end_ns"))
    window = (float(due_s[min(2 * users, due_s.size - 1)]) if settled else 0.0, float(due_s[-1]))
    steady = (end_s >= window[0]) & (end_s < window[1]) if settled else np.ones(due_s.size, bool)
    none, ok = np.full(due_s.size, np.nan), np.ones(due_s.size, bool)
    values = (end_s - due_s)[None, :]
    visit = Observed(
        users, 1, 0.0, window, due_s, due_s, none, end_s, none, none, none, ok, steady, values, settled=settled
    )  # fmt: skip
    return visit, start_s


def levels(
    users: Sequence[int], rates: NDArray[np.float64], *, limit: int | None = None, requests: int = 700
) -> list[Observed]:
    return [shared(each, rates, limit=limit, requests=requests)[0] for each in users]


def test_when_requests_begin_is_in_the_records():
    visit, start_s = shared(20, BENT, limit=6)
    assert served_s(visit, 6) == pytest.approx((visit.last_s - start_s)[visit.steady], abs=1e-6)
    assert served_s(visit, None) == pytest.approx((visit.last_s - visit.sent_s)[visit.steady], abs=1e-6)


@pytest.mark.parametrize("limit", [1, 3, 8, 16])
def test_a_queue_that_only_times_show_is_found(limit):
    assert limit_of(levels([1, 2, 5, 12, 20, 24, 28], BENT, limit=limit)) == pytest.approx(limit, rel=0.11)


@pytest.mark.parametrize("rates", [BENT, CORNER])
def test_no_queue_is_seen_where_none_stands(rates):
    assert limit_of(levels([1, 2, 5, 12, 20, 24, 28], rates)) is None


def test_what_was_told_stays_unless_times_tell_otherwise():
    seen = levels([1, 2, 5, 12, 20, 24, 28], BENT, limit=8)
    assert limit_of(seen, 9) in (8, 9)
    assert limit_of(seen, 20) == pytest.approx(8, abs=1)
    assert limit_of(seen[:1], 20) == 20
    said = [replace(each, served=Served(at_once=12)) for each in seen]
    found = flow(said, [Curve(RUNTIME, 0, said)])
    assert found is not None
    assert getattr(found, "max_active", None) == 12


def test_sizes_behind_a_queue_are_those_that_were_served():
    seen = levels([20, 24, 28], BENT, limit=4, requests=3000)
    true = SIZES / SIZES.mean()
    found = sizes_of(seen, 4)
    assert found is not None
    assert np.quantile(found, [0.1, 0.5, 0.9, 0.99]) == pytest.approx(
        np.quantile(true, [0.1, 0.5, 0.9, 0.99]), rel=0.06
    )
    waited = sizes_of(seen, None)
    assert waited is not None
    assert waited.std() < 0.5 * true.std()


@pytest.mark.parametrize("rates", [BENT, CORNER])
def test_rates_are_told_between_levels_and_beyond_them(rates):
    found = rates_of(levels([1, 2, 4, 8, 20, 30], rates, requests=6000))
    assert found[:60] == pytest.approx(rates[:60], rel=0.06)
    assert np.all(np.diff(found) >= -1e-9)


def test_a_level_of_a_few_requests_bends_no_rates():
    many = levels([1, 2, 20], BENT, requests=6000)
    odd = shared(9, BENT, requests=60)[0]
    slow = replace(odd, last_s=odd.sent_s + 1.5 * (odd.last_s - odd.sent_s))
    assert rates_of([*many, slow])[:20] == pytest.approx(BENT[:20], rel=0.06)


def test_visits_that_fill_and_empty_tell_the_rate_in_between():
    seen = [shared(users, BENT, requests=3 * users, settled=False)[0] for users in (40, 60, 100)]
    found = rates_of([*levels([1, 2], BENT), *seen])
    assert found[[39, 59, 99]] == pytest.approx(BENT[[39, 59, 99]], rel=0.15)
    # By their mean times, the beginning and the end of the visit among them, it would be more.
    took = np.concatenate([(each.last_s - each.sent_s) * BENT[each.users - 1] / each.users for each in seen])
    assert took.mean() < 0.85


def test_one_level_alone_is_a_server_that_is_full():
    assert rates_of(levels([8], BENT)) == pytest.approx(np.full(24, BENT[7]), rel=0.15)
    assert rates_of([]).size == 0


def test_the_shared_server_needs_no_correction():
    """What flow has, it finds: the times of levels that it was not fitted to one by one come out right."""
    seen = levels([1, 2, 5, 10, 12, 14, 18], BENT, limit=6, requests=3000)
    curves = [Curve(RUNTIME, 0, seen)]
    capacity = curve_capacity(curves[0])
    replica = flow(seen, curves)
    assert capacity is not None
    assert replica is not None
    found = calibrated("flow", replica, curves, [capacity], prior=0.02, reach=0.6, sampled=0.01)
    assert found.levels
    assert found.distance < 0.03
    assert abs(found.corrections[0]) < 0.02


@pytest.mark.parametrize("bounds", [("p95 ttft <= 4s",), ("p95 ttft <= 4s", "p95 runtime <= 8s")])
def test_a_wait_in_the_queue_counts_once(bounds):
    """What is read from the measured curve has the wait already, for one metric and for several at once."""
    slos = [Slo.parse(each) for each in bounds]
    objective = Objective.of(slos[0]) if len(slos) == 1 else Objective.joint(slos, 0.95)
    seen = [each for n in (1, 4, 12, 18, 22, 26) for each in observe(level(n, requests=900, max_batch=8), [objective])]
    curves = [Curve(objective, 0, seen)]
    replica = flow(seen, curves)
    assert replica is not None
    for users in (18, 22):
        share = replica.run(ClusterLoad(users=users), 1, requests=8000).share(0, 1.0)
        assert share == pytest.approx(curves[0].at(users).value, abs=0.05)
