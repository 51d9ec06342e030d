"""Static batches: costs, limit and delay are recovered, the count is true, and nothing else is taken for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.truth import true_gpus
from gpusize.estimate.twin.static_batch_model import fit_static, surely_static
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate import worlds
from tests.estimate.virtual import CLUSTER, level

SLO = Slo.parse("p95 runtime <= 15s")
BATCHES: dict[str, Any] = {"static_batching": {"base_s": 0.08, "delay_s": 0.4}, "max_batch": 12}
LOADS = (1, 3, 8, 16, 24, 30, 40)


def visits(users, **more) -> list[Observed]:
    return [visit for n in users for visit in observe(level(n, requests=800, **more), [Objective.of(SLO)])]


def test_costs_limit_and_delay_are_recovered():
    found = fit_static(visits(LOADS, **BATCHES))
    assert found is not None
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.01)
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.02)
    assert found.per_prompt_token_s == pytest.approx(CLUSTER["prefill_per_token_s"], rel=0.05)
    assert found.max_batch == 12
    assert found.whole == pytest.approx((0.08, 0.4), rel=0.1)
    assert found.noise < 0.02


def test_what_requests_cost_by_themselves_is_seen_in_their_batches():
    found = fit_static(visits(LOADS, noise_sigma=0.4, **BATCHES))
    assert found is not None
    assert found.noise == pytest.approx(0.4, rel=0.15)
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.05)


def test_a_few_failed_requests_hide_no_batches():
    rng = np.random.default_rng(3)

    def failing(share: float) -> list[Observed]:
        lost = [rng.random(visit.due_s.size) < share for visit in seen]
        return [
            replace(visit, ok=visit.ok & ~gone, last_s=np.where(gone, np.nan, visit.last_s))
            for visit, gone in zip(seen, lost, strict=True)
        ]

    seen = visits(LOADS, **BATCHES)
    found = fit_static(failing(0.004))
    assert found is not None
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.02)
    assert found.whole == pytest.approx((0.08, 0.4), rel=0.1)
    assert fit_static(failing(0.1)) is None


def test_a_limit_that_nobody_waited_for_is_none():
    found = fit_static(visits((1, 3, 8), static_batching={"base_s": 0.08, "delay_s": 0.0}, max_batch=500))
    assert found is not None
    assert found.max_batch is None
    assert found.whole is not None
    assert found.whole[1] == 0.0


def test_without_tokens_a_batch_costs_by_its_members():
    blind = [
        replace(visit, tokens_out=np.full(visit.due_s.size, np.nan), first_s=np.full(visit.due_s.size, np.nan))
        for visit in visits(LOADS, output_tokens={"fixed": {"tokens": 50}}, **BATCHES)
    ]
    none = [np.full(visit.due_s.size, np.nan) for visit in blind]
    found = fit_static([replace(visit, tokens_in=at, computed=at) for visit, at in zip(blind, none, strict=True)])
    assert found is not None
    each_s = 50 * CLUSTER["iteration_per_sequence_s"]
    # Prompts of 50 to 400 tokens are part of what a member costs.
    each_s += 225 * CLUSTER["prefill_per_token_s"]
    assert found.per_sequence_s == pytest.approx(each_s, rel=0.05)


@pytest.mark.parametrize(
    "more", [{}, {"max_batch": 6}, {"noise_sigma": 0.5}, {"kv_blocks": 200, "kv_block_tokens": 16}]
)
def test_continuous_batching_is_not_taken_for_it(more):
    assert fit_static(visits(LOADS, **more)) is None


def test_equal_answers_that_join_one_by_one_are_not_taken_for_it():
    assert fit_static(visits(LOADS, output_tokens={"fixed": {"tokens": 64}})) is None


def test_equal_answers_could_run_side_by_side_as_well():
    assert surely_static(visits(LOADS, **BATCHES)) is not None
    equal = visits(LOADS, output_tokens={"fixed": {"tokens": 64}}, **BATCHES)
    assert fit_static(equal) is not None
    assert surely_static(equal) is None
    assert surely_static(visits(LOADS)) is None
    assert surely_static([replace(visit, tokens_out=np.full(visit.due_s.size, np.nan)) for visit in equal]) is not None


def test_one_that_overtakes_is_no_member():
    seen = visits(LOADS, **BATCHES)
    last = seen[-1]
    shuffled = np.random.default_rng(1).permutation(last.sent_s)
    assert fit_static([*seen[:-1], replace(last, sent_s=np.minimum(shuffled, last.last_s))]) is None


@pytest.mark.parametrize("router", ["least_loaded", "round_robin"])
@pytest.mark.parametrize("users", [60, 200])
def test_the_count_is_the_true_one(router, users):
    levels = [level(n, requests=800, **BATCHES) for n in LOADS]
    load = {"prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}}}
    truth = true_gpus({**CLUSTER, **BATCHES, "router": router}, users, [SLO], load=load)
    [found] = estimate(levels, Question(users, [SLO], router=router), "twin")
    assert found.details["model"] == "static"
    assert truth is not None
    assert found.gpus is not None
    assert abs(found.gpus - truth) <= max(1, 0.05 * truth)
    assert any("longest answer" in text for text in found.assumptions)


def test_constant_times_that_grow_with_the_load_are_no_static_batches():
    """A function that sleeps for 0.2 s and 25 ms per request in flight: ends coincide because the times are alike."""
    slo = Slo.parse("p95 runtime <= 505ms")
    levels = worlds.levels(worlds.Server(lambda at_work: 0.2 + 0.025 * at_work), (1, 2, 4, 8, 12, 16, 20, 24))
    [hundred] = estimate(levels, Question(100, [slo]))
    assert (hundred.method, hundred.gpus, hundred.details["model"]) == ("twin", 9, "measured")
    [ten] = estimate(levels, Question(10, [slo]))
    assert ten.gpus == 1


def test_batches_of_requests_that_were_sent_apart_are_seen_without_tokens():
    serial = worlds.Server(lambda members: 0.2 + 0.01 * members, slots=8, whole=True)
    slo = Slo.parse("p95 runtime <= 700ms")
    [found] = estimate(worlds.levels(serial, (1, 2, 4, 8, 12, 16, 20, 24), requests=400), Question(100, [slo]))
    assert found.details["model"] == "static"


@pytest.mark.parametrize("loads", [(1, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32, 40, 64)])
@pytest.mark.parametrize("users", [60, 130, 200, 350])
def test_steps_within_a_gap_between_levels_are_within_the_interval(users, loads):
    """32 in flight are four batches, just what the SLO allows: a smooth line from 32 to 64 says that 36 are carried.

    Nothing says that these are batches: their members are alike, and were sent together.
    """
    whole = worlds.Server(lambda members: 0.056 + 0.0003 * members, slots=8, whole=True)
    slo = Slo.parse("p95 runtime <= 260ms")
    [found] = estimate(worlds.levels(whole, loads, requests=400), Question(users, [slo]))
    assert (found.method, found.details["model"]) == ("twin", "measured")
    assert found.gpus_low <= -(-users // 32) <= found.gpus_high
    # No further than the levels say: they are carried below the gap, and not above it.
    below, above = max(load for load in loads if load <= 32), min(load for load in loads if load > 32)
    assert found.gpus_low >= users // above
    assert found.gpus_high <= -(-users // below) + 1
