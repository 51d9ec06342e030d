"""Latency and tokens as signals, against the rows of the simulation.

With a small target and room for thousands of replicas that never come, the replicas that are asked for tell the value.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize import _core

MOST = 60_000
TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0,
)  # fmt: skip
"""Upper bounds of vLLM's histogram of times to first token."""


def series(quantity: object, over_time: str = "rate", window_s: float = 60.0) -> dict[str, Any]:
    return {"series": {"quantity": quantity, "over_time": over_time, "window_s": window_s}}


def asked(signal: dict[str, Any], scale: float, replicas: int = 2) -> tuple[pl.DataFrame, list[tuple[float, float]]]:
    """The rows, and the value at each change by the replicas that were asked for."""
    rnd = np.random.default_rng(7)
    due = (np.cumsum(rnd.exponential(np.where(np.arange(900) < 400, 0.5, 0.15))) * 1e9).astype("<i8")
    prompts = rnd.integers(20, 900, due.size).astype("<u4")
    answers = rnd.integers(2, 120, due.size).astype("<u4")
    config = {
        "gpus": MOST,
        "max_batch": 8,
        "iteration_base_s": 0.02,
        "iteration_per_sequence_s": 0.002,
        "prefill_per_token_s": 0.0002,
        "replicas": [{"at_s": 0.0, "replicas": replicas}],
        "start_delay_s": 1e6,
    }
    fast = {"stabilization_s": 0, "select": "max", "policies": [{"kind": "pods", "value": 100_000, "period_s": 15}]}
    policy = {
        "max_replicas": MOST,
        "min_replicas": replicas,
        "metrics": [{"source": "external", "target": {"average_value": 1000}}],
        "behavior": {"up": fast, "down": {**fast, "select": "disabled"}},
        "tolerance": 0.0,
    }
    scaled = {"arithmetic": {"operator": "multiply", "left": signal, "right": {"number": scale}}}
    scaler = {"policy": policy, "signals": [scaled], "scrape_s": 15.0}
    stream, text = _core.simulate(
        json.dumps(config), '{"arrivals": "plan"}', due=due.tobytes(), prompt_tokens=prompts.tobytes(),
        output_tokens=answers.tobytes(), autoscaler=json.dumps(scaler),
    )  # fmt: skip
    steps = json.loads(text)["scaling"]["steps"]
    assert len(steps) > 1
    return pl.DataFrame(stream), [(each["at_s"], each["replicas"] / scale) for each in steps]


def expect(found: list[tuple[float, float]], scale: float, value: Any) -> None:
    for at_s, told in found:
        # Rounded up to a replica, after thousandths.
        assert told == pytest.approx(math.ceil(value(at_s) * scale - 2e-3) / scale, abs=1.01 / scale), at_s


def within(rows: pl.DataFrame, column: str, at_s: float, window_s: float = 60.0) -> pl.DataFrame:
    begin = max(0.0, at_s - window_s)
    return rows.filter((pl.col(column) > begin * 1e9) & (pl.col(column) <= at_s * 1e9))


def span(at_s: float, window_s: float = 60.0) -> float:
    return min(at_s, window_s)


def test_tokens_of_prompts_are_those_of_first_tokens() -> None:
    rows, found = asked(series("prompt_tokens"), 10)
    expect(found, 10, lambda at: within(rows, "first_token_ns", at)["prompt_tokens"].sum() / span(at))


def test_tokens_that_were_made_are_between_none_and_all() -> None:
    rows, found = asked(series("output_tokens", window_s=3000.0), 10)
    at_s, rate = found[-1]
    done = within(rows, "end_ns", at_s, 3000.0)["tokens_out"].sum()
    begun = rows.filter(pl.col("first_token_ns") <= at_s * 1e9)["tokens_out"].sum()
    assert done <= rate * at_s + 1 <= begun + at_s / 10 + 2


def test_the_mean_first_token_is_sum_over_count() -> None:
    signal = {"arithmetic": {"operator": "divide", "left": series({"sum": "ttft"}), "right": series({"count": "ttft"})}}
    rows, found = asked(signal, 1000)
    times = rows.with_columns(ttft=(pl.col("first_token_ns") - pl.col("sent_ns")) / 1e9)
    expect(found, 1000, lambda at: within(times, "first_token_ns", at)["ttft"].mean())


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_quantiles_are_interpolated_in_their_bucket(q: float) -> None:
    rows, found = asked({"quantile": {"q": q, "histogram": "ttft", "window_s": 60.0}}, 1000)
    times = rows.with_columns(ttft=(pl.col("first_token_ns") - pl.col("sent_ns")) / 1e9)

    def value(at_s: float) -> float:
        some = within(times, "first_token_ns", at_s)["ttft"].to_numpy()
        counts = np.bincount(np.searchsorted(TTFT_S, some, "left"), minlength=len(TTFT_S) + 1)
        cumulated = np.cumsum(counts)
        rank = q * some.size
        bucket = int(np.argmax(cumulated >= rank))
        lower = TTFT_S[bucket - 1] if bucket else 0.0
        return float(lower + (TTFT_S[bucket] - lower) * (rank - cumulated[bucket] + counts[bucket]) / counts[bucket])

    expect(found, 1000, value)
    # And no further from the requests' own quantile than the bucket is wide.
    at_s, told = found[-1]
    own = float(np.quantile(within(times, "first_token_ns", at_s)["ttft"].to_numpy(), q))
    place = int(np.searchsorted(TTFT_S, own))
    assert TTFT_S[max(0, place - 1)] - 0.01 <= told <= TTFT_S[place] + 0.01


def test_the_gateway_sees_what_replicas_see_where_nothing_is_held() -> None:
    signal = {
        "arithmetic": {
            "operator": "divide",
            "left": series({"sum": "gateway_runtime"}),
            "right": series({"count": "gateway_runtime"}),
        }
    }
    rows, found = asked(signal, 100)
    times = rows.with_columns(runtime=(pl.col("end_ns") - pl.col("sent_ns")) / 1e9)
    expect(found, 100, lambda at: within(times, "end_ns", at)["runtime"].mean())


def test_tokens_in_flight_are_those_of_prompts_without_an_answer() -> None:
    rows, found = asked({"series": {"quantity": "in_flight_tokens"}}, 1)

    def value(at_s: float) -> float:
        there = (pl.col("sent_ns") < at_s * 1e9) & (pl.col("end_ns") > at_s * 1e9)
        return float(rows.filter(there)["prompt_tokens"].sum())

    expect(found, 1, value)
