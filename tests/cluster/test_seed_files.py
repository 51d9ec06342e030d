"""Folders of the Run:ai scale test tool, and its known defects (``defect N`` of its list, mended here)."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpusize.base.errors import PathMissing, StoreError
from gpusize.cluster.opened import open_test, write_tables
from gpusize.cluster.seed_files.keys import parse_time, time_text
from gpusize.cluster.seed_files.read import read_seed_folder
from tests.cluster.folders import EVENTS, save, second, seed_folder, seed_rows
from tests.cluster.synthetic import S, World

DELTAS = {
    "workload_creation": ("submitTimestamp", EVENTS[0]),
    "job_creation": (EVENTS[0], EVENTS[1]),
    "first_pod_creation": (EVENTS[1], EVENTS[2]),
    "last_pod_creation": (EVENTS[1], EVENTS[3]),
    "pod_group_creation": (EVENTS[2], EVENTS[4]),
    "pod_scheduling_decision": (EVENTS[4], EVENTS[5]),
    "scheduled": ("submitTimestamp", EVENTS[5]),
}


def table(folder: Path) -> tuple[list[str], list[list[str]]]:
    with (folder / "times.csv").open() as lines:
        header, *rows = csv.reader(lines)
    return header, rows


@pytest.mark.parametrize("seed", range(4))
def test_deltas_as_that_tool_has_them(tmp_path: Path, seed: int) -> None:
    submitted, sampled = seed_rows(30, seed)
    timed = open_test(seed_folder(tmp_path, submitted, sampled), skip_errors=False)
    times = {row["jobName"]: dict(row) for row in sampled}
    for row in submitted:
        times[row["jobName"]]["submitTimestamp"] = row["submitTimestamp"]
    for phase, (start, end) in DELTAS.items():
        rows = timed.rows(phase)
        assert rows.height == 30
        for row in rows.iter_rows(named=True):
            theirs = (second(times[row["workload"]][end]) - second(times[row["workload"]][start])).total_seconds()
            ours = row["value_ns"] / S
            if start == "submitTimestamp":
                # Its microseconds are kept, and the middle of the other's second stands for it.
                assert abs(ours - theirs) <= 0.5 + 1e-6
            else:
                assert ours == pytest.approx(theirs, abs=1e-6)
            assert row["hi_ns"] - row["lo_ns"] >= S - 2, "the resolution of a second is stated"
    assert timed.offset is not None
    assert timed.offset.assumed


def test_defect_1_as_many_columns_as_values(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(8, 1, events=True, backend=True)
    folder = seed_folder(tmp_path, submitted, sampled)
    write_tables(folder, open_test(folder))
    header, rows = table(folder)
    assert len(header) == len(set(header)) == 26
    assert {len(row) for row in rows} == {26}
    by_name = {row["jobName"]: row for row in sampled}
    columns = {
        "Workload Created": "workloadCreatedTimestamp",
        "Pod Group Created": "podGroupCreatedTimestamp",
        "First Evicted": "firstEvictionTimestamp",
        "First PVC Bound": "firstPVCBindTimestamp",
        "Backend Job Created": "backendJobCreatedTimestamp",
    }
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        for column, key in columns.items():
            wanted = second(by_name[cells["Job Name"]][key]).strftime("%Y-%m-%d %H:%M:%S")
            evicted = by_name[cells["Job Name"]]["firstEvictionTimestamp"]
            none = column == "First Evicted" and evicted == by_name[cells["Job Name"]]["podSchedulingDecisionTimestamp"]
            assert cells[column] == ("" if none else wanted)


def test_defect_2_volumes_and_evictions(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(8, 2, events=True)
    timed = open_test(seed_folder(tmp_path / "on", submitted, sampled))
    assert (timed.rows("first_pvc_bind")["value_ns"] / S).to_list() == [6.0] * 8, "request to bind, not bind to bind"
    assert timed.rows("first_eviction").height == 2
    submitted, sampled = seed_rows(8, 2)
    off = open_test(seed_folder(tmp_path / "off", submitted, sampled))
    for phase in ("first_eviction", "first_pvc_bind_request", "first_pvc_bind"):
        assert off.rows(phase).is_empty(), "what nobody asked for is no delta"


def test_defect_3_no_backend_no_delta(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(8, 3)
    folder = seed_folder(tmp_path, submitted, sampled)
    timed = open_test(folder)
    assert timed.rows("backend_job_creation").is_empty()
    write_tables(folder, timed)
    header, rows = table(folder)
    assert {row[header.index("Backend Job Creation")] for row in rows} == {""}
    assert {row[header.index("Total Backend Job Creation")] for row in rows} == {""}


def test_defect_4_jobs_of_one_second_keep_their_phases(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(40, 4)
    folder = seed_folder(tmp_path, submitted, sampled)
    timed = open_test(folder)
    write_tables(folder, timed)
    header, rows = table(folder)
    by_name = {row["jobName"]: row for row in sampled}
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        of = by_name[cells["Job Name"]]
        assert float(cells["Job Creation"]) == (second(of[EVENTS[1]]) - second(of[EVENTS[0]])).total_seconds()
        decision = (second(of[EVENTS[5]]) - second(of[EVENTS[4]])).total_seconds()
        assert float(cells["Pod Scheduling Decision"]) == decision
    # By submission, each series in the same order.
    order = [row["jobName"] for row in sorted(submitted, key=lambda row: row["submitTimestamp"])]
    assert [row[0] for row in rows] == order
    assert timed.rows("job_creation")["workload"].to_list() == order
    assert timed.rows("scheduled")["workload"].to_list() == order


def test_defect_5_a_name_that_was_taken_is_told(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(6, 5)
    submitted.append({**submitted[0], "submitTimestamp": "2024-09-09T10:01:00.000001+00:00"})
    _, _, facts = read_seed_folder(seed_folder(tmp_path, submitted, sampled))
    assert facts["seed_files"]["twice"] == 1
    other = {**submitted[1], "projectName": "project-1", "jobNamespace": "runai-project-1"}
    timed = open_test(seed_folder(tmp_path, [*submitted, other], sampled))
    assert timed.workloads.height == 7, "the same name in another project is another job"


def test_defect_6_what_was_never_sampled_counts(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(20, 6)
    early = sorted(sampled, key=lambda row: row[EVENTS[0]])
    gone = {row["jobName"] for row in early[:5]}
    left = [row for row in sampled if row["jobName"] not in gone]
    timed = open_test(seed_folder(tmp_path, submitted, left))
    assert dict(timed.workloads.group_by("outcome").len().iter_rows()) == {"scheduled": 15, "pending": 5}
    rows = timed.rows("scheduled")
    assert set(rows.filter(pl.col("state") == "censored")["workload"]) == gone
    row = timed.summary().filter(pl.col("phase") == "scheduled").row(0, named=True)
    assert (row["n"], row["censored"]) == (20, 5)
    assert row["max_s"] is None


def test_defect_8_and_9_an_unschedulable_verdict_is_no_success(tmp_path: Path) -> None:
    made = save(World(n=6, never=1.0, gang=3), tmp_path)
    timed = open_test(tmp_path)
    assert set(timed.workloads["outcome"]) == {"unschedulable"}
    assert (timed.rows("scheduled")["state"] == "censored").all()
    assert timed.rows("unschedulable").height == len(made.truth)
    write_tables(tmp_path, timed)
    assert json.loads((tmp_path / "sampled.json").read_text()) == []


def test_jobs_of_one_pod_have_one(tmp_path: Path) -> None:
    """Their first and last creation are the same; two pods of them would double the pods a second."""
    submitted, sampled = seed_rows(12, 9)
    gangs = {row["jobName"] for row in sampled[:3]}
    for row in sampled:
        later = second(row["firstPodCreatedTimestamp"]).timestamp() + 1
        gang = datetime.fromtimestamp(later, UTC).isoformat()
        row["lastPodCreatedTimestamp"] = gang if row["jobName"] in gangs else row["firstPodCreatedTimestamp"]
    sampled[3]["lastPodCreatedTimestamp"] = None
    sampled[4]["firstPodCreatedTimestamp"] = sampled[4]["lastPodCreatedTimestamp"] = None
    timed = open_test(seed_folder(tmp_path, submitted, sampled))
    assert dict(timed.workloads.select("workload", "pods_seen").iter_rows()) == {
        row["jobName"]: 1 + (row["jobName"] in gangs) for row in submitted
    }
    pods, workloads = timed.pods_per_s(), timed.workloads_per_s()
    assert pods is not None
    assert workloads is not None
    assert (pods.n, workloads.n) == (15, 12)
    assert timed.rows("last_pod_creation").height == 11, "of one job no pod had a time"
    assert (timed.workloads["outcome"] == "scheduled").all()


def test_the_two_error_rules(tmp_path: Path) -> None:
    """As the tool has them, counted and named; and they can be turned off, which there they could not."""
    submitted, sampled = seed_rows(12, 7)
    sampled = sorted(sampled, key=lambda row: row["jobName"])
    sampled[3]["podGroupCreatedTimestamp"] = "2024-09-09T09:59:00Z"
    sent = {row["jobName"]: second(row["submitTimestamp"]) for row in submitted}
    for number, before_s in ((5, 2), (6, 1)):
        early = datetime.fromtimestamp(sent[sampled[number]["jobName"]].timestamp() - before_s, UTC)
        sampled[number]["podSchedulingDecisionTimestamp"] = early.strftime("%Y-%m-%dT%H:%M:%SZ")
    timed = open_test(seed_folder(tmp_path, submitted, sampled))
    assert timed.broken["pod_group_before_pod"] == [sampled[3]["jobName"]]
    assert timed.broken["decision_before_submission"] == [sampled[5]["jobName"]], "1 s is within the resolution there"
    assert set(timed.left_out) == {sampled[3]["jobName"], sampled[5]["jobName"]}
    assert timed.workloads.height == 12
    assert timed.rows("job_creation").height == 10
    assert open_test(tmp_path, skip_errors=False).rows("job_creation").height == 12


@pytest.mark.parametrize("seed", range(3))
def test_round_trip(tmp_path: Path, seed: int) -> None:
    """Our tables as that tool's files, read again: the same deltas, as its plotter reads them too."""
    world = World(n=25, gang=3, seed=seed, offset_s=0.2, scheduling_s=(0.5, 9.0))
    save(world, tmp_path / "ours")
    timed = open_test(tmp_path / "ours")
    write_tables(tmp_path / "ours", timed)
    files = [json.loads((tmp_path / "ours" / name).read_text()) for name in ("submitted.json", "sampled.json")]
    again = open_test(seed_folder(tmp_path / "seed", *files))
    sampled = {row["jobName"]: row for row in files[1]}
    assert len(sampled) == 25
    for phase, (start, end) in DELTAS.items():
        both = timed.rows(phase).join(again.rows(phase), on="workload", suffix="_again")
        assert both.height == 25
        assert ((both["value_ns"] - both["value_ns_again"]).abs() < 0.3 * S).all()
        for name, value in both.select("workload", "value_ns").iter_rows():
            if start != "submitTimestamp":
                theirs = (second(sampled[name][end]) - second(sampled[name][start])).total_seconds()
                assert abs(theirs - value / S) < 1.05


