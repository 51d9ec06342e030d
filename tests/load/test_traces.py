"""Recorded arrivals: read, cut, sped up, made denser and thinner."""

import json

import numpy as np
import pytest

from gpusize.base.errors import DatasetError, UsageError
from gpusize.workload.dataset import Dataset
from gpusize.workload.dataset.arrivals import read_arrivals
from gpusize.workload.load import ArrivalTrace, Load
from gpusize.workload.schedule.from_engine import arrivals
from gpusize.workload.schedule.preview import outline
from gpusize.workload.schedule.stored_plan import Plan

NS = 10**9


def write(path, times, name="arrival_s"):
    path.write_text("\n".join(json.dumps({name: t, "prompt": f"p{n}"}) for n, t in enumerate(times)) + "\n", "utf-8")
    return str(path)


@pytest.fixture
def even(tmp_path):
    return write(tmp_path / "even.jsonl", [100 + 0.25 * k for k in range(4000)])


MOONCAKE = '{"timestamp": %d, "input_length": 3, "output_length": 2, "hash_ids": [1]}'
BARE = '{"timestamp": %d, "input_length": 3, "output_length": 2}'
PAYLOAD = '{"payload": [{"a": 1}], "timestamp": [%d]}'


@pytest.mark.parametrize(
    "name, lines",
    [
        ("m.jsonl", [MOONCAKE % 5000, MOONCAKE % 5500]),
        ("bare.jsonl", [BARE % 5000, BARE % 5500]),
        (
            "a.csv",
            [
                "TIMESTAMP,ContextTokens,GeneratedTokens",
                "2023-11-16 18:15:46.6000000,1,2",
                "2023-11-16 18:15:47.1000000,1,2",
            ],
        ),
        (
            "b.csv",
            [
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                "5,m,1,0,1,x",
                "6,m,1,2,3,x",
                "6.5,m,1,2,3,x",
            ],
        ),
        ("p.json", ['{"data": [', PAYLOAD % 100 + ",", PAYLOAD % 600, "]}"]),
        ("own.csv", ["time_s", "3", "2.5"]),
        ("due.csv", ["level,due_s", "0,0", "0,0.5"]),
        ("iso.csv", ["timestamp", "2024-02-29T23:59:59.75Z", "2024-03-01 00:00:00.25"]),
    ],
)
def test_formats(tmp_path, name, lines):
    (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    trace = ArrivalTrace(tmp_path / name)
    assert trace.schedule(1).due_ns.tolist() == pytest.approx([0, NS // 2], abs=1000)


def test_stamps_of_which_some_name_no_zone_are_told_of(tmp_path):
    file = tmp_path / "mixed.csv"
    file.write_text("timestamp\n2026-03-29 01:59:59\n2026-03-29 02:00:00+02:00\n", "utf-8")
    assert any("taken as UTC" in note for note in read_arrivals(file).notes)
    file.write_text("timestamp\n2026-03-29 01:59:59\n2026-03-29 02:00:00\n", "utf-8")
    assert read_arrivals(file).notes == ()


@pytest.mark.parametrize(
    "name, text, what, where",
    [
        ("x.csv", "a,b\n1,2\n", "there is no time of arrival", "x.csv:2"),
        ("x.csv", "arrival_s\n1\n-2\n", "is -2, not a time", "x.csv:3"),
        ("x.csv", "arrival_s\nsoon\n", "soon is not a time", "x.csv:2"),
        ("x.csv", "arrival_s\n", "no arrivals", "x.csv"),
        ("x.csv", "timestamp\n1711670400000\n1711670401000\n", "far ahead.*are they in milliseconds", "x.csv"),
        ("x.txt", "1\n", "cannot tell the format from the suffix", "x.txt"),
    ],
)
def test_what_is_no_trace(tmp_path, name, text, what, where):
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=what) as caught:
        ArrivalTrace(tmp_path / name)
    assert str(caught.value.where).endswith(where)


def test_a_part_of_it_sped_up(even):
    trace = ArrivalTrace(even, speed=4, from_s=10, until_s=20)
    due = trace.schedule(1).due_ns
    assert due.tolist() == [k * NS // 16 for k in range(40)]


def test_one_level_that_sends_the_rows_of_the_trace(even):
    dataset = Dataset.read(even)
    load = Load(arrivals=even, count=7)
    [level] = load.levels(dataset)
    assert (level.setting["process"], level.setting["expected"], level.setting["count"]) == ("trace", 7, 7)
    assert level.setting["rate"] == pytest.approx(7 / 1.5)
    assert level.plan["stop"] == {"count": 7, "duration_ns": None, "max_error_share": 0.01, "min_errors": 10}
    assert level.explicit.rows.tolist() == list(range(7))
    assert np.frombuffer(level.arrays()["due"], "<i8").tolist() == [k * NS // 4 for k in range(7)]
    [other] = load.levels(Dataset.from_rows(["a", "b"]))
    assert other.explicit.rows is None
    assert arrivals(other.plan, 2, other.explicit)["row"].to_list() == [0, 1, 0, 1, 0, 1, 0]


def test_a_duration_cuts_it(even):
    [level] = Load(arrivals=even, duration_s=2).levels(3)
    assert (level.setting["expected"], level.setting["duration_s"], level.setting["count"]) == (8, 2.0, None)
    assert level.plan["stop"]["duration_ns"] == 2 * NS


def test_the_times_of_the_datasets_own_rows(tmp_path):
    dataset = Dataset.read(write(tmp_path / "rows.jsonl", [5, 3, 4]))
    [level] = Load(arrivals="dataset").levels(dataset)
    assert level.explicit.due_ns.tolist() == [0, NS, 2 * NS]
    assert level.explicit.rows.tolist() == [1, 2, 0]
    with pytest.raises(UsageError, match="there is none"):
        Load(arrivals="dataset").levels(3)
    with pytest.raises(UsageError, match="row 0 has no time"):
        Load(arrivals="dataset").levels(Dataset.from_rows(["a"]))


def test_thinning_keeps_a_seeded_share(even):
    thin = ArrivalTrace(even, rate_scale=0.25)
    first, again, other = (thin.schedule(seed).due_ns for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
    # Binomial: 1000 of 4000, with a standard deviation of 27.
    assert abs(len(first) - 1000) < 140
    assert set(first.tolist()) <= {k * NS // 4 for k in range(4000)}


def test_denser_is_the_trace_and_copies_in_its_gaps(even):
    dense = ArrivalTrace(even, rate_scale=2.5)
    made = dense.schedule(1, Dataset.read(even))
    due = made.due_ns
    assert abs(len(due) - 10_000) < 160
    assert (np.diff(due) >= 0).all()
    assert {k * NS // 4 for k in range(4000)} <= set(due.tolist())
    # Every second of the trace has 2.5 times its four arrivals, give or take the third copy's dice.
    counts = np.bincount(due // NS, minlength=1000)[:1000]
    assert abs(counts.mean() - 10) < 0.2
    assert counts.min() >= 6
    assert made.rows is not None
    # A copy sends the row of the arrival that it follows.
    assert (made.rows == np.minimum(due * 4 // NS, 3999)).all()


def test_the_draws_stay_what_they_are():
    from gpusize.workload.load.trace import _uniform

    # No version of numpy may change them: a seed stands in run.json for good.
    assert _uniform(7, 0, 2).tolist() == [0.09662281551472163, 0.8308084353416139]
    assert _uniform(7, 1, 2).tolist() != _uniform(7, 0, 2).tolist()


@pytest.mark.parametrize(
    "kwargs, what",
    [
        ({"speed": 0}, "speed: must be positive, not 0 times"),
        ({"speed": "fast"}, "not a number"),
        ({"rate_scale": -1}, "rate_scale: must be positive, not -1 times"),
        ({"from_s": 5, "until_s": 5}, "ends before it begins"),
    ],
)
def test_values_that_cannot_be_meant(even, kwargs, what):
    with pytest.raises(UsageError, match=what):
        ArrivalTrace(even, **kwargs)


def test_nothing_is_left(even):
    with pytest.raises(UsageError, match="nothing is left"):
        ArrivalTrace(even, from_s=5000).schedule(1)
    with pytest.raises(UsageError, match="too many"):
        ArrivalTrace(even, rate_scale=1e6).schedule(1)


def test_copies_of_arrivals_at_one_time_lie_apart(tmp_path):
    times = [0, 0.5, 0.5, 2.25]
    dense = ArrivalTrace(write(tmp_path / "t.jsonl", times), rate_scale=2.5).schedule(1)
    assert len(dense) >= 2 * len(times)
    counts = np.unique(dense.due_ns, return_counts=True)
    # The arrivals themselves come at 0.5 s both; no copy does.
    assert dict(zip(*counts, strict=True))[500_000_000] == 2
    assert counts[1].max() == 2
    copies = np.setdiff1d(dense.due_ns, [int(t * NS) for t in times])
    assert len(copies) == len(dense) - len(times)


def test_arrivals_at_one_time_have_no_copies_and_no_rate(tmp_path):
    once = write(tmp_path / "once.jsonl", [3, 3])
    with pytest.raises(UsageError, match="all arrivals are at one time"):
        ArrivalTrace(once, rate_scale=3).schedule(1)
    [level] = Load(arrivals=once).levels(5)
    assert (level.setting["rate"], level.setting["expected"]) == (0.0, 2)
    [shown] = outline([level], 5).levels
    assert shown.load == "2 at once"


def test_times_are_those_that_are_written(tmp_path):
    stamps = [f"2023-11-16 18:15:46.{fraction}" for fraction in ("6805900", "7325900", "7325907")]
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{each},1,2\n" for each in stamps), "utf-8"
    )
    wanted = [0, 52_000_000, 52_000_700]
    assert ArrivalTrace(str(tmp_path / "a.csv")).schedule(1).due_ns.tolist() == wanted
    rows = Dataset.read(tmp_path / "a.csv").rows
    assert [row["arrival_s"] for row in rows] == [0, 0.052, 0.0520007]
    for text in ("1700158546.6805900", "2023-11-16T18:15:46.6805900Z"):
        last = text.replace("6805900", "7325907")
        (tmp_path / "own.csv").write_text(f"timestamp\n{text}\n{last}\n", "utf-8")
        assert ArrivalTrace(str(tmp_path / "own.csv")).schedule(1).due_ns.tolist() == [0, 52_000_700]
    (tmp_path / "plan.csv").write_text("due_s\n0.000000001\n1234567890.123456789\n", "utf-8")
    assert Plan.read(tmp_path / "plan.csv").parts[0].explicit.due_ns.tolist() == [1, 1_234_567_890_123_456_789]
