"""Plans: written, read, and sent again as they were."""

import csv
import json

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gpusize.base.errors import StoreError, UsageError
from gpusize.measure.mix import streamed
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load, Stream
from gpusize.workload.schedule.export import cost_note, keep_plan, plan_frame, total_expected, write_plan
from gpusize.workload.schedule.planned_level import Level
from gpusize.workload.schedule.preview import outline
from gpusize.workload.schedule.stored_plan import Plan

DATASET = Dataset.from_rows([f"p{n}" for n in range(13)])
LOADS = [
    Load(stages="5/s@10s, 0/s@3s, 5/s..20/s constant@10s", order="shuffled", seed=3),
    Load(rates=[3, 7.5], count=40),
    Load(streams=[Stream("a", rate=2, priority=1), Stream("b", start_s=4, rate=3, rows=(2, 5))], duration_s=12),
]


@pytest.mark.parametrize("load", LOADS)
def test_a_plan_is_replayed_exactly(load, tmp_path):
    levels = load.levels(DATASET)
    path = tmp_path / "plan.parquet"
    count = write_plan(path, levels, len(DATASET), DATASET)
    again = Load(plan=path)
    assert isinstance(again.plan, Plan)
    assert again.kind == "open"
    replayed = again.levels(DATASET)
    assert count == total_expected(levels) == total_expected(replayed) == len(again.plan)
    assert_frame_equal(plan_frame(replayed, len(DATASET)), plan_frame(levels, len(DATASET)))
    for one, other in zip(levels, replayed, strict=True):
        assert other.plan["stop"] == one.plan["stop"]
        kept = {**one.setting, "process": "plan"}
        assert other.setting == kept
    assert again.notes(DATASET) == []
    assert "another dataset" in again.notes(Dataset.from_rows(["x"] * 13))[0]


def test_a_plan_of_streams_with_rows_of_their_own_is_replayed_beside_them(tmp_path):
    streams = [Stream("a", rate=2), Stream("b", start_s=4, rate=3, model="n", priority=2)]
    target, rows, load = streamed(
        Target("http://127.0.0.1:9/v1", model="m"), DATASET, Load(streams=streams, duration_s=12)
    )
    assert len(rows) == 26
    path = tmp_path / "plan.parquet"
    write_plan(path, load.levels(rows), len(rows), rows)
    with pytest.raises(UsageError, match="with --load the streams"):
        Load(plan=path).levels(DATASET)
    again = streamed(target, DATASET, Load(streams=streams, plan=path))
    replayed = again[2].levels(again[1])
    assert_frame_equal(plan_frame(replayed, len(rows)), plan_frame(load.levels(rows), len(rows)))
    assert again[2].notes(again[1]) == []
    assert set(Load(streams=streams, plan=path).options()) >= {"load", "plan"}
    with pytest.raises(UsageError, match="stages, streams, plan are given"):
        Load(streams=streams, plan=path, stages="1/s@1s")


def test_a_run_folder_stands_for_its_plan(tmp_path):
    write_plan(tmp_path / "plan.parquet", LOADS[0].levels(DATASET), 13, DATASET)
    assert len(Plan.read(tmp_path)) == total_expected(LOADS[0].levels(DATASET))


def test_a_run_keeps_its_plan_unless_there_is_none_or_it_is_long(tmp_path):
    assert not keep_plan(tmp_path, Load(concurrencies=[1], count=3).levels(13), 13)
    assert not keep_plan(tmp_path, [Level({"expected": 10**9}, LOADS[0].levels(13)[0].plan)], 13)
    assert list(tmp_path.iterdir()) == []
    assert keep_plan(tmp_path, LOADS[1].levels(13), 13)
    assert len(Plan.read(tmp_path)) == 80


