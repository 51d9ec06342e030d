"""Rates of conversations: a question in requests per second is held against the requests that they brought."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.analysis.throughput import request_rate, requests_each
from gpusize.estimate.level_quality import load_text
from gpusize.estimate.methods import Question, estimate
from tests.analysis.open_levels import START_NS, arrivals, columns
from tests.analysis.synthetic import level

TURNS = 4
SERVICE_S = 0.05
SERVERS = 4
LENGTH_S = 60.0
SLO = Slo.parse("p95 runtime <= 150ms")


def talks(begin_s):
    """(due, end, turn) in seconds of conversations whose turns wait for answers, first come first served."""
    order = itertools.count()
    waiting = [(float(at), next(order), 0) for at in begin_s]
    heapq.heapify(waiting)
    free = [0.0] * SERVERS
    rows = []
    while waiting:
        due, _, turn = heapq.heappop(waiting)
        end = max(due, heapq.heappop(free)) + SERVICE_S
        heapq.heappush(free, end)
        rows.append((due, end, turn))
        if turn + 1 < TURNS and end < LENGTH_S:
            heapq.heappush(waiting, (end, next(order), turn + 1))
    return (np.array(column) for column in zip(*rows, strict=True))


def at_rate(rate, *, unit="session"):
    begin_s = arrivals("poisson", rate, LENGTH_S, seed=round(100 * rate))
    due_s, end_s, turn = talks(begin_s)
    setting = {"rate": rate, "process": "poisson", "unit": unit}
    made = level(None, columns(due_s, end_s, turn=turn.tolist()), gpus=1, visit=round(100 * rate), **setting)
    facts = {"start_ns": START_NS, "close_ns": START_NS + round(LENGTH_S * 1e9), "stop_reason": "duration"}
    return replace(made, setting={**made.setting, "duration_s": LENGTH_S}, meta={**made.meta, **facts})


def from_records(lv):
    """Requests per second and share within the SLO, counted in the raw records of the steady window."""
    low, high = lv.window()
    high = min(high, lv.meta["close_ns"])
    rows = lv.records.collect().filter((pl.col("due_ns") >= low) & (pl.col("due_ns") < high))
    within = (rows["end_ns"] - rows["due_ns"] <= 150_000_000).mean()
    return rows.height / ((high - low) / 1e9), within


@pytest.fixture(scope="module")
def levels():
    return [at_rate(rate) for rate in (4.0, 8.0, 13.0, 17.0, 18.5)]


def test_a_level_stands_at_the_requests_that_its_conversations_brought(levels):
    for lv in levels:
        assert request_rate(lv) == pytest.approx(from_records(lv)[0], rel=1e-6)
        assert load_text(lv) == f"{lv.rate:g} conversations/s"
    assert requests_each(levels[0]) == pytest.approx(TURNS, rel=0.1)
    plain = at_rate(4.0, unit="request")
    assert (request_rate(plain), requests_each(plain)) == (4.0, 1.0)


@pytest.mark.parametrize("gpus", [1, 2, 5])
def test_gpus_follow_from_requests_and_not_from_conversations(levels, gpus):
    """The second way is the raw records: the capacity lies between two measured rates of requests."""
    seen = [from_records(lv) for lv in levels]
    kept = max(rate for rate, within in seen if within >= 0.95)
    missed = min(rate for rate, within in seen if within < 0.95)
    assert kept > 40  # as conversations they would be a quarter of that
    [found] = estimate(levels, Question(0, (SLO,), rate=gpus * 0.98 * kept), "auto")
    assert found.gpus == gpus
    assert kept <= found.capacity_rate <= missed
    assert any("turns of conversations" in text for text in found.assumptions)


def test_what_to_measure_next_is_in_conversations(levels):
    [refused] = estimate(levels[:2], Question(0, (SLO,), rate=400.0), "scaling")
    assert refused.gpus is None
    top = levels[1]
    each = requests_each(levels[0])
    ask = [f"{more * request_rate(top) / each:.3g}" for more in (1.5, 2)]
    assert f"measure {' and '.join(ask)} conversations/s" in refused.reason
    [single] = estimate(levels[:1], Question(0, (SLO,), rate=400.0))
    assert "measure 8 and 16 conversations/s" in single.reason
