"""Replicas that share a queue: the count told from one is that of clusters that have such a queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.truth import true_gpus
from tests.estimate.virtual import CLUSTER, level

LOAD = {"prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}}}
ALONE: dict[str, Any] = {
    "max_batch": 1,
    "output_tokens": {"lognormal": {"median_tokens": 100, "sigma": 0.8, "max_tokens": 1000}},
}
BATCHES: dict[str, Any] = {"static_batching": {"base_s": 0.08, "delay_s": 0.1}, "max_batch": 6}


def asked(levels: Any, slo: Slo, router: str = "shared", users: float = 40, **more: Any) -> Estimate:
    [found] = estimate(levels, Question(users, [slo], router=router, **more))
    return found


@pytest.mark.parametrize(
    "server, loads, bound",
    [
        (ALONE, (1, 2, 4, 8, 12), "p95 runtime <= 12s"),
        (ALONE, (1, 2, 4, 8, 12), "p50 runtime <= 4s"),
        (BATCHES, (1, 3, 6, 12, 20), "p95 runtime <= 8s"),
        ({"max_batch": 4}, (1, 3, 6, 12, 20), "p90 runtime <= 8s"),
    ],
    ids=["one at a time", "one at a time, p50", "batches", "continuous batches"],
)
@pytest.mark.parametrize("users", [20, 60])
def test_the_count_is_that_of_replicas_with_one_queue(
    server: dict[str, Any], loads: tuple[int, ...], bound: str, users: int
) -> None:
    levels, slo = [level(n, requests=1500, **server) for n in loads], Slo.parse(bound)
    truth = true_gpus({**CLUSTER, **server, "router": "shared"}, users, [slo], load=LOAD)
    found = asked(levels, slo, users=users)
    assert truth is not None
    assert found.gpus is not None, found.reason
    assert abs(found.gpus - truth) <= 1, found
    assert (found.gpus_low or 1) <= truth <= (found.gpus_high or truth)
    assert any("one queue for all replicas" in each for each in found.assumptions)


@pytest.mark.parametrize(
    "server, loads, bound, shared, own",
    [
        (ALONE, (1, 2, 4, 8, 12), "p95 runtime <= 12s", 25, 35),
        (BATCHES, (1, 3, 6, 12, 20), "p95 runtime <= 8s", 9, 20),
        # Half of the requests wait for less than the mean in queues of their own, and for about the mean in one.
        (ALONE, (1, 2, 4, 8, 12), "p50 runtime <= 4s", 37, 36),
    ],
    ids=["one at a time", "batches", "one at a time, p50"],
)
def test_it_takes_another_number_than_queues_of_their_own(
    server: dict[str, Any], loads: tuple[int, ...], bound: str, shared: int, own: int
) -> None:
    levels, slo = [level(n, requests=1500, **server) for n in loads], Slo.parse(bound)
    for router, count in (("shared", shared), ("least_loaded", own)):
        assert true_gpus({**CLUSTER, **server, "router": router}, 60, [slo], load=LOAD) == count
        assert abs((asked(levels, slo, router, 60).gpus or 0) - count) <= 1


def test_an_estimate_for_a_kserve_server_says_whose_queues_it_means() -> None:
    tensors = {"targets": [{"api": "kserve", "nature": "inference"}]}
    levels, slo = [level(n, requests=1500, **BATCHES) for n in (1, 3, 6, 12, 20)], Slo.parse("p95 runtime <= 8s")
    told = [replace(each, source=tensors) for each in levels]
    assert any("--router shared" in each for each in asked(told, slo, "least_loaded").warnings)
    for found in (asked(told, slo), asked(levels, slo, "least_loaded"), asked(told, slo, "least_loaded", 1)):
        assert not any("--router" in each for each in found.warnings)