def test_targets_are_kept(tmp_path):
    frame = plan_frame(LOADS[1].levels(13), 13)
    levels = LOADS[1].levels(13)
    write_plan(tmp_path / "plan.parquet", levels, 13)
    facts = pl.read_parquet_metadata(tmp_path / "plan.parquet")["gpusize.plan"]
    numbers = pl.Series([n % 3 for n in range(len(frame))], dtype=pl.UInt16)
    moved = frame.with_columns(numbers.alias("target"))
    moved.write_parquet(tmp_path / "moved.parquet", metadata={"gpusize.plan": facts})
    replayed = Load(plan=tmp_path / "moved.parquet").levels(13)
    assert_frame_equal(plan_frame(replayed, 13), moved)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_other_tools_read_seconds_and_we_read_them_back(suffix, tmp_path):
    levels = LOADS[2].levels(DATASET)
    path = tmp_path / f"plan{suffix}"
    write_plan(path, levels, 13)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file)) if suffix == ".csv" else [json.loads(line) for line in file]
    exact = plan_frame(levels, 13)
    starts = {number: level.setting["at_s"] for number, level in enumerate(levels)}
    due = [starts[level] + ns / 1e9 for level, ns in zip(exact["level"], exact["due_ns"], strict=True)]
    assert [float(row["due_s"]) for row in rows] == pytest.approx(due, abs=1e-9)
    [level] = Load(plan=path).levels(13)
    again = plan_frame([level], 13)
    assert again["due_ns"].to_list() == [round(at * 1e9) for at in due]
    assert again.select("stream", "row", "priority").equals(exact.select("stream", "row", "priority"))
    assert (level.setting["process"], level.setting["count"]) == ("plan", len(rows))


def test_a_closed_loop_has_no_plan():
    with pytest.raises(UsageError, match="level 0 is a closed loop"):
        plan_frame(Load(concurrencies=[2], duration_s=1).levels(1), 1)


@pytest.mark.parametrize(
    "name, content, what",
    [
        ("x.txt", b"", "a plan is a"),
        ("x.parquet", b"PAR1", "not a Parquet file"),
        ("x.csv", b"due_s,row\n1,x\n", "is not a whole number"),
        ("x.csv", b"due_s,row\n1,-1\n", '"row" is -1'),
        ("x.csv", b"due_s\n", "no requests"),
        ("x.csv", b"row\n1\n", "no time of arrival"),
    ],
)
def test_what_is_no_plan(name, content, what, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=what):
        Plan.read(tmp_path / name)


def test_plans_that_do_not_fit(tmp_path):
    path = tmp_path / "plan.parquet"
    write_plan(path, LOADS[0].levels(13), 13)
    with pytest.raises(UsageError, match="sends row 12, and the dataset has 5 rows"):
        Load(plan=path).levels(5)
    with pytest.raises(UsageError, match="a plan has its own end"):
        Load(plan=path, duration_s=5)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="is not a plan"):
        Plan.read(tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="cannot be written as"):
        write_plan(tmp_path / "x.txt", LOADS[0].levels(13), 13)
    with pytest.raises(StoreError):
        write_plan(tmp_path / "none" / "x.csv", LOADS[0].levels(13), 13)


def test_many_requests_are_warned_of():
    def load(expected):
        return [Level({"expected": expected}, {})]

    assert cost_note(load(10**8)) is None
    note = cost_note(load(10**9))
    assert note is not None
    assert "1,000,000,000 requests" in note
    assert "about 13.5 GB; --sample-records 1/10 keeps" in note
    assert cost_note(load(10**9), 10) is None
    assert "--sample-records 1/100" in (cost_note(load(10**10)) or "")


def test_an_outline_adds_up():
    load = Load(streams=[Stream("a", rate=20), Stream("b", start_s=4, stages="0/s..30/s@8s")], duration_s=12)
    levels = load.levels(1)
    found = outline(levels, 1, 60)
    assert (found.total_s, found.requests, found.unit) == (12.0, total_expected(levels), "/s")
    seconds = 12 / 60
    drawn = sum(sum(values) for values in found.drawn.values()) * seconds
    assert drawn == pytest.approx(found.requests)
    planned = {name: sum(values) * seconds for name, values in found.planned.items()}
    assert planned == pytest.approx({"a": 240, "b": 120})
    due = sorted(
        round(level.setting["at_s"] * 1e9) + at
        for number, level in enumerate(levels)
        for at in plan_frame([level], 1)["due_ns"]
    )
    most = max(sum(at <= other < at + 10**9 for other in due) for at in due)
    assert found.peak == most
    json.dumps(found.document(), allow_nan=False)


def test_an_outline_of_what_depends_on_the_answers():
    found = outline(Load(concurrencies=[1, 2], count=5).levels(1), 1)
    assert (found.total_s, found.requests, found.peak, found.planned) == (None, 10, None, {})
    stages = outline(Load(stages="4@10s, 4..8@10s").levels(1), 1, 20)
    assert (stages.total_s, stages.requests, stages.unit) == (20.0, None, "in flight")
    assert stages.planned[""][:10] == pytest.approx([4] * 10)
    assert stages.planned[""][-1] == pytest.approx(7.8)
