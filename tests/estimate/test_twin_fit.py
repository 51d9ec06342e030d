"""The twin's parts: the fitted service, the measured curve and its errors, calibration, the loss between replicas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batch_limit import limits, seen_at_once
from gpusize.estimate.twin.batching_model import fit_service
from gpusize.estimate.twin.calibration import calibrated
from gpusize.estimate.twin.candidates import batching, flow
from gpusize.estimate.twin.contention import contention
from gpusize.estimate.twin.rates import rates_of
from gpusize.estimate.twin.routed_mixture import curve_capacity
from gpusize.estimate.twin.simulate import Batching, TimeBound
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import CLUSTER, level

SLO = Slo.parse("p95 runtime <= 8s")
OBJECTIVES = [Objective.of(SLO)]


def visits(users: Sequence[int], **more: object) -> list[Observed]:
    return [visit for n in users for visit in observe(level(n, **more), OBJECTIVES)]  # type: ignore[arg-type]


def drawn(users: int, scale: float, *, n: int = 4000, batch: float = 0.0, seed: int = 1) -> Observed:
    """A visit whose values are known: lognormal with median ``scale``, shared in part by those of one second."""
    rng = np.random.default_rng([seed, users])
    end = np.sort(rng.uniform(0, n / 10, n))
    shared = batch * rng.standard_normal(n)[(end / 10).astype(int)]
    values = scale * np.exp(math.sqrt(0.09 - 0.09 * batch**2) * rng.standard_normal(n) + 0.3 * shared)
    none = np.full(n, np.nan)
    return Observed(
        users, 1, 0.0, (0.0, n / 10), end - 1, end - 1, none, end, none, none, none, np.ones(n, bool), np.ones(n, bool),
        values[None, :],
    )  # fmt: skip


def test_the_costs_of_iterations_are_recovered():
    found = fit_service(visits([1, 2, 8, 32]))
    assert found is not None
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.01)
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.03)
    assert found.per_prompt_token_s == pytest.approx(CLUSTER["prefill_per_token_s"], rel=0.05)
    assert (found.max_batch, found.kv_tokens) == (None, None)


def test_what_ran_at_once_is_seen_below_a_limit_and_at_one():
    """No queue, a queue too short for ``limits``, and a long one; prompts that take long are no queue."""
    assert seen_at_once(visits([1, 8, 24], max_batch=64)) == (24, False)
    short = visits([1, 8, 24], max_batch=21)
    assert limits(short) == (None, None)
    assert seen_at_once(short) == (21, True)
    assert seen_at_once(visits([1, 8, 24], max_batch=12)) == (12, True)
    most, sure = seen_at_once(visits([1, 8, 24], max_batch=64, prefill_per_token_s=0.0004)) or (0, True)
    assert 20 <= most <= 24
    assert not sure
    found = fit_service(short)
    assert found is not None
    assert found.seen == (21, True)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("seed", [3, 4])
def test_steps_that_cost_nothing_by_themselves_leave_idle_times_alone(seed, alone):
    sequence_s = 0.004
    costs = {"iteration_base_s": 0.0, "iteration_per_sequence_s": sequence_s, "noise_sigma": 0.8}
    found = fit_service(visits([1, 2, 4, 8], requests=200, seed=seed, **costs), prompts_alone=alone)
    assert found is not None
    assert found.base_s < 0.02 * sequence_s
    assert found.per_sequence_s == pytest.approx(sequence_s, rel=0.15)


def test_a_full_batch_is_recognized():
    found = fit_service(visits([1, 4, 16, 24], max_batch=8))
    assert found is not None
    assert found.max_batch == 8
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.02)


def test_a_full_cache_is_recognized():
    found = fit_service(visits([1, 4, 24], kv_blocks=200, kv_block_tokens=16))
    assert found is not None
    assert found.max_batch is None
    assert found.kv_tokens == pytest.approx(200 * 16, rel=0.1)


def test_without_tokens_there_are_no_costs():
    assert fit_service([drawn(2, 1.0), drawn(4, 1.2)]) is None


def test_the_curve_is_that_of_known_distributions():
    objective = Objective.of(Slo.parse("p95 runtime <= 2s"))
    curve = Curve(objective, 0, [drawn(c, 0.1 * c) for c in (8, 10, 12, 14)])
    for users, tolerance in ((10, 0.015), (11, 0.015), (12, 0.015)):
        z = math.log(2 / (0.1 * users)) / 0.3
        truth = 0.5 * math.erfc(-z / math.sqrt(2))
        found = curve.at(users)
        assert found.value == pytest.approx(truth, abs=tolerance)
        assert abs(found.value - truth) < 4 * found.error
    # Phi((ln 2 - ln 0.1 c) / 0.3) = 0.95 at c = 20 exp(-0.3 * 1.645)
    capacity = curve_capacity(curve)
    assert capacity == pytest.approx(20 * math.exp(-0.3 * 1.644854), rel=0.02)


def test_requests_of_one_moment_are_not_independent():
    objective = Objective.of(Slo.parse("p95 runtime <= 2s"))
    alone, together = (Curve(objective, 0, [drawn(12, 1.2, batch=batch)]).at(12).error for batch in (0.0, 0.9))
    assert together > 2 * alone


def test_errors_of_the_curve_are_as_large_as_its_errors_are():
    objective = Objective.of(Slo.parse("p95 runtime <= 2s"))
    found = [Curve(objective, 0, [drawn(12, 1.2, n=1500, batch=0.5, seed=seed)]).at(12) for seed in range(60)]
    spread = float(np.std([each.value for each in found]))
    assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=0.35)


def test_the_right_model_needs_no_correction():
    seen = visits([1, 4, 16, 28, 30, 32], requests=1500)
    curves = [Curve(OBJECTIVES[0], 0, seen)]
    capacity = curve_capacity(curves[0])
    replica = batching(seen, curves, joint=False)
    assert capacity is not None
    assert replica is not None
    found = calibrated("batching", replica, curves, [capacity], prior=0.004, reach=0.6, sampled=0.01)
    assert found.distance < 0.03
    assert abs(found.corrections[0]) < 0.02


def test_a_wrong_model_is_corrected_and_told():
    seen = visits([1, 4, 16, 28, 30, 32], requests=1500)
    curves = [Curve(OBJECTIVES[0], 0, seen)]
    capacity = curve_capacity(curves[0])
    replica = flow(seen, curves)
    assert replica is not None
    slow = replica.scaled([1.0])
    object.__setattr__(slow, "bounds", [TimeBound("runtime", 8.0 / 1.3)])
    found = calibrated("flow", slow, curves, [capacity or 1.0], prior=0.02, reach=0.6, sampled=0.01)
    assert math.exp(found.corrections[0]) == pytest.approx(1.3, rel=0.05)
    assert found.distance > 0.2


def test_rates_follow_from_littles_law():
    rates = rates_of(visits([1, 8]))
    # Alone: 1 / (n (t0 + t1) + p P), at 108 tokens and 225 of prompt on average.
    assert 1 / rates[0] == pytest.approx(108 * 0.021 + 0.00005 * 225, rel=0.05)
    assert np.all(np.diff(rates) >= -1e-12)


@pytest.mark.parametrize("sigma", [0.0, 0.08])
def test_the_loss_between_replicas_is_seen(sigma):
    seen = visits([1, 8, 16], requests=1000)
    for gpus in (2, 4):
        seen += visits([8 * gpus], gpus=gpus, requests=1500, slowness=1 + sigma * (gpus - 1))
    alone = [visit for visit in seen if visit.gpus == 1]
    replica = batching(alone, [Curve(OBJECTIVES[0], 0, alone)], joint=False)
    assert replica is not None
    found = contention(seen, 1, replica, "least_loaded")
    assert found.sigma == pytest.approx(sigma, abs=0.01)
    assert found.kappa == pytest.approx(0.0, abs=0.003)
    assert found.slowness(4) == pytest.approx(1 + 3 * sigma, rel=0.03)
    assert (found.error(8) > found.error(2)) or found.error(8) == 0


def test_what_a_model_gets_wrong_by_the_load_is_no_loss_between_replicas():
    seen = visits([1, 6, 24], requests=1500)
    curves = [Curve(OBJECTIVES[0], 0, seen)]
    replica = batching(seen, curves, joint=False)
    assert isinstance(replica, Batching)
    # Too slow by ever more with more requests in flight.
    wrong = replace(replica, service=replace(replica.service, per_sequence_s=1.5 * replica.service.per_sequence_s))
    for gpus in (2, 4):
        seen += visits([12 * gpus], gpus=gpus, requests=1500)
    assert {count: slow for count, slow, _ in contention(seen, 1, wrong, "least_loaded").counts} == pytest.approx(
        {2: 1.0, 4: 1.0}, abs=0.015
    )
    # Without a load of one replica on either side, of requests enough, there is nothing to tell it by.
    far = [each for each in seen if each.gpus > 1 or each.users == 24] + visits([8], requests=15)
    assert all(slow < 0.95 for _, slow, _ in contention(far, 1, wrong, "least_loaded").counts)