def test_times(tmp_path: Path) -> None:
    assert parse_time("2024-09-09T10:00:00Z") == parse_time("2024-09-09 12:00:00+02:00")
    assert parse_time("2024-09-09T10:00:00Z")[1] == S
    assert parse_time("2024-09-09T10:00:00.000001+00:00")[1] == 1000
    draw = np.random.default_rng(1)
    for at in draw.integers(10**18, 2 * 10**18, 50).tolist():
        assert parse_time(time_text(at, at))[0] == at // 1000 * 1000
        assert parse_time(time_text(at, at + S))[0] == at // S * S


def test_broken_files_are_refused(tmp_path: Path) -> None:
    submitted, sampled = seed_rows(2, 8)
    with pytest.raises(PathMissing, match="not a folder of a cluster test"):
        open_test(tmp_path)
    with pytest.raises(PathMissing, match="no such folder"):
        open_test(tmp_path / "none")
    sampled[1]["jobCreatedTimestamp"] = "yesterday"
    with pytest.raises(StoreError, match="jobCreatedTimestamp of job 1 is no time: yesterday"):
        open_test(seed_folder(tmp_path, submitted, sampled))
    del submitted[0]["submitTimestamp"]
    with pytest.raises(StoreError, match="job 0 has no submitTimestamp"):
        open_test(seed_folder(tmp_path, submitted, sampled))
    (tmp_path / "submitted.json").write_text('[{"jobName": ')
    with pytest.raises(StoreError, match="broken JSON"):
        open_test(tmp_path)
