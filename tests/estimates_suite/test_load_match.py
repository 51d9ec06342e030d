"""AIConfigurator's rule, on servers whose times are known: with k in flight a request takes k seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benches.estimates.methods import crossing, load_match
from benches.estimates.probe import Probe
from benches.estimates.worlds import ForeignWorld
from gpusize.estimate.methods import Estimate
from tests.estimates_suite.simple import LENGTHS, turns


def asked(bound: str, **visible: object) -> Estimate:
    scenario = turns(10, bound)
    scenario = replace(scenario, visible=replace(scenario.visible, **visible))  # type: ignore[arg-type]
    return load_match(Probe(scenario, 1), scenario.visible, scenario.budget)


@pytest.mark.parametrize(
    "bound, count", [("p95 runtime <= 3.5s", 4), ("p95 runtime <= 5.5s", 2), ("p50 service <= 1.5s", 10)]
)
def test_users_over_those_that_one_replica_carries(bound: str, count: int) -> None:
    assert asked(bound).gpus == count


def test_a_rate_over_that_of_one_replica() -> None:
    found = asked("p95 runtime <= 3.5s", users=None, rate=2.5)
    assert found.gpus == 3
    assert found.gpus_raw == pytest.approx(2.5)


def test_gpus_of_a_replica_come_together() -> None:
    assert asked("p95 runtime <= 3.5s", gpus_per_replica=4).gpus == 16


def test_it_says_when_even_a_request_alone_is_too_slow() -> None:
    found = asked("p95 runtime <= 900ms")
    assert (found.gpus, "single request" in str(found.reason)) == (None, True)


def test_quantiles_are_taken_for_means() -> None:
    """Of exponential times the p95 is three means, and beyond a bound that the mean keeps."""
    work = {"exponential": {"mean": 1.0, "max": 1e9}}
    world = ForeignWorld(
        {"mechanics": {"sharing": {"rates": [1.0], "max_active": 1, "work": work}}, "lengths": LENGTHS}
    )
    scenario = replace(turns(10, "p95 runtime <= 1.5s"), world=world)
    assert load_match(Probe(scenario, 1), scenario.visible, scenario.budget).gpus == 10
    assert crossing(Probe(scenario, 1), scenario.visible, scenario.budget).gpus is None
