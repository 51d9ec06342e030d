"""The truth of an open load: connections, a queue in front of them, and what is shed."""

from __future__ import annotations

import sys
from array import array
from itertools import pairwise
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.targets.simulated.open_load import simulate_open

ONE_AT_A_TIME: dict[str, Any] = {
    "gpus": 1,
    "max_batch": 1,
    "iteration_base_s": 0.01,
    "iteration_per_sequence_s": 0.0,
    "prefill_per_token_s": 0.0,
    "output_tokens": {"fixed": {"tokens": 10}},
}
"""Answers 10/s: one at a time, each in 100 ms."""


def grid(rate: float, seconds: float) -> list[int]:
    return [round(k * 1e9 / rate) for k in range(int(rate * seconds))]


def test_twice_what_can_be_served() -> None:
    truth = simulate_open(ONE_AT_A_TIME, grid(20, 60), connections=4, queue=6, duration_s=60)
    assert (truth.offered, truth.sent + truth.shed, truth.completed) == (1200, 1200, truth.sent)
    assert truth.window_s == 60
    assert truth.offered_rate == pytest.approx(20)
    assert truth.achieved_rate == pytest.approx(10, rel=0.01)
    # Six wait, each for six answers; four are sent, and each takes four.
    assert truth.waiting_s["p50"] == pytest.approx(0.6, abs=0.051)
    assert truth.service_s["p50"] == pytest.approx(0.4, abs=0.001)
    assert truth.runtime_s["p50"] == pytest.approx(1.0, abs=0.051)
    rows = truth.rows
    assert rows["due_ns"].to_list() == grid(20, 60)
    assert rows.filter(outcome="shed").height == rows["sent_ns"].null_count() == truth.shed
    sent = rows.drop_nulls("sent_ns")
    assert sent["sent_ns"].is_sorted()
    assert (sent["sent_ns"] >= sent["due_ns"]).all()


def test_below_the_limit_nothing_waits() -> None:
    truth = simulate_open(ONE_AT_A_TIME, grid(5, 20), connections=4, queue=0, duration_s=20)
    assert (truth.shed, truth.waiting_s["max"]) == (0, 0)
    assert truth.achieved_rate == pytest.approx(5)
    assert truth.runtime_s["max"] == pytest.approx(0.1)


def test_without_bounds_the_backlog_grows_and_nothing_is_shed() -> None:
    truth = simulate_open(ONE_AT_A_TIME, grid(20, 10), duration_s=10)
    assert (truth.sent, truth.shed, truth.waiting_s["max"]) == (200, 0, 0)
    # The last of 200 is due at 9.95 s and answered at 20 s.
    assert truth.runtime_s["max"] == pytest.approx(10.05)


def test_requests_have_their_own_lengths() -> None:
    outputs = [1 + k % 7 for k in range(50)]
    truth = simulate_open(ONE_AT_A_TIME, grid(10, 5), prompt_tokens=range(1, 51), output_tokens=outputs)
    assert truth.rows["tokens_out"].to_list() == outputs
    assert truth.rows["prompt_tokens"].to_list() == list(range(1, 51))
    fixed = simulate_open(ONE_AT_A_TIME, grid(10, 5), prompt_tokens=9, output_tokens=3).rows
    assert set(zip(fixed["prompt_tokens"], fixed["tokens_out"], strict=True)) == {(9, 3)}


def test_due_times_as_the_engine_takes_them() -> None:
    values = array("q", grid(20, 5))
    if sys.byteorder == "big":
        values.byteswap()
    bound = {"connections": 2, "queue": 3, "duration_s": 5}
    as_bytes = simulate_open(ONE_AT_A_TIME, values.tobytes(), **bound)
    assert as_bytes.rows.equals(simulate_open(ONE_AT_A_TIME, grid(20, 5), **bound).rows)


def test_a_replica_more_ends_the_overload() -> None:
    replicas = [{"at_s": 0, "replicas": 1}, {"at_s": 20, "replicas": 2}]
    config = {**ONE_AT_A_TIME, "gpus": 2, "replicas": replicas}
    rows = simulate_open(config, grid(15, 60), connections=4, queue=10, duration_s=60).rows
    shed = rows.filter(outcome="shed")["due_ns"]
    assert shed.len() > 50
    assert shed.max() < 21e9


def test_an_empty_schedule_gives_nothing() -> None:
    truth = simulate_open(ONE_AT_A_TIME, [], connections=1, queue=1)
    assert (truth.offered, truth.rows.height, truth.runtime_s) == (0, 0, {})


@pytest.mark.parametrize(
    "arguments, where",
    [
        ({"due_ns": [5, 3]}, "plan.due_ns"),
        ({"due_ns": [-1]}, "due_ns"),
        ({"due_ns": b"1234567"}, "due"),
        ({"due_ns": [0.5]}, "due_ns"),
        ({"due_ns": [1, 2], "prompt_tokens": [1]}, "plan.prompt_tokens"),
        ({"due_ns": [1], "output_tokens": [0]}, "plan.output_tokens"),
        ({"due_ns": [1], "output_tokens": [-1]}, "output_tokens"),
        ({"due_ns": [1], "connections": 0}, "load.connections"),
        ({"due_ns": [1], "queue": 5}, "load.queue"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError, match=where.replace(".", r"\.")):
        simulate_open(ONE_AT_A_TIME, **arguments)


def test_nobody_overtakes() -> None:
    truth = simulate_open({**ONE_AT_A_TIME, "max_batch": 3}, grid(37, 30), connections=5, queue=8, duration_s=30)
    sent = truth.rows.drop_nulls("sent_ns")
    events = sorted([(ns, 1) for ns in sent["sent_ns"]] + [(ns, -1) for ns in sent["end_ns"]])
    under_way = most = 0
    for (_, step), _ in pairwise([*events, (0, 0)]):
        under_way += step
        most = max(most, under_way)
    assert most == 5
