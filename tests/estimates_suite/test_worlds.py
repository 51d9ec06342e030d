"""Worlds: the same rows from both simulators' sides, and what they promise of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benches.estimates.worlds import ForeignWorld, OwnWorld, Rows, WorldLoad
from benches.lib.procs import BenchFailed
from gpusize.engine.session import core
from tests.estimates_suite.simple import LENGTHS

CONFIG = {
    "iteration_base_s": 0.01,
    "iteration_per_sequence_s": 0.001,
    "prefill_per_token_s": 0.0001,
    "max_batch": 16,
    "output_tokens": {"fixed": {"tokens": 20}},
}
BATCHING = {"base_s": 0.01, "per_token_s": 0.001, "max_batch": 16, "kv_tokens": 100_000}


def runtimes_s(rows: Rows) -> np.ndarray:
    return (rows.end_ns - rows.due_ns)[~rows.warmup] / 1e9


def test_own_rows_follow_the_closed_form() -> None:
    rows = OwnWorld(CONFIG).run(WorldLoad(users=8, requests=800, warmup_requests=80), gpus=1, seed=3)
    expected = core().closed_form_runtime_s(json.dumps({**CONFIG, "gpus": 1}), 8, 100, 20)
    assert len(rows) == 880
    assert rows.ok.all()
    np.testing.assert_allclose(runtimes_s(rows).mean(), expected, rtol=1e-3)


def test_where_both_mechanisms_are_the_same_they_agree() -> None:
    # Prompts of one token cost the foreign mechanism what any token costs, and our own nothing.
    config = {**CONFIG, "prefill_per_token_s": 0.0}
    lengths = {"apart": {"prompt": {"fixed": {"value": 1}}, "output": {"fixed": {"value": 20}}}}
    load = WorldLoad(users=8, requests=800, warmup_requests=80)
    foreign = ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": lengths}).run(load, gpus=1, seed=3)
    own = OwnWorld(config, {"fixed": {"tokens": 1}}).run(load, gpus=1, seed=3)
    np.testing.assert_allclose(runtimes_s(foreign).mean(), runtimes_s(own).mean(), rtol=1e-3)


@pytest.mark.parametrize("users", [1, 16, 40])
@pytest.mark.parametrize("mechanics", ["chunks", "preemption", "both"])
def test_chunks_and_preemption_are_those_of_the_simulator_that_was_written_apart(mechanics: str, users: int) -> None:
    chunks, preemption = mechanics != "preemption", mechanics != "chunks"
    drawn = np.random.default_rng(7)
    pairs = [(int(p), int(n)) for p, n in zip(drawn.integers(50, 400, 60), drawn.integers(5, 60, 60), strict=True)]
    batching = {
        "base_s": 0.01,
        "per_token_s": 0.0001,
        "max_batch": 32,
        "token_budget": 128 if chunks else 0,
        "kv_tokens": 2600 if preemption else 100_000,
        "grow": preemption,
    }
    config = {
        "iteration_base_s": 0.01,
        "iteration_per_sequence_s": 0.0001,
        "prefill_per_token_s": 0.0001,
        "max_batch": 32,
        "max_batched_tokens": 128 if chunks else None,
        "kv_blocks": batching["kv_tokens"],
        "kv_block_tokens": 1,
        "kv_preemption": preemption,
    }
    load = WorldLoad(users=users, requests=3000, warmup_requests=300)
    # What makes the first token costs the foreign one a token of the prompt, and our own one of the answer.
    longer = [(p + 1, n) for p, n in pairs]
    foreign = ForeignWorld({"mechanics": {"batching": batching}, "lengths": {"pairs": longer}}).run(
        load, gpus=1, seed=3
    )
    own = OwnWorld(config, mix=tuple(pairs)).run(load, gpus=1, seed=3)
    for name, tolerance in (("first_token_ns", 0.05), ("end_ns", 0.03)):
        found = [(getattr(rows, name) - rows.due_ns)[~rows.warmup] / 1e9 for rows in (foreign, own)]
        np.testing.assert_allclose(found[0].mean(), found[1].mean(), rtol=tolerance)
        for share in (0.5, 0.95):
            first, second = (np.quantile(each, share) for each in found)
            np.testing.assert_allclose(first, second, rtol=2 * tolerance)


def test_foreign_rows_have_the_load_that_was_asked_for() -> None:
    world = ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": LENGTHS})
    rows = world.run(WorldLoad(rate=20.0, process="constant", requests=500, warmup_requests=50), gpus=3, seed=1)
    np.testing.assert_array_equal(np.diff(rows.due_ns), 50_000_000)
    assert int(rows.warmup.sum()) == 50
    assert set(rows.gpu) <= {0, 1, 2}
    assert (rows.prompt_tokens == 10).all()
    assert (rows.tokens_out == 5).all()


@pytest.mark.parametrize("kind", ["own", "foreign"])
def test_think_times_have_their_mean(kind: str) -> None:
    own = OwnWorld(CONFIG)
    world = own if kind == "own" else ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": LENGTHS})
    rows = world.run(WorldLoad(users=5, think_s=2.0, think="exponential", requests=5000), gpus=2, seed=1)
    gaps = []
    for user in range(5):
        own_rows = rows.user == user
        gaps.append((rows.due_ns[own_rows][1:] - rows.end_ns[own_rows][:-1]) / 1e9)
    found = np.concatenate(gaps)
    assert found.min() >= 0
    np.testing.assert_allclose([found.mean(), found.std()], 2.0, rtol=0.08)


def test_a_measured_mix_stays_in_pairs() -> None:
    pairs = tuple((10 * k, k) for k in range(1, 6))
    for world in (
        OwnWorld(CONFIG, mix=pairs),
        ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": {"pairs": pairs}}),
    ):
        rows = world.run(WorldLoad(users=4, requests=1000), gpus=1, seed=2)
        np.testing.assert_array_equal(rows.prompt_tokens, 10 * rows.tokens_out)
        assert set(rows.tokens_out) == {1, 2, 3, 4, 5}


def test_contention_slows_every_gpu() -> None:
    load = WorldLoad(users=6, requests=600, warmup_requests=60, router="round_robin")
    contention = {"sigma": 0.1, "kappa": 0.05}
    alone, together = (OwnWorld(CONFIG, contention=each).run(load, gpus=3, seed=1) for each in (None, contention))
    np.testing.assert_allclose(runtimes_s(together).mean() / runtimes_s(alone).mean(), 1 + 0.2 + 0.3, rtol=1e-3)


def test_users_begin_at_once_where_they_burst() -> None:
    for world in (OwnWorld(CONFIG), ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": LENGTHS})):
        rows = world.run(WorldLoad(users=6, requests=6, burst=True), gpus=1, seed=1)
        assert (rows.due_ns == 0).all()


def test_what_cannot_run_is_refused_and_the_next_request_is_answered() -> None:
    with pytest.raises(BenchFailed, match="max_batch"):
        ForeignWorld({"mechanics": {"batching": {**BATCHING, "max_batch": 0}}, "lengths": LENGTHS}).run(
            WorldLoad(users=1), gpus=1, seed=1
        )
    world = ForeignWorld({"mechanics": {"batching": BATCHING}, "lengths": LENGTHS})
    assert len(world.run(WorldLoad(users=1, requests=7), gpus=1, seed=1)) == 7
