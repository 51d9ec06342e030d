"""Run folders become levels; equal levels become repeats; different systems are not mixed."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from gpusize.analysis.pooling import pool
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.base.errors import StoreError, UsageError
from tests.analysis.synthetic import MS, SOURCE, closed, frame, level, percentile_level

RUN = {
    "schema": 1,
    "run": "r7",
    "targets": [{"url": "http://127.0.0.1:1/", "api": "json", "gpus": 4, "simulated": None}],
    "models": ["m"],
    "dataset": {"source": "a.jsonl", "rows": 3, "sha256": "abc"},
    "labels": {"site": "x"},
}


def folder(path, *levels, run=RUN):
    path.mkdir(exist_ok=True)
    (path / "run.json").write_text(json.dumps(run))
    for lv in levels:
        place = path / "levels" / f"{lv.visit:04d}"
        (place / "records").mkdir(parents=True)
        meta = {**lv.meta, "intervals": list(lv.intervals)}
        (place / "level.json").write_text(json.dumps(meta))
        stored = lv.records.with_columns(pl.col("outcome").to_physical().cast(pl.UInt8)).collect()
        half = stored.height // 2
        stored[:half].write_parquet(place / "records" / "part-00000.parquet")
        stored[half:].write_parquet(place / "records" / "part-00001.parquet")
    return path


def steady_level(concurrency=4, visit=0, **more):
    return level(concurrency, closed(concurrency, lambda k: 100 * MS, duration_ns=5000 * MS), visit=visit, **more)


def test_a_run_folder_is_read(tmp_path):
    made = [steady_level(4, 0, duration_s=5), percentile_level(2, 0.5)]
    (tmp_path / "levels" / ".0009.open").mkdir(parents=True)
    found = read_levels(folder(tmp_path, *made))
    assert [(lv.visit, lv.concurrency, lv.rate, lv.state, lv.run, lv.gpus) for lv in found] == [
        (0, 4, None, "done", "r7", 4),
        (2, 2, None, "done", "r7", 4),
    ]
    assert found[0].labels == {"site": "x"}
    assert found[0].histograms is None
    assert found[0].records.collect().equals(made[0].records.collect())
    assert found[0].steady().collect().height == made[0].steady().collect().height < made[0].records.collect().height
    assert found[0].window_s() == pytest.approx((found[0].window()[1] - found[0].window()[0]) / 1e9)


def test_old_runs_can_be_judged_again_with_another_warm_up(tmp_path):
    (found,) = read_levels(folder(tmp_path, steady_level(duration_s=5)), warmup_s=2.0)
    assert found.window()[0] == found.meta["start_ns"] + 2_000_000_000


def test_intervals_that_were_never_written_are_found(tmp_path):
    made = steady_level(duration_s=5)
    (found,) = read_levels(folder(tmp_path, replace(made, intervals=())))
    assert list(found.intervals) == list(made.intervals)


def test_no_run_folder(tmp_path):
    with pytest.raises(StoreError, match=r"no run\.json in it: not a run folder"):
        read_levels(tmp_path)


@pytest.mark.parametrize(
    "text,message",
    [("{", "not valid JSON"), ("[]", "names no schema version"), ('{"schema": 2}', "schema 2 by a newer gpusize")],
)
def test_a_broken_run_is_named(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        read_levels(tmp_path)


def test_a_level_without_a_setting_is_named(tmp_path):
    path = folder(tmp_path, steady_level())
    (path / "levels" / "0000" / "level.json").write_text('{"schema": 1, "visit": 0, "state": "done"}')
    with pytest.raises(StoreError, match=r"0000/level\.json: setting: this field is missing"):
        read_levels(path)


def test_equal_levels_are_repeats():
    levels = [steady_level(4, 0, duration_s=5), steady_level(8, 1, duration_s=5), steady_level(4, 2, duration_s=5)]
    four, eight = pool(levels)
    assert (four.concurrency, eight.concurrency) == (4, 8)
    assert [part.visit for part in four.visits()] == [0, 2]
    each = levels[0].steady().collect().height
    assert four.steady().collect().height == 2 * each
    assert four.window_s() == pytest.approx(2 * levels[0].window_s())
    assert eight.visits() == (eight,)


def test_a_pooled_level_keeps_the_window_of_each_visit():
    late = closed(4, lambda k: 100 * MS, duration_ns=5000 * MS, start_ns=90_000_000_000)
    levels = [steady_level(duration_s=5), level(4, late, visit=1, duration_s=5)]
    (pooled,) = pool(levels)
    assert pooled.steady().collect().equals(pl.concat([lv.steady().collect() for lv in levels]))


def test_pooling_twice_changes_nothing():
    levels = [steady_level(4, k, duration_s=5) for k in range(3)]
    once = pool(levels[:2])
    assert [part.visit for part in pool([*once, levels[2]])[0].visits()] == [0, 1, 2]


LOADS = [
    {"gpus": 4},
    {"state": "interrupted"},
    {"think_s": 1.0},
    {"think": "exp(1s)"},
    {"rate": 5.0},
    {"rate": 5.0, "from_rate": 1.0, "to_rate": 9.0},
    {"from": 1},
    {"unit": "session"},
    {"bursts": {"rate": 9, "length_s": 1, "every_s": 5}},
    {"streams": [{"id": 0}]},
    {"process": "gamma", "shape": 0.5},
]


@pytest.mark.parametrize("change", LOADS)
def test_what_differs_in_kind_is_not_pooled(change):
    assert len(pool([steady_level(), steady_level(visit=1, **change)])) == 2


@pytest.mark.parametrize("name", ["targets", "models", "dataset"])
def test_different_systems_are_refused_unless_allowed(name):
    levels = [steady_level(), steady_level(run="r2", source={**SOURCE, name: ["other"]})]
    with pytest.raises(UsageError, match=f"the {name} differ.*other") as raised:
        pool(levels)
    assert raised.value.where == "runs r1 and r2"
    assert len(pool(levels, allow=[name])) == 1
    assert f"--allow {name}" in str(raised.value)


def test_only_what_is_compared_may_be_allowed_to_differ():
    with pytest.raises(UsageError, match=r'"datasets" is not among.*targets, models, dataset'):
        pool([steady_level()], allow=["datasets"])


def test_digests_are_told_apart_by_their_first_digits():
    levels = [steady_level(run=letter, source={**SOURCE, "dataset": letter * 64}) for letter in "ab"]
    with pytest.raises(UsageError, match=r"the dataset differs: a{12} and b{12}\."):
        pool(levels)


def test_the_simulated_cluster_is_the_same_on_another_port(tmp_path):
    levels = []
    for port in (1, 2):
        target = {"url": f"http://127.0.0.1:{port}/", "api": "json", "gpus": 1, "simulated": {"gpus": 1}}
        path = folder(tmp_path / str(port), steady_level(), run={**RUN, "targets": [target]})
        levels += read_levels(path)
    assert len(pool(levels)) == 1


def test_quantile_and_mean_are_over_requests_that_ended_ok():
    due = [0] * 4
    lv = level(
        2, {"due_ns": due, "sent_ns": due, "end_ns": [MS, 3 * MS, 5 * MS, 900 * MS], "outcome": [0, 0, 0, 3]}, passes=2
    )
    assert lv.quantile("runtime", 0.5) == 0.003
    assert lv.quantile("runtime", 1.0) == 0.005
    assert lv.mean("runtime") == pytest.approx(0.003)
    assert lv.quantile("ttft", 0.5) is None
    assert lv.mean("ttft") is None
    assert lv.attainment(Slo.parse("p95 runtime <= 3ms")) == (0.5, 4)


def test_without_intervals_all_records_are_steady():
    lv = replace(steady_level(duration_s=5), intervals=())
    assert lv.steady().collect().height == lv.records.collect().height
    assert lv.window() == (lv.meta["start_ns"], lv.meta["end_ns"])


def test_frame_helper_matches_the_schema():
    assert frame({"due_ns": [1]}).height == 1
