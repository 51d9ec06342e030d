"""Servers of prompts: their number and costs are found from first tokens, and what answers cost from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import Fits
from gpusize.estimate.twin.mechanics import likest
from gpusize.estimate.twin.prefill_queue import Apart, replay, there_s
from gpusize.estimate.twin.prefill_servers import Prompts, at_once, decoding_costs, fit_apart
from gpusize.estimate.twin.simulate import Batching
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import CLUSTER, level

OBJECTIVES = [Objective.of(Slo.parse("p95 ttft <= 2s"))]
COSTS: dict[str, Any] = {"iteration_base_s": 0.02, "iteration_per_sequence_s": 0.0005, "prefill_per_token_s": 0.0003}


def visits(users: Sequence[int], requests: int = 1200, **more: Any) -> list[Observed]:
    return [visit for n in users for visit in observe(level(n, requests=requests, **more), OBJECTIVES)]


def prompts(seen: Sequence[Observed]) -> list[Prompts]:
    return [found for each in seen if (found := Prompts.of(each)) is not None]


def likeliest(seen: Sequence[Observed], capacity: float) -> Batching:
    found = likest(seen, [Curve(OBJECTIVES[0], 0, seen)], capacity, joint=False, shared=Fits(seen))
    assert found is not None
    return found.replica


@pytest.mark.parametrize("servers,budget", [(1, None), (3, None), (2, 512), (1, 2048)])
def test_costs_and_numbers_are_found(servers: int, budget: int | None):
    apart = {"servers": servers, "base_s": 0.08, "max_batched_tokens": budget, "transfer_per_token_s": 0.00005}
    seen = visits([1, 2, 6, 16, 48], **COSTS, prefill_servers={**apart, "transfer_s": 0.01})
    found = fit_apart(prompts(seen))
    assert found is not None
    assert found.servers == servers
    assert (found.batched_tokens is None) == (budget is None)
    assert found.base_s == pytest.approx(0.08, rel=0.05)
    assert found.per_prompt_token_s == pytest.approx(COSTS["prefill_per_token_s"], rel=0.02)
    decoding = decoding_costs(seen)
    assert decoding is not None
    assert decoding.base_s == pytest.approx(COSTS["iteration_base_s"], rel=0.03)
    assert decoding.per_sequence_s == pytest.approx(COSTS["iteration_per_sequence_s"], rel=0.1)
    assert decoding.transfer_per_token_s == pytest.approx(0.00005, rel=0.15)
    assert decoding.transfer_s == pytest.approx(0.01, abs=0.01)
    assert at_once(seen, decoding) is None


@pytest.mark.parametrize("costs", [{}, COSTS, {"max_batched_tokens": 128, **COSTS}, {"kv_blocks": 300}])
def test_first_tokens_that_wait_for_answers_tell_of_no_servers(costs: dict[str, Any]):
    assert fit_apart(prompts(visits([1, 2, 6, 16, 32], **costs))) is None
    assert likeliest(visits([1, 8, 16, 24], **costs), 16).service.apart is None


def test_the_replica_has_them_and_repeats_other_loads():
    apart = {"servers": 2, "base_s": 0.03, "transfer_s": 0.02}
    seen = visits([1, 4, 12, 18, 24], **COSTS, prefill_servers=apart)
    found = likeliest(seen, 18).service
    assert found.apart is not None
    assert found.apart.servers == 2
    assert found.to_json()["prefill_servers"]["base_s"] == pytest.approx(0.03, rel=0.05)


def test_answers_that_wait_for_room_tell_how_much_there_is():
    full = {"kv_block_tokens": 1, "kv_blocks": 4000, "kv_preemption": True}
    seen = visits([1, 2, 5, 12, 24, 40, 60], **COSTS, **full, prefill_servers={"servers": 8, "base_s": 0.01})
    found = likeliest(seen, 24).service
    assert found.apart is not None
    assert found.kv_tokens == pytest.approx(4000, rel=0.25)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([None, 150, 512, 4096]),
    st.floats(0.001, 0.05),
    st.integers(1, 30),
)
def test_prompts_sent_again_come_when_they_came(servers: int, budget: int | None, base_s: float, users: int):
    # The simulated cluster is the other way to the same times: events in order there, a heap of servers here.
    apart = {"servers": servers, "base_s": base_s, "max_batched_tokens": budget}
    # Costs that have no common measure, so that nothing ends in the nanosecond in which something begins.
    costs = {"iteration_base_s": 0.0200037, "iteration_per_sequence_s": 0.00050013, "prefill_per_token_s": 0.00030019}
    [seen] = visits([users], 200, **costs, prefill_servers=apart)
    told = Apart(servers, base_s, costs["prefill_per_token_s"], budget)
    replayed = replay(seen.sent_s, seen.tokens_in, told)
    off_s = np.abs(replayed - (seen.first_s - seen.sent_s))
    # Two that are sent in the same nanosecond may stand either way.
    assert np.quantile(off_s, 0.97) < 1e-6


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.floats(0, 0.002), st.floats(0, 0.1))
def test_caches_go_over_one_after_the_other(users: int, per_token_s: float, transfer_s: float):
    [seen] = visits([users], 120, **CLUSTER)
    free, expected = -np.inf, {}
    for each in np.argsort(seen.first_s, kind="stable"):
        free = max(free, seen.first_s[each]) + per_token_s * seen.tokens_in[each]
        expected[each] = min(free + transfer_s, seen.last_s[each])
    found = there_s(seen, transfer_s, per_token_s)
    np.testing.assert_allclose(found, [expected[each] for each in range(found.size)], atol=1e-9)


def test_without_token_counts_there_are_no_prompts_to_fit():
    assert fit_apart([]) is None
    assert decoding_costs([]) is None


def test_what_no_simulated_request_has_is_asked_of_another_model():
    objectives = [Objective.of(Slo.parse("p95 tpot >= 2ms"))]
    levels = [level(n, requests=400, **COSTS, prefill_servers={"servers": 1}) for n in (1, 4, 12)]
    seen = [visit for each in levels for visit in observe(each, objectives)]
    found = likest(seen, [Curve(objectives[0], 0, seen)], 4, joint=False, shared=Fits(seen))
    assert found is None
