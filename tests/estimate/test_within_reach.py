"""No number where replicas would have far more in flight than was measured: nothing says how long requests take."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.engine.session import core
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.twin.sizing_result import Sized, within_reach
from tests.estimate.virtual import CLUSTER, level

SERVER: dict[str, Any] = {
    "output_tokens": {"fixed": {"tokens": 100}},
    "prefill_per_token_s": 0.0,
    "iteration_per_sequence_s": 0.0001,
}
SLO = Slo.parse("p50 ttft <= 34ms")
"""Two users who never pause wait for a whole iteration each and miss it; who comes at any moment waits for half."""
RATE = 60.0


def asked(loads: tuple[int, ...], question: Question) -> Estimate:
    [found] = estimate([level(users, **SERVER) for users in loads], question)
    return found


def needed() -> int:
    """The fewest replicas that keep it at the rate, by simulated clusters alone."""
    load = {"arrivals": {"open": {"rate_per_s": RATE, "process": "poisson"}}, "requests": 60_000}
    for gpus in range(1, 40):
        config = json.dumps({**CLUSTER, **SERVER, "gpus": gpus, "seed": 7})
        rows = pl.DataFrame(core().simulate(config, json.dumps({**load, "warmup_requests": 2_000}))[0])
        waits = rows.filter(~pl.col("warmup")).select((pl.col("first_token_ns") - pl.col("due_ns")).median() / 1e9)
        if waits.item() <= 0.034:
            return gpus
    raise AssertionError("none")


@pytest.mark.parametrize(
    "question",
    [Question(0, [SLO], rate=RATE), Question(400, [SLO], think_s=4.0, think="exponential")],
    ids=["at a rate", "with pauses"],
)
def test_replicas_with_far_more_in_flight_than_was_measured_get_no_number(question: Question) -> None:
    found = asked((1, 2, 3), question)
    assert found.gpus is None
    assert "requests in flight, and at most 3 were measured" in (found.reason or "")
    assert found.details["refusal"] == "reach"
    half, whole = found.next_levels
    assert half < whole
    # What it says is worth measuring is enough for a number.
    then = asked((1, 2, 3, half, whole), question)
    assert then.gpus is not None, then.reason
    assert then.details["in_flight_each"] <= 1.5 * whole


def test_what_it_says_after_measuring_them_is_what_clusters_need() -> None:
    follow = asked((1, 2, 3), Question(0, [SLO], rate=RATE)).next_levels
    found = asked((1, 2, 3, *follow), Question(0, [SLO], rate=RATE))
    assert abs((found.gpus or 0) - needed()) <= 1, found


def test_a_little_more_than_was_measured_is_answered() -> None:
    sized = Sized(4, 3.6, details={"in_flight_each": 14.9})
    assert within_reach(sized, 10) is sized
    assert within_reach(sized, 9).replicas is None
    without = Sized(4, 3.6)
    assert within_reach(without, 1) is without
