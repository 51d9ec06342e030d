"""The engine's schedule beside the definition in plain Python."""

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gpusize.workload.load import Bursts, Load, Stage, Stream
from gpusize.workload.schedule.from_engine import arrivals
from tests.load import reference

RATES = st.floats(0.1, 40).map(lambda rate: round(rate, 3))
TIMES = st.integers(200, 4000).map(lambda ms: ms / 1000)


@st.composite
def stages(draw):
    start, end = draw(RATES), draw(st.none() | RATES)
    bursts = Bursts(draw(RATES), 0.25, draw(TIMES) + 0.25) if end is None and draw(st.booleans()) else None
    return Stage(start, end, draw(TIMES), process=draw(st.sampled_from(["constant", "poisson"])), bursts=bursts)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.lists(stages(), min_size=1, max_size=3), TIMES), min_size=1, max_size=3),
    st.integers(0, 2**40),
    st.sampled_from(["file", "shuffled"]),
)
def test_due_times_rows_and_streams(described, seed, order):
    streams = [Stream(start_s=start, stages=each, priority=n) for n, (each, start) in enumerate(described)]
    for level in Load(streams=streams, seed=seed, order=order).levels(7):
        mine, theirs = reference.schedule(json.dumps(level.plan), 7), arrivals(level.plan, 7)
        assert level.setting["expected"] == len(theirs)
        # Sums of rounded gaps and gaps of sums differ by nanoseconds, which may swap two that are due together.
        for stream in range(len(streams)):
            one, other = (f.filter(pl.col("stream") == stream).sort("seq") for f in (mine, theirs))
            assert abs(len(one) - len(other)) <= 1
            both = min(len(one), len(other))
            gaps = (one["due_ns"][:both] - other["due_ns"][:both]).abs()
            assert both == 0 or gaps.max() <= 200
            assert one["row"][:both].to_list() == other["row"][:both].to_list()


@pytest.mark.parametrize("rate", [0.1, 3, 7.5, 1000])
@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_one_rate_is_the_same_to_the_nanosecond(rate, process):
    [plan] = Load(rates=[rate], process=process, count=400, seed=9).plans(5)
    assert_frame_equal(arrivals(plan, 5), reference.schedule(json.dumps(plan), 5))


def test_a_pause_sends_nothing():
    for process in ("constant", "poisson", "gamma"):
        levels = Load(stages="3/s@2s, 0/s@5s, 3/s@2s", process=process).levels(1)
        assert levels[1].setting["expected"] == 0


def test_gamma_has_the_asked_spread():
    for shape in (0.25, 4.0):
        [plan] = Load(rates=[100], process="gamma", burstiness=shape, count=40_000).plans(1)
        gaps = arrivals(plan, 1)["due_ns"].diff().drop_nulls() / 1e7
        assert abs(gaps.mean() - 1) < 0.03
        assert gaps.var() == pytest.approx(1 / shape, rel=0.06)
