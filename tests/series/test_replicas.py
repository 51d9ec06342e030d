"""Steps from scrape to scrape, against the requests that the scrapes are of, and closed forms."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benches.lib.scrapes import Served, scrape_times, scraped
from gpusize.analysis.series import steps_of
from gpusize.records.series import labels_text, series_schema

WALL = 1_780_000_000_000_000_000
HISTOGRAMS = ("ttft", "itl", "request_time", "queue_time", "tpot", "prompt_length", "output_length")


def steps(frame: pl.DataFrame):
    return steps_of(
        frame,
        gauges=("running", "waiting", "kv_cache_use"),
        counters=("requests", "tokens_in", "tokens_out"),
        histograms=HISTOGRAMS,
    )


def requests(rng: np.random.Generator, n: int, replicas: int) -> Served:
    due = np.sort(rng.uniform(0, 1800, n))
    start = due + rng.exponential(0.3, n)
    first = start + rng.uniform(0.01, 1, n)
    output = rng.integers(1, 300, n)
    end = first + (output - 1) * rng.uniform(0.005, 0.1, n)
    held = rng.uniform(0, 0.01, n)
    return Served(rng.integers(0, replicas, n), due, start, first, end, rng.integers(1, 4000, n), output, held)


def gauge(t: float, since: np.ndarray, until: np.ndarray) -> int:
    return int(((since <= t) & (until > t)).sum())


@pytest.mark.parametrize("seed", range(25))
def test_steps_are_what_the_requests_did_between_scrapes(seed: int):
    rng = np.random.default_rng(seed)
    replicas = int(rng.integers(1, 4))
    served = requests(rng, int(rng.integers(50, 800)), replicas)
    times = [scrape_times(rng, 0, 1800, missed=0.05) for _ in range(replicas)]
    frame = scraped(served, times, wall_ns=WALL).sample(fraction=1, shuffle=True, seed=seed)
    found = steps(frame)
    assert len(found) == sum(each.size - 1 for each in times)
    assert found.interval_s == pytest.approx(15, abs=0.1)
    assert dict(found.left_out) == {"reset": 0, "gap": 0}
    for k in range(replicas):
        [number] = [at for at, text in enumerate(found.replicas) if f'"vllm-{k}"' in text]
        mine, own = served.of(k), np.flatnonzero(found.replica == number)
        for at in own[:: max(1, own.size // 12)]:
            # To the millisecond, as Prometheus stores times; the page was made at the time itself.
            here = int(np.argmin(np.abs(times[k] - (found.end_ns[at] - WALL) / 1e9)))
            low, high = times[k][here - 1], times[k][here]
            ended, began = (mine.end_s > low) & (mine.end_s <= high), (mine.first_s > low) & (mine.first_s <= high)
            assert found.rises["requests"][at] == ended.sum()
            assert found.rises["ttft_count"][at] == began.sum()
            assert found.rises["tokens_in"][at] == mine.prompt[began].sum()
            assert found.rises["output_length_sum"][at] == mine.output[ended].sum()
            assert found.rises["request_time_sum"][at] == pytest.approx(
                (mine.end_s - mine.due_s)[ended].sum(), abs=1e-6
            )
            assert found.rises["ttft_sum"][at] == pytest.approx((mine.first_s - mine.due_s)[began].sum(), abs=1e-6)
            assert found.rises["tokens_out"][at] == found.rises["itl_count"][at] + began.sum()
            assert found.gauges["running"][at, 1] == gauge(high, mine.start_s, mine.end_s)
            assert found.gauges["waiting"][at, 1] == gauge(high, mine.due_s, mine.start_s)
            bounds, counts = found.buckets["request_time"].bounds, found.buckets["request_time"].counts[at]
            took = (mine.end_s - mine.due_s)[ended]
            assert [int((took <= bound).sum()) for bound in bounds] == counts.tolist()
    # Over all of it the mean time between tokens is that of the answers.
    whole = (served.end_s - served.first_s).sum() / np.maximum(served.output - 1, 0).sum()
    assert np.nansum(found.rises["itl_sum"]) / np.nansum(found.rises["itl_count"]) == pytest.approx(whole, rel=0.02)


def series(
    name: str, values: list[float], labels: dict[str, str] | None = None, le: float | None = None, every: int = 15
):
    count = len(values)
    return pl.DataFrame(
        {
            "t_ns": [WALL + k * every * 10**9 for k in range(count)],
            "name": [name] * count,
            "labels": [labels_text(labels or {"pod": "a"})] * count,
            "le": [le] * count,
            "value": values,
        },
        schema=series_schema(),
    )


def test_a_constant_server_has_constant_steps():
    found = steps(pl.concat([series("requests", [30.0 * k for k in range(9)]), series("running", [4.0] * 9)]))
    assert found.rises["requests"].tolist() == [30.0] * 8
    assert (found.gauges["running"] == 4).all()
    assert (found.length_s == 15).all()


def test_a_step_over_a_reset_is_left_out():
    found = steps(pl.concat([series("requests", [10, 20, 30, 3, 13]), series("tokens_in", [0, 5, 10, 15, 20])]))
    assert found.rises["requests"].tolist() == [10, 10, 10]
    assert found.rises["tokens_in"].tolist() == [5, 5, 5]
    assert found.left_out["reset"] == 1


def test_a_bucket_that_fell_is_a_reset_as_well():
    one = [series("ttft", [0, 5, 1, 2], le=0.1), series("ttft", [0, 5, 6, 8], le=float("inf"))]
    assert len(steps(pl.concat(one))) == 2


def test_missed_scrapes_make_a_longer_step_and_a_long_gap_none():
    frame = series("requests", [float(k) for k in range(40)])
    missed = frame.filter(~pl.col("value").is_in([5.0, 6.0]) & ~pl.col("value").is_between(20, 30))
    found = steps(missed)
    assert sorted(set(found.length_s.tolist())) == [15.0, 45.0]
    assert found.rises["requests"].sum() == 39 - 12
    assert found.left_out["gap"] == 1


def test_replicas_come_and_go_and_labels_that_one_counter_has_tell_none():
    both = {"pod": "a", "engine": "0"}
    frame = pl.concat(
        [
            series("requests", [0, 1, 2], {**both, "finished_reason": "stop"}),
            series("requests", [0, 10, 20], {**both, "finished_reason": "length"}),
            series("running", [1, 2, 3], both),
            series("requests", [5, 6], {"pod": "b", "engine": "0", "finished_reason": "stop"}),
            series("running", [7, 7], {"pod": "b", "engine": "0"}),
        ]
    )
    found = steps(frame)
    assert found.replicas == ('{"engine":"0","pod":"a"}', '{"engine":"0","pod":"b"}')
    assert found.rises["requests"].tolist() == [11, 11, 1]
    assert found.replica.tolist() == [0, 0, 1]


def test_what_is_not_there_is_not_known():
    found = steps(pl.DataFrame(schema=series_schema()))
    assert len(found) == 0
    assert found.rise("requests").size == 0
    some = steps(series("requests", [0, 1, 2]))
    assert np.isnan(some.rise("tokens_in")).all()
    assert np.isnan(some.gauge("running")).all()
