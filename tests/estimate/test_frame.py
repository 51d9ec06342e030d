"""Methods as functions of two frames: a simulator of thirty lines is answered rightly, and mistakes are named."""

from __future__ import annotations

import heapq
import math

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import METHODS, Question, estimate, levels_from_frames

MEAN_S = 1.0


def shared(users, requests, seed):
    """One GPU that users share equally (closed M/M/1-PS): due and end of each request, in seconds."""
    rng = np.random.default_rng(seed)
    now, served, due = 0.0, 0.0, [0.0] * users
    rows: list[tuple[float, float]] = []
    # Attained service at which each user's request is done; all active ones attain it at the same pace.
    ends = [(size, user) for user, size in enumerate(rng.exponential(MEAN_S, users))]
    heapq.heapify(ends)
    while len(rows) < requests:
        at, user = heapq.heappop(ends)
        now, served = now + (at - served) * users, at
        rows.append((due[user], now))
        due[user] = now
        heapq.heappush(ends, (served + rng.exponential(MEAN_S), user))
    return rows


def frames(loads, requests=3000):
    rows = [(visit, *times) for visit, users in enumerate(loads) for times in shared(users, requests, visit)]
    records = pl.DataFrame(rows, schema=["visit", "due_s", "end_s"], orient="row")
    levels = pl.DataFrame({"visit": range(len(loads)), "concurrency": list(loads), "gpus": [1] * len(loads)})
    return records, levels


def attained(users, bound_s):
    """The share within the bound with so many users, from a long run of its own."""
    took = np.array([end - due for due, end in shared(users, 60_000, 99)[2000:]])
    return float((took <= bound_s).mean())


LOADS = (1, 2, 4, 6, 7, 8, 12)
SLO = Slo.parse("p90 runtime <= 15s")


@pytest.fixture(scope="module")
def measured():
    return frames(LOADS)


@pytest.mark.parametrize("method", ["auto", "twin", "crossing"])
def test_a_simulator_of_ones_own_is_answered(measured, method):
    carried = max(users for users in range(1, 13) if attained(users, 15.0) >= 0.9)
    records, levels = measured
    found = gpusize.estimate_frame(records, levels, gpusize.Question(users=10 * carried, slos=[SLO]), method)
    assert found.gpus in (9, 10, 11)
    assert found.gpus_low <= 10 <= found.gpus_high
    assert (found.tested_gpus, found.fallback) == (1, None)


def test_frames_and_levels_say_the_same(measured):
    question = Question(users=40, slos=[SLO])
    answers = estimate(levels_from_frames(*measured), question, "all")
    assert [each.method for each in answers] == ["twin", "slope", "crossing"]
    assert answers[0].to_json() == gpusize.estimate_frame(measured[0].lazy(), measured[1], question).to_json()
    assert {each.method for each in answers} < set(METHODS)


def test_nanoseconds_are_seconds(measured):
    records, levels = measured
    whole = records.select(
        "visit", *((pl.col(f"{n}_s") * 1e9).round().cast(pl.Int64).alias(f"{n}_ns") for n in ("due", "end"))
    )
    question = Question(users=40, slos=[SLO])
    assert gpusize.estimate_frame(whole, levels, question).to_json() == (
        gpusize.estimate_frame(records, levels, question).to_json()
    )


def test_what_else_is_known_is_used():
    records = pl.DataFrame(
        {
            "visit": [7, 7, 7],
            "due_s": [0.0, 0.0, 1.0],
            "sent_s": [0.0, 0.5, 1.0],
            "first_token_s": [0.25, None, math.nan],
            "end_s": [1.0, None, 2.0],
            "tokens_out": [5, None, 3],
            "outcome": ["ok", "timeout", "ok"],
        }
    )
    [level] = levels_from_frames(
        records, pl.DataFrame({"visit": [7], "concurrency": [2], "think_s": [0.5], "think": ["exponential"]})
    )
    assert level.setting == {"kind": "closed", "concurrency": 2, "count": 3, "think_s": 0.0, "think": "exp(0.5s)"}
    rows = level.records.collect().to_dicts()
    assert [row["sent_ns"] for row in rows] == [0, 500_000_000, 1_000_000_000]
    assert [row["first_token_ns"] for row in rows] == [250_000_000, None, None]
    assert [row["last_token_ns"] for row in rows] == [1_000_000_000, None, None]
    assert level.outcomes() == {"ok": 2, "timeout": 1}
    assert level.attainment(Slo.parse("share ok >= 90%")) == pytest.approx((2 / 3, 3))
    assert level.gpus == 0


