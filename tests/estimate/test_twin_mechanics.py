"""What a replica does besides batching is found where it is, and not where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batch_limit import held, reached
from gpusize.estimate.twin.batching_model import Fits, Service
from gpusize.estimate.twin.candidates import batching
from gpusize.estimate.twin.mechanics import REQUESTS, likest
from gpusize.estimate.twin.resemblance import Records
from gpusize.estimate.twin.server_figures import Served
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import CLUSTER, level

OBJECTIVES = [Objective.of(Slo.parse("p95 ttft <= 2s"))]


def visits(users: Sequence[int], requests: int = 1500, **more: Any) -> list[Observed]:
    return [visit for n in users for visit in observe(level(n, requests=requests, **more), OBJECTIVES)]


def service(seen: Sequence[Observed], capacity: float) -> Service:
    curves = [Curve(OBJECTIVES[0], 0, seen)]
    found = likest(seen, curves, capacity, joint=False, shared=Fits(seen))
    assert found is not None
    return found.replica.service


def test_chunks_are_found_by_what_they_do_to_times():
    seen = visits([1, 8, 16, 24], max_batched_tokens=256, prefill_per_token_s=0.0004, max_batch=32)
    found = service(seen, 16)
    assert found.batched_tokens == 256
    assert found.per_prompt_token_s == pytest.approx(0.0004, rel=0.02)
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.05)


def test_whole_prompts_are_left_whole_and_a_reserved_cache_reserved():
    found = service(visits([1, 8, 16, 24], max_batch=32, prefill_per_token_s=0.0004), 16)
    assert (found.batched_tokens, found.preempts) == (None, False)


def test_a_cache_that_fills_is_told_from_one_that_is_reserved():
    full = {"kv_block_tokens": 1, "kv_blocks": 4200, "max_batch": 64}
    growing = service(visits([1, 8, 16, 24, 30], kv_preemption=True, **full), 20)
    assert growing.preempts
    assert growing.kv_tokens == pytest.approx(4200, rel=0.12)
    reserved = service(visits([1, 8, 16, 24, 30], **full), 20)
    assert not reserved.preempts
    assert reserved.kv_tokens == pytest.approx(4200, rel=0.08)


def test_a_batch_may_be_full_in_two_ways():
    both = {"kv_block_tokens": 1, "kv_blocks": 7100, "max_batch": 20}
    seen = visits([1, 8, 18, 24, 30], **both)
    sequences, tokens = reached(seen)
    assert sequences == 20
    assert tokens == pytest.approx(7100, rel=0.08)
    found = service(seen, 24)
    assert (found.max_batch, found.kv_tokens) == (20, tokens)


def test_the_server_s_word_on_its_limit_is_not_questioned():
    seen = visits([1, 8, 18, 24, 30], kv_block_tokens=1, kv_blocks=7100, max_batch=20)
    told = [replace(each, served=Served(at_once=17)) if each.users > 20 else each for each in seen]
    found = service(told, 24)
    assert (found.max_batch, found.kv_tokens) == (17, None)


def test_without_a_queue_nothing_was_reached():
    assert reached(visits([1, 8, 16], max_batch=64)) == (None, None)


def test_what_is_held_is_the_sum_over_those_that_run():
    seen = visits([12], requests=600)
    [one] = seen
    told = held(seen)
    # By hand, at many moments: each holds its prompt, and its answer so far.
    moments = np.random.default_rng(1).uniform(*one.window, 4000)
    part = np.clip((moments[:, None] - one.first_s) / (one.last_s - one.first_s), 0.0, None)
    there = (moments[:, None] >= one.first_s) & (moments[:, None] < one.last_s)
    sums = (there * (one.tokens_in + part * one.tokens_out)).sum(axis=1)
    assert told == pytest.approx(float(np.quantile(sums, 0.97)), rel=0.06)
    assert held([]) is None


def test_the_true_replica_repeats_the_records_as_nearly_as_chance_allows():
    seen = visits([1, 8, 16, 24], max_batch=64)
    curves = [Curve(OBJECTIVES[0], 0, seen)]
    fitted = batching(seen, curves, joint=False, prompts_alone=True)
    assert fitted is not None
    records = Records(seen, 16, ("runtime", "ttft", "itl_mean"))
    assert records.metrics == ("runtime", "ttft", "itl_mean")
    assert records.unlike(fitted, REQUESTS) < 2 * records.quantiles
    slower = type(fitted)(**{**_fields(fitted), "service": _slower(fitted.service)})
    assert records.unlike(slower, REQUESTS) > 20 * records.quantiles


def _fields(replica: Any) -> dict[str, Any]:
    return {name: getattr(replica, name) for name in replica.__dataclass_fields__}


def _slower(one: Service) -> Service:
    return Service(1.2 * one.base_s, 1.2 * one.per_sequence_s, 1.2 * one.per_prompt_token_s, None, None)
