"""Several streams: where they are cut, and that nothing is lost or doubled there."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load, Stream
from gpusize.workload.schedule.from_engine import arrivals

NS = 10**9


def merged(levels, rows=1):
    """Stream, due time after the start of the run in ns, for every arrival."""
    found = []
    for level in levels:
        at_ns = round(level.setting["at_s"] * NS)
        frame = arrivals(level.plan, rows, level.explicit)
        found += [(stream, at_ns + due) for stream, due in zip(frame["stream"], frame["due_ns"], strict=True)]
    return found


def test_four_shifted_generators_make_stairs():
    streams = [Stream(f"g{number}", start_s=600 * number, rate=0.5) for number in range(4)]
    levels = Load(streams=streams, duration_s=3600, process="constant").levels(1)
    assert [level.setting["expected"] for level in levels] == [300, 600, 900, 3600]
    assert [level.setting["rate"] for level in levels] == [0.5, 1.0, 1.5, 2.0]
    assert [level.setting["duration_s"] for level in levels] == [600, 600, 600, 1800]
    assert [each["name"] for each in levels[1].setting["streams"]] == ["g0", "g1"]
    assert levels[0].setting["streams"] == [{"id": 0, "rate": 0.5, "process": "constant", "name": "g0"}]
    assert json.loads(json.dumps([level.plan for level in levels])) == [level.plan for level in levels]


def test_a_grid_goes_on_over_every_cut():
    streams = [Stream("even", rate=1 / 3), Stream("other", start_s=10.5, stages="1/s..3/s@7s, 2/s@9s")]
    levels = Load(streams=streams, duration_s=100, process="constant").levels(1)
    assert [level.setting["at_s"] for level in levels] == [0, 10.5, 17.5, 26.5]
    due = [at for stream, at in merged(levels) if stream == 0]
    assert len(due) == 34
    assert all(abs(at - k * 3 * NS) <= 2 for k, at in enumerate(due))
    assert (levels[1].setting["from_rate"], levels[1].setting["to_rate"]) == pytest.approx((4 / 3, 10 / 3))


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.05, 50).map(lambda rate: round(rate, 3)),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=6).map(lambda cuts: sorted(set(cuts))),
    st.integers(0, 5_000),
)
def test_a_constant_stream_is_the_same_however_others_cut_it(rate, cuts, start_ms):
    others = [Stream(start_s=cut / 1000, rate=0.0001 + cut / 1e6) for cut in cuts]
    levels = Load(
        streams=[Stream(start_s=start_ms / 1000, rate=rate), *others], duration_s=25, process="constant"
    ).levels(1)
    due = [at - start_ms * 1_000_000 for stream, at in merged(levels) if stream == 0]
    exact = [Fraction(k) / Fraction(rate) * NS for k in range(len(due) + 1)]
    assert all(abs(at - k) <= 20 for at, k in zip(due, exact, strict=False))
    assert exact[-1] + 20 >= (25_000 - start_ms) * 1_000_000


def test_a_ramp_is_cut_into_the_same_ramp():
    streams = [Stream(stages="0/s..10/s@10s"), Stream(start_s=3.7, rate=1)]
    levels = Load(streams=streams, duration_s=10, process="constant").levels(1)
    phases = [level.plan["load"]["open"]["streams"][0]["arrivals"]["rate"]["phases"][0] for level in levels]
    assert [(phase["from"], phase["to"]) for phase in phases] == [(0, 3.7), (3.7, 10)]
    due = [at / NS for stream, at in merged(levels) if stream == 0]
    assert len(due) == 50
    assert all(abs(t * t / 2 - k) < 1e-6 for k, t in enumerate(due))


def test_bursts_go_on_in_the_middle_of_a_period():
    streams = [Stream(stages="0/s burst 10/s for 1s every 4s@20s"), Stream(start_s=5.5, rate=1, duration_s=1)]
    levels = Load(streams=streams, process="poisson", seed=5).levels(1)
    due = [at / NS for stream, at in merged(levels) if stream == 0]
    assert due
    assert all(at % 4 >= 3 - 1e-6 for at in due)
    assert sum(level.setting["rate"] * level.setting["duration_s"] for level in levels) == pytest.approx(51)


def test_a_stream_ends_by_its_count():
    streams = [Stream(rate=2, duration_s=60, count=25), Stream(start_s=10, rate=1, duration_s=5)]
    levels = Load(streams=streams, process="constant").levels(1)
    due = [at for stream, at in merged(levels) if stream == 0]
    assert due == [k * NS // 2 for k in range(25)]
    # Nobody waits for what will not come.
    assert [level.setting["duration_s"] for level in levels] == [10, 5]


def test_a_stream_that_begins_late_is_waited_for():
    [idle, late] = Load(streams=[Stream(start_s=5, rate=1, duration_s=5)], process="constant").levels(1)
    assert (idle.setting["expected"], idle.setting["rate"], idle.setting["duration_s"]) == (0, 0.0, 5.0)
    assert merged([idle]) == []
    assert late.setting["expected"] == 5
    assert "streams" not in late.setting


def test_processes_and_priorities():
    streams = [Stream(rate=1, process="gamma", burstiness=0.5), Stream(rate=2, priority=3), Stream(rate=3)]
    load = Load(streams=streams, duration_s=10, process="constant")
    from gpusize.workload.load.superposition import _pieces

    pieces = [piece for number in range(3) for piece in _pieces(load, number, 10 * NS, None)]
    assert [(piece.process, piece.shape) for piece in pieces] == [
        ("gamma", 0.5),
        ("constant", None),
        ("constant", None),
    ]
    [level] = load.changed(streams=streams[1:]).levels(1)
    assert [each["priority"] for each in level.plan["load"]["open"]["streams"]] == [3, 0]
    assert level.setting["process"] == "constant"
    assert level.setting["streams"][0]["priority"] == 3
    mixed = load.changed(streams=[Stream(rate=2, process="poisson"), Stream(rate=3)])
    assert mixed.levels(1)[0].setting["process"] == "mixed"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("arrival_s,prompt\n" + "".join(f"{k * 0.5},p{k}\n" for k in range(21)), "utf-8")
    return str(path)


def test_a_trace_among_streams_makes_the_whole_an_explicit_plan(trace):
    streams = [Stream("grid", rate=1, duration_s=8), Stream("trace", start_s=2.25, arrivals=trace)]
    levels = Load(streams=streams, process="constant").levels(4)
    assert [level.setting["at_s"] for level in levels] == [0, 2.25, 8]
    assert [level.explicit is None for level in levels] == [True, False, False]
    found = merged(levels, 4)
    assert [at for stream, at in found if stream == 0] == [k * NS for k in range(8)]
    assert [at for stream, at in found if stream == 1] == [2_250_000_000 + k * NS // 2 for k in range(21)]
    assert [at for _, at in found] == sorted(at for _, at in found)
    mixed = levels[1]
    assert {each["arrivals"] for each in mixed.plan["load"]["open"]["streams"]} == {"plan"}
    assert mixed.setting["process"] == "mixed"
    assert mixed.explicit is not None
    assert mixed.setting["expected"] == len(mixed.explicit)
    assert set(mixed.arrays()) == {"due", "rows", "streams"}


def test_a_stream_sends_the_row_of_each_arrival_when_the_trace_is_its_dataset(trace):
    own = Dataset.read(trace)
    rows = Dataset.from_rows([{"prompt": "a"}, {"prompt": "b"}, *own.rows], key="prompt")
    streams = [
        Stream("grid", rate=1, duration_s=3, rows=(0, 2)),
        Stream("trace", arrivals=trace, dataset=trace, rows=(2, 21)),
    ]
    levels = Load(streams=streams, process="constant").levels(rows)
    sent = [row for level in levels for row in arrivals(level.plan, len(rows), level.explicit).iter_rows(named=True)]
    assert [each["row"] for each in sent if each["stream"] == 1] == list(range(2, 23))
    assert [each["row"] for each in sent if each["stream"] == 0] == [0, 1, 0]


@pytest.mark.parametrize(
    "kwargs, what",
    [
        ({}, "nothing says when its requests come"),
        ({"rate": 1, "stages": "1/s@1m"}, "rate and stages are given"),
        ({"stages": "1@1m"}, "a stream has a rate, not a concurrency"),
        ({"stages": "1/s@1m", "duration_s": 5}, "a duration belongs to a rate"),
        ({"rate": 0}, "a rate must be positive, not 0/s"),
        ({"rate": 1, "process": "bursty"}, "not an arrival process"),
        ({"rate": 1, "burstiness": -1}, "burstiness must be at least 0.001, not -1"),
        ({"rate": 1, "priority": 0.5}, "not a whole number"),
        ({"rate": 1, "start_s": -1}, "start must be 0 s or more, not -1 s"),
        ({"arrivals": "none.csv"}, "no such file"),
    ],
)
def test_streams_that_cannot_be_meant(kwargs, what):
    with pytest.raises(UsageError, match=what):
        Stream(**kwargs)


def test_loads_of_streams_that_cannot_be_meant():
    with pytest.raises(UsageError, match='stream "a" would never end'):
        Load(streams=[Stream("a", rate=1)])
    with pytest.raises(UsageError, match="a count belongs to each stream"):
        Load(streams=[Stream(rate=1, duration_s=1)], count=4)
    with pytest.raises(UsageError, match="no stream begins"):
        Load(streams=[Stream(rate=1, start_s=20)], duration_s=10).levels(1)