def test_a_warm_up_can_be_given_and_passes_have_none(measured):
    records, levels = measured

    def steady_from(**more):
        level = levels_from_frames(records, levels.with_columns(**more))[3]
        return (level.window()[0] - level.meta["start_ns"]) / 1e9

    rule = steady_from()
    assert rule > 0
    assert steady_from(warmup_s=pl.lit(100.0)) == 100.0
    assert steady_from(warmup_s=pl.lit(None, pl.Float64)) == rule
    assert steady_from(passes=pl.lit(value=True)) == 0


def test_a_rate_is_an_open_loop(measured):
    records, levels = measured
    opened = levels.select("visit", "gpus", pl.col("concurrency").cast(pl.Float64).alias("rate"))
    level = levels_from_frames(records, opened)[0]
    assert (level.rate, level.concurrency, level.setting["process"]) == (1.0, None, "poisson")


@pytest.mark.parametrize(
    "records, levels, what",
    [
        (pl.col("due_s").alias("due"), None, "records have no column due_s"),
        (pl.col("visit").alias("level"), None, "records have no column visit"),
        (pl.lit("fine").alias("outcome"), None, "no outcome 'fine'"),
        (pl.lit(None, pl.Float64).alias("end_s"), None, "ok and have no end"),
        ((pl.col("due_s") - 1).alias("end_s"), None, "ends before it is due"),
        (pl.lit(None, pl.Float64).alias("due_s"), None, "has no due time"),
        (pl.lit("soon").alias("end_s"), None, "cannot be read"),
        (pl.lit("many").alias("tokens_cached"), None, "cannot be read"),
        (None, pl.col("visit") + 1, "has requests and no level"),
        (None, pl.lit(0, pl.Int64).alias("visit"), "a visit appears twice"),
        (None, pl.lit(0.5).alias("concurrency"), "0.5 is not a load"),
        (None, pl.lit(1.0).alias("rate"), "either a concurrency or a rate"),
        (None, pl.lit("lost").alias("state"), "no state 'lost'"),
        (None, [pl.lit(2.0).alias("think_s"), pl.lit("uniform").alias("think")], "no pause 'uniform'"),
    ],
)
def test_mistakes_are_named(measured, records, levels, what):
    rows, visits = measured
    if records is not None:
        name = records.meta.output_name()
        rows = rows.with_columns(records)
        rows = rows.drop({"due": "due_s", "level": "visit"}[name]) if name in ("due", "level") else rows
    if levels is not None:
        visits = visits.with_columns(levels)
    with pytest.raises(gpusize.UsageError, match=what):
        levels_from_frames(rows, visits)


def test_more_cached_tokens_than_a_prompt_has_are_refused(measured):
    rows, visits = measured
    known = rows.with_columns(tokens_in=pl.lit(8), tokens_cached=pl.lit(8))
    assert levels_from_frames(known, visits)
    with pytest.raises(gpusize.UsageError, match="more tokens of a prompt are cached than it has"):
        levels_from_frames(known.with_columns(tokens_cached=pl.lit(9)), visits)


def test_levels_without_requests_or_load_are_refused(measured):
    records, levels = measured
    with pytest.raises(gpusize.UsageError, match="a level has no requests"):
        levels_from_frames(records.filter(pl.col("visit") > 0), levels)
    with pytest.raises(gpusize.UsageError, match="neither concurrency nor rate"):
        levels_from_frames(records, levels.drop("concurrency"))
    with pytest.raises(gpusize.UsageError, match="an estimate takes one method, not all"):
        gpusize.estimate_frame(records, levels, Question(users=40, slos=[SLO]), "all")
